package layer

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel keeps clusters of a mounted ext4 back from everybody, root included, for what must not fail: their number can be changed
// at any time (Documentation/ABI/testing/sysfs-fs-ext4). A write that would take one of them gets ENOSPC at once, also one whose blocks
// would be allocated later.
const keptBackFile = "/sys/fs/ext4/loop%d/reserved_clusters"

// canLimit reports whether layers can be limited: without ext4's directory in sysfs, or where that is read-only, they cannot.
func canLimit() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/ext4", &st) == nil && st.Flags&unix.ST_RDONLY == 0
}

// keptBack returns how many clusters of the layer's file system are kept back at present.
func (l *Layer) keptBack() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf(keptBackFile, l.loop.Number))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// usage is what a file system has, in bytes.
type usage struct{ total, used, cluster int64 }

func (l *Layer) used() (usage, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(l.root.Fd()), &st); err != nil {
		return usage{}, fmt.Errorf("statfs of a layer: %w", err)
	}
	return usage{int64(st.Blocks) * st.Bsize, int64(st.Blocks-st.Bfree) * st.Bsize, st.Bsize}, nil
}

// least returns what the layer's file has at most if jobs may write no more than reserve bytes in all.
func (p *reservation) least(reserve int64) int64 {
	if p.layer == nil {
		return p.bytes
	}
	u, err := p.layer.used()
	if err != nil {
		return p.bytes
	}
	return min(p.size, p.size-u.total+max(u.used, reserve))
}

// limit keeps the jobs of a layer from using more than reserve bytes in all, or extra bytes more than that or than they use at present.
func (p *reservation) limit(reserve, extra int64) error {
	if p.layer == nil {
		return nil
	}
	u, err := p.layer.used()
	if err != nil {
		return err
	}
	may := min(u.total, max(u.used, reserve)+extra)
	back := max((u.total-may)/u.cluster, p.layer.unused)
	if err := os.WriteFile(fmt.Sprintf(keptBackFile, p.layer.loop.Number), strconv.AppendInt(nil, back, 10), 0); err != nil {
		return fmt.Errorf("limit a layer: %w", err)
	}
	if p.bytes = p.size; back > p.layer.unused {
		p.bytes -= back * u.cluster
	}
	return nil
}

// divide divides what is free among the layers in which jobs run. It never gives more than there is, whatever jobs write meanwhile:
// what they use of their part is not free any more, and not promised any more either. The caller holds mu and the lock.
func (r *ledger) divide(n needs) error {
	r.divided = time.Now()
	if !r.limits {
		return nil
	}
	users := map[uint32]int64{} // layers with jobs
	for p := range r.live {
		if p.jobs > 0 {
			users[p.user]++
		}
	}
	extra, least := map[uint32]int64{}, n.left()
	for user, layers := range users {
		most := n.left()
		if user != 0 {
			most = min(most, max(n.part()-n.mine[user], n.left()-n.part()))
		}
		extra[user] = max(min(most, n.left()/int64(len(users))), 0) / layers
		least = min(least, extra[user])
	}
	r.noteShort(least)
	return r.limitAll(extra)
}

// limitAll limits all layers: those with jobs to so much more than they have for certain, by user.
func (r *ledger) limitAll(extra map[uint32]int64) error {
	var failed error
	for _, grow := range []bool{false, true} { // what some get, others must have lost before
		for p := range r.live {
			more := int64(0)
			if p.jobs > 0 {
				more = extra[p.user]
			}
			if target := p.least(r.reserve) + more; target > p.bytes == grow {
				failed = errors.Join(failed, p.limit(r.reserve, more))
			}
		}
	}
	return failed
}

// Room is short as soon as a job may write less than shortOf, unless its layer is smaller, and is not any more from enough on.
const shortOf, enough = 256 << 20, 1 << 30

// noteShort logs when room becomes short, and when it is not any more. least is what a job may write at present, or could.
func (r *ledger) noteShort(least int64) {
	switch {
	case !r.short && least < shortOf:
		r.log.Warn("the file system of the state directory has little room for sessions: their jobs get ENOSPC when it is used up, and new sessions are refused",
			"left_mib", max(least, 0)>>20, "sessions", len(r.live), "hint", r.hint("end sessions"))
	case r.short && least >= enough:
		r.log.Info("the file system of the state directory has room for sessions again", "left_mib", least>>20)
	default:
		return
	}
	r.short = !r.short
}

// changeJobs counts jobs that run in a layer, and divides what is free again.
func (r *ledger) changeJobs(p *reservation, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.jobs += n
	return r.again()
}

// again divides what is free again. The caller holds mu.
func (r *ledger) again() error {
	if !r.limits {
		return nil
	}
	return r.withLock(func() error {
		n, err := r.needs()
		if err != nil {
			return err
		}
		return errors.Join(r.divide(n), r.publish())
	})
}

// pause is the least time between two divisions because a layer has used up most of its part.
const pause = 100 * time.Millisecond

// refill gives a layer with so much left a larger part, if there is one. It reports whether the host's disk leaves the layer less
// room than its size would.
func (r *ledger) refill(p *reservation, left int64) (short bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.bytes >= p.size {
		return false, nil
	}
	if left < enough && time.Since(r.divided) > pause {
		err = r.again()
	}
	return left < shortOf && p.bytes < p.size, err
}

// JobBegins lets jobs write to the layer, as much as there is room for. The caller must call JobEnds.
func (l *Layer) JobBegins() error { return l.store.ledger.changeJobs(l.held, 1) }

// JobEnds is called when a job that began has ended.
func (l *Layer) JobEnds() error { return l.store.ledger.changeJobs(l.held, -1) }

// Refill is called from time to time while jobs run, with the layer's usage. It reports whether the layer has little room left although
// it is smaller than its size: the host's disk has not more for it.
func (l *Layer) Refill(u Usage) (short bool, err error) { return l.store.ledger.refill(l.held, u.Free) }
