package isolate

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/scan"
	"corral/isolate/wire"
	"corral/job"
)

// How often a job with a disk limit is looked at: far from the limit, and near it. What it can add beyond the limit is what
// it can write in the shorter of them.
const (
	diskInterval     = 10 * time.Millisecond
	diskIntervalNear = 500 * time.Microsecond
)

// watchDisk ends the job when it has added more to the repository than its limits allow. A directory of the host that is
// written through has no quota of its own, so this is a watch, not a wall: first a cheap look at the whole file system
// (statfs), which says when the limit may have been passed; then, because others write there too, a sum over what
// changed in the repository since the job began, by the scanner. Jobs without a disk limit are not watched. When stop
// returns, nobody looks any more.
func (s *Supervisor) watchDisk(sl *slot, r *run) (stop func()) {
	imports := sl.jail.session != nil && sl.jail.session.imports() // whose layer is a wall
	if imports || r.limits.Disk == job.Unlimited && r.limits.Inodes == job.Unlimited {
		return func() {}
	}
	w := &diskWatch{slot: sl, group: sl.group, run: r, since: fileTime().Add(-clockStep)}
	if w.free() != nil {
		w.fail()
		return func() {}
	}
	w.baseBytes, w.baseInodes = w.bytes, w.inodes
	over := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() { w.loop(over) })
	return func() {
		close(over)
		loop.Wait()
	}
}

type diskWatch struct {
	slot  *slot
	group jobGroup // of the slot
	run   *run
	since time.Time

	baseBytes, baseInodes int64 // free when the job began
	bytes, inodes         int64 // free now

	passed, looked time.Time // since when each look found descriptors on their way, zero if the last one did not; and the last one
}

func (w *diskWatch) loop(stop <-chan struct{}) {
	timer := time.NewTimer(diskInterval)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		if w.free() != nil {
			w.fail()
			return
		}
		bytes, inodes := w.gone()
		if w.over(bytes, inodes) != 0 && w.due() {
			met, thaw := w.confirm()
			if met != 0 {
				w.run.ask(met)
			}
			thaw() // the stub must see the end, whoever brings it about
			if met != 0 {
				return
			}
		}
		next := diskInterval
		if w.over(2*bytes, 2*inodes) != 0 {
			next = diskIntervalNear
		}
		timer.Reset(next)
	}
}

// gone is by how much the free space has fallen.
func (w *diskWatch) gone() (bytes, inodes int64) {
	return w.baseBytes - w.bytes, w.baseInodes - w.inodes
}

// fail ends the job: what cannot be found out is held against it.
func (w *diskWatch) fail() {
	if w.run.limits.Disk != job.Unlimited {
		w.run.ask(wire.OverDisk)
		return
	}
	w.run.ask(wire.OverFiles)
}

func (w *diskWatch) free() error {
	var st unix.Statfs_t
	var err error
	switch j := w.slot.jail; {
	case j.session != nil && j.merged != "":
		err = unix.Statfs(j.session.layer.Path(), &st)
	case localFileSystems[j.repo.fs]:
		err = unix.Fstatfs(int(j.repo.dir.Fd()), &st)
	default: // it may not answer
		found, err := j.s.probes.fileSystem(w.run.peer.payer(), j.repo.dir)
		w.bytes, w.inodes = found.FreeBytes, found.FreeFiles
		return err
	}
	w.bytes, w.inodes = int64(st.Bfree)*st.Bsize, int64(st.Ffree)
	return err
}

// localFileSystems are those that answer from a disk or from memory, by statfs(2)'s magic number.
var localFileSystems = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true,
}

// over says which limit so much would be over, or 0.
func (w *diskWatch) over(bytes, inodes int64) wire.Outcome {
	switch l := w.run.limits; {
	case l.Disk != job.Unlimited && bytes > l.Disk:
		return wire.OverDisk
	case l.Inodes != job.Unlimited && inodes > l.Inodes:
		return wire.OverFiles
	}
	return 0
}

// What is on its way: a descriptor that was sent over a socket and not received yet is in no list of descriptors. Which file it is of
// nobody can ask. An honest program receives it sooner or later, so a job with such descriptors is looked at again, and goes on if
// there is a moment without any. If there is none for as long as passedPatience, or if the free space has fallen by the limit once
// more and at least by passedBytes and passedInodes, all of it is held against the job.
const (
	passedPatience = 200 * time.Millisecond
	passedInterval = 5 * time.Millisecond // between looks, for the job stands still in each
	passedBytes    = 64 << 20
	passedInodes   = 1 << 16
)

// due says whether to look now. The free space has fallen by more than the limit.
func (w *diskWatch) due() bool {
	return w.passed.IsZero() || time.Since(w.looked) >= passedInterval || w.tooFar()
}

// tooFar says whether the free space has fallen by so much that the job does not get more time.
func (w *diskWatch) tooFar() bool {
	bytes, inodes := w.gone()
	return w.over(bytes-max(w.run.limits.Disk, passedBytes), inodes-max(w.run.limits.Inodes, passedInodes)) != 0
}

// onTheirWay says whether the job gets more time though descriptors are on their way.
func (w *diskWatch) onTheirWay() (more bool) {
	w.looked = time.Now()
	if w.passed.IsZero() {
		w.passed = w.looked
	}
	return w.looked.Sub(w.passed) < passedPatience && !w.tooFar()
}

// confirm says whether it was this job, which stands still until it is thawed. What it wrote counts in the kernel's own account of
// its processes, which also knows files that were deleted while open; what it made is counted in the tree. What others
// have taken is left out from then on.
func (w *diskWatch) confirm() (met wire.Outcome, thaw func()) {
	thaw, _ = w.group.Freeze()
	late := time.AfterFunc(tablesPatience, w.fail)
	written, err := w.written()
	if met := w.over(written, 0); err == nil && met != 0 {
		late.Stop()
		return met, thaw
	}
	held, err := w.unlinked()
	late.Stop()
	if err == nil && held.passed && w.onTheirWay() {
		return 0, thaw
	}
	if err != nil || held.passed { // what cannot be found out is held against the job
		return w.over(w.gone()), thaw
	}
	w.passed = time.Time{}
	a, err := w.slot.jail.watcher().ask(scan.OpUsage, w.since)
	if err != nil || a.Incomplete {
		return w.over(w.gone()), thaw
	}
	bytes, inodes := a.Bytes+held.bytes, a.Inodes+held.inodes
	if met := w.over(bytes, inodes); met != 0 {
		return met, thaw
	}
	w.baseBytes, w.baseInodes = w.bytes+bytes, w.inodes+inodes
	return 0, thaw
}

// holdings are what a job's processes hold without a name.
type holdings struct {
	bytes, inodes int64
	passed        bool // descriptors are on their way, of whatever files
}

// unlinked sums what the job's processes hold in files that have no name any more, or never had one (O_TMPFILE): space
// that fallocate(2) reserved in them is in no account of what was written. It does not see a file that is only mapped. It fails
// if walkTables does.
func (w *diskWatch) unlinked() (h holdings, err error) {
	pids, err := w.group.PIDs()
	if err != nil {
		return h, err
	}
	seen := map[uint64]bool{}
	err = walkTables(pids, w.run.limits.PIDs, func(task string, names []string) error {
		for _, name := range names {
			ino, bytes, socket, err := w.withoutName(task + "/fd/" + name)
			if err != nil {
				return err
			}
			if socket && !h.passed {
				h.passed = waiting(task + "/fdinfo/" + name)
			}
			if ino != 0 && !seen[ino] {
				seen[ino] = true
				h.bytes += bytes
				h.inodes++
			}
		}
		return nil
	})
	return h, err
}

// waiting says whether somebody has sent descriptors to a job's socket that were not received: unix_show_fdinfo in
// net/unix/af_unix.c, in kernels from 5.6 on. A listening one counts those for whom it has not accepted. Sockets that wait in
// others are reached through these; where they only hold each other, the kernel closes them soon.
func waiting(info string) bool {
	f, err := os.Open(info)
	if err != nil {
		return !goneMeanwhile(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "scm_fds:"); ok {
			return strings.TrimSpace(n) != "0"
		}
	}
	return false
}

// withoutName is how large the file of a job's descriptor is, if it is one of the repository's file system and has no name. A
// process outside may have passed the descriptor to the job, of a file system of its own: that one is not asked. socket says that
// it is one. It fails if the supervisor may not look.
func (w *diskWatch) withoutName(path string) (ino uint64, bytes int64, socket bool, err error) {
	var st unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_NLINK|unix.STATX_BLOCKS, &st)
	if err == unix.EACCES || err == unix.EPERM {
		return 0, 0, false, err
	}
	if err != nil { // closed meanwhile, or of a file system that does not tell
		return 0, 0, false, nil
	}
	if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		return 0, 0, true, nil
	}
	if unix.Mkdev(st.Dev_major, st.Dev_minor) != w.slot.jail.repo.dev || st.Nlink != 0 {
		return 0, 0, false, nil
	}
	return st.Ino, int64(st.Blocks) * 512, false, nil
}

// written sums the bytes that the job's processes caused to be written to block devices, less what was cut off again
// before it was (proc_pid_io(5)). Ended processes are in their parent's account.
func (w *diskWatch) written() (int64, error) {
	pids, err := w.group.PIDs()
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, pid := range pids {
		sum += writtenBy(pid)
	}
	return sum, nil
}

// writtenBy is 0 for a process that has ended meanwhile.
func writtenBy(pid int) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	var sum int64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil:
		case name == "write_bytes":
			sum += n
		case name == "cancelled_write_bytes":
			sum -= n
		}
	}
	return sum
}
