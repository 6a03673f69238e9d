package meter

import (
	"math"
	"strconv"
	"strings"

	"corral/internal/lazyregexp"
)

// The kernel reports no size of the list that overlayfs keeps of a directory in more than one layer: the directory in the lower layer can
// have had any number of names when it was read. Nor does it report what is queued in a socket that is itself queued. So jobs that have
// such descriptors are blamed for what the memory for names grew by since they had none, less what jobs of other payers are known to
// hold: otherwise jobs of one user, each below its limit, could have those of another ended. What the payer's own jobs hold does not
// explain growth: it is an estimate, so that jobs with directories that they never read could hide the names of another job. Sizes of
// lower directories would not do: a job of the same user can replace them after they were read. Nor would the position of the
// descriptor: lseek(2) sets it back and the list stays.
const (
	// MinUnexplainedBytes is by how much that memory may grow while a job has many suspect files: more than the growth at which jobs are
	// checked, so that the descriptors were there at several checks. A job that walks a tree has few directories open that were
	// changed in the session's layer, and not for long.
	MinUnexplainedBytes = 2 * ManyKernelBytes

	// MaxUnexplainedBytes is by how much it may grow while a job has one suspect file, half of that for two, and so on.
	MaxUnexplainedBytes = 8 * ManyKernelBytes

	// MaxExplainedBytes is how much what jobs of other payers are known to hold explains at most. It is an estimate of theirs, too.
	MaxExplainedBytes = 8 * ManyKernelBytes
)

// blamedFrom returns the growth from which on a job with files suspect files is blamed. unsure says that some of them may be none: a busy
// machine leaves no time to measure many lists. A hostile job that makes measuring slow gains as much as one with a single list may have.
func blamedFrom(files int, unsure bool) int64 {
	if unsure {
		return MaxUnexplainedBytes
	}
	return max(MinUnexplainedBytes, MaxUnexplainedBytes/int64(max(files, 1)))
}

// A payerSum is what the jobs of one payer have together.
type payerSum struct {
	known  int64         // bytes
	unsure bool          // see blamedFrom
	job    *kernelHolder // the one with the most suspect files; nil: none has any
	most   int           // suspect files of job
}

// A growth has what the kernel used for names since the jobs of a payer had no suspect files: the lowest number since then, by payer. It is
// kept for all jobs of a payer together, because they can pass descriptors to each other from one look to the next.
type growth map[uint32]int64

// endSuspect ends the job with the most suspect files of the payer with the most among those to blame for unexplained growth, and reports
// whether there is none. One at a time: the growth is of the host, and ending the one to blame reverses it. n is what the kernel of the
// host used for names before all jobs were read without finding one that is over MaxKernelBytes; base is the lowest since all were
// blameless before, or 0: not known.
func (g *growth) endSuspect(all []*kernelHolder, n, base int64) (blameless bool) {
	var total int64
	payers, files := map[uint32]*payerSum{}, map[uint32]int{}
	for _, h := range all {
		bytes, suspects, late := h.lastRead()
		p := payers[h.payer]
		if p == nil {
			p = &payerSum{}
			payers[h.payer] = p
		}
		total += bytes
		p.known += bytes
		p.unsure = p.unsure || late
		files[h.payer] += suspects
		if suspects > p.most {
			p.job, p.most = h, suspects
		}
	}
	g.renew(files, n, base)
	var suspect *kernelHolder
	top := 0
	for payer, p := range payers {
		explained := min(total-p.known, MaxExplainedBytes)
		if grown, count := n-(*g)[payer], files[payer]; count > top && grown-explained > blamedFrom(count, p.unsure) {
			suspect, top = p.job, count
		}
	}
	return suspect == nil || suspect.check(func(*kernelHolder, int) (int64, error) { return math.MaxInt64, nil })
}

// renew takes note of how many suspect files the jobs of each payer have.
func (g *growth) renew(files map[uint32]int, n, base int64) {
	old := *g
	*g = growth{}
	for payer, count := range files {
		from, found := old[payer]
		switch {
		case count == 0 || !found && base == 0:
			from = n
		case !found:
			from = base
		case base != 0:
			from = min(from, base)
		}
		(*g)[payer] = from
	}
}

// lastRead returns what the job was found to hold when it was read, and its suspect files; nothing if it has ended.
func (h *kernelHolder) lastRead() (bytes int64, files int, late bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return 0, 0, false
	}
	return h.known, h.suspectFiles, h.late
}

// namesCaches are the slab caches that hold names: file systems allocate them one by one, charged to no cgroup. Kernels that charge
// allocations have caches apart for those that are charged, so that what jobs are charged for does not show in these.
var namesCaches = lazyregexp.New(`^kmalloc(-rnd-[0-9]+)?-(64|96|128|192|256|512)$`)

const chargedCaches = "kmalloc-cg-"

// namesBytes returns the size of the objects in those caches, from the table in /proc/slabinfo (slabinfo(5)): at least 0, and 0 where
// charged objects are not apart, or where the kernel has no such file. There jobs are not blamed.
func namesBytes(path string) int64 {
	var sum int64
	apart := false
	err := readLines(path, func(line string) error {
		f := strings.Fields(line)
		apart = apart || strings.HasPrefix(line, chargedCaches)
		if len(f) < 4 || !namesCaches().MatchString(f[0]) {
			return nil
		}
		objects, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(f[3], 10, 64)
		sum += objects * size
		return err
	})
	if err != nil || !apart {
		return 0
	}
	return sum
}
