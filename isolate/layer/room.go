package layer

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
)

// A ledger accounts for the space to which layers may still grow. Their files are sparse: reserved space must be available
// when it is used, or a session that fills its layer would fill the host's disk.
//
// A layer may be far larger than what is reserved for it. The kernel keeps its jobs from writing more (see limit), so they get
// ENOSPC from their own layer, and the sum of what all layers may grow never exceeds the free space. An idle layer has what its
// jobs have written, and at least Options.Reserve. The rest of the free space is divided among the users whose jobs run, and among
// the layers of each in which they do. It is divided again whenever a job begins or ends, and as a layer uses up its part.
//
// The stores of one file system share a ledger. Other supervisors learn of the reservations from a file each in
// promisesDir, which its owner keeps locked: the file's size is the sum of its owner's reservations, so it uses no block
// of a full disk.
type ledger struct {
	dev     uint64
	dir     *os.File // promisesDir; locked while a reservation is made
	own     *os.File // size is the sum of this ledger's reservations
	name    string   // of own's file
	reserve int64    // see Options
	limits  bool     // the kernel can limit layers; without it, all of their size is reserved
	log     *slog.Logger

	mu      fault.Mutex
	live    map[*reservation]bool // guarded by mu
	divided time.Time             // guarded by mu: when divide was called last
	short   bool                  // guarded by mu: some layer may not grow to its size
}

// A reservation is the space that one layer may use on the host's disk.
type reservation struct {
	user  uint32
	size  int64 // of the layer
	bytes int64 // guarded by the ledger's mu: what it may use at present
	// filled are bytes already on the disk, before layer is set.
	filled int64
	kept   int64    // Client.Kept
	file   *os.File // guarded by the ledger's mu: the mounted file
	layer  *Layer   // guarded by the ledger's mu: nil unless it is mounted and can be limited
	jobs   int      // guarded by the ledger's mu: that run in it
}

// rest returns by how many bytes the layer may still grow.
func (p *reservation) rest() int64 {
	var st unix.Stat_t
	if p.file == nil {
		return max(p.bytes-p.filled, 0)
	}
	if unix.Fstat(int(p.file.Fd()), &st) != nil {
		return p.bytes
	}
	return max(p.bytes-st.Blocks*512, 0)
}

// promisesDir is a subdirectory of a store. No layer has a name that starts with it.
const promisesDir = ".promises"

// reserve is the part of a file system that layers do not use: a sixteenth.
const reserve = 16

// share is the part of the available space that one user may use whatever the others use: a quarter. A user with more
// must leave as much to others.
const share = 4

// maxSupervisors is the maximum number of files in promisesDir.
const maxSupervisors = 1024

// openLedger opens the ledger of the file system that contains a store's directory.
func openLedger(store int, dev uint64, o Options) (*ledger, error) {
	if err := unix.Mkdirat(store, promisesDir, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: promisesDir, Err: err}
	}
	fd, err := unix.Openat(store, promisesDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: promisesDir, Err: err}
	}
	r := &ledger{
		dev: dev, dir: os.NewFile(uintptr(fd), promisesDir), name: rand.Text(), live: map[*reservation]bool{},
		reserve: o.Reserve, limits: canLimit(), log: o.Log,
	}
	if err := r.withLock(r.createFile); err != nil {
		r.dir.Close()
		return nil, err
	}
	return r, nil
}

// withLock calls f while holding the lock against reservations by other supervisors.
func (r *ledger) withLock(f func() error) error {
	fd := int(r.dir.Fd())
	for {
		err := unix.Flock(fd, unix.LOCK_EX)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock of %s: %w", promisesDir, err)
		}
	}
	defer unix.Flock(fd, unix.LOCK_UN) //nolint:errcheck // the lock is held
	return f()
}

// createFile creates this supervisor's file in promisesDir.
func (r *ledger) createFile() error {
	fd, err := unix.Openat(int(r.dir.Fd()), r.name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "create", Path: promisesDir, Err: err}
	}
	r.own = os.NewFile(uintptr(fd), r.name)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		r.own.Close()
		return fmt.Errorf("lock in %s: %w", promisesDir, err)
	}
	return nil
}

// close cancels all remaining reservations.
func (r *ledger) close() error {
	err := unix.Unlinkat(int(r.dir.Fd()), r.name, 0)
	return errors.Join(err, r.own.Close(), r.dir.Close())
}

// others returns the sum of other supervisors' reservations, and removes the files of supervisors that have ended. The
// caller holds the lock, see withLock.
func (r *ledger) others() (int64, error) {
	if _, err := r.dir.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	names, err := r.dir.Readdirnames(maxSupervisors + 1)
	if len(names) > maxSupervisors { // files of ended supervisors are removed below, so the next call may succeed
		err = fmt.Errorf("%s: more than %d supervisors", promisesDir, maxSupervisors)
	}
	var sum int64
	for _, name := range names {
		if name == r.name {
			continue
		}
		bytes, e := r.of(name)
		sum, err = sum+bytes, errors.Join(err, e)
	}
	return sum, err
}

// of returns the reservations in one file.
func (r *ledger) of(name string) (int64, error) {
	dir := int(r.dir.Fd())
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil // its owner has just ended
	}
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: promisesDir, Err: err}
	}
	defer unix.Close(fd)
	err = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
	if err == nil { // its owner has ended
		if err := unix.Unlinkat(dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return 0, &os.PathError{Op: "unlink", Path: promisesDir, Err: err}
		}
		return 0, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return 0, fmt.Errorf("lock in %s: %w", promisesDir, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("stat in %s: %w", promisesDir, err)
	}
	return st.Size, nil
}

// take reserves space for a client's layer of a size in bytes and a number of inodes; filled bytes of it are on the disk already. The
// caller must give it back.
func (r *ledger) take(c Client, bytes, inodes, filled int64) (*reservation, error) {
	p := &reservation{user: c.UID, size: bytes, bytes: bytes, filled: filled, kept: c.Kept}
	if r.limits {
		p.bytes = min(bytes, max(filled, r.reserve)+tables(bytes, inodes))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[p] = true
	err := r.withLock(func() error {
		n, err := r.needs()
		if err == nil {
			err = n.fit(c, p)
		}
		if err != nil {
			return err
		}
		return errors.Join(r.divide(n), r.publish())
	})
	if err != nil {
		delete(r.live, p)
		return nil, err
	}
	return p, nil
}

// tables returns an upper bound of what an ext4 file system has for itself: tables of inodes and bitmaps.
func tables(bytes, inodes int64) int64 { return inodes*256 + bytes/1024 + 8<<20 }

// free returns the space that layers can use, as others than this ledger's leave it. The caller holds the lock, see withLock.
func (r *ledger) free() (int64, error) {
	others, err := r.others()
	if err != nil {
		return 0, err
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(r.dir.Fd()), &st); err != nil {
		return 0, fmt.Errorf("statfs: %w", err)
	}
	return int64(st.Bavail)*st.Bsize - int64(st.Blocks)*st.Bsize/reserve - others, nil
}

// needs are what all layers of a ledger have for certain, in bytes: what running jobs may use beyond that can be taken from them.
type needs struct {
	free     int64            // what layers can use, others' than this ledger's left out
	promised int64            // of it
	filled   int64            // by layers, not free any more
	mine     map[uint32]int64 // by user: for certain, filled or not, and of kept layers
	hint     func(first string) string
}

// needs adds up what the layers need. The caller holds mu and the lock.
func (r *ledger) needs() (n needs, err error) {
	n.mine, n.hint = map[uint32]int64{}, r.hint
	kept := map[uint32]int64{}
	for p := range r.live {
		least, rest := p.least(r.reserve), p.rest()
		n.promised, n.filled = n.promised+max(least-p.bytes+rest, 0), n.filled+p.bytes-rest
		n.mine[p.user] += least
		kept[p.user] = max(kept[p.user], p.kept)
	}
	for user, bytes := range kept {
		n.mine[user] += bytes
		n.filled += bytes
	}
	n.free, err = r.free() // after reading the layers' use: data written in between then counts twice rather than not at all
	return n, err
}

// part returns what one user may use whatever the others use.
func (n needs) part() int64 { return (max(n.free, 0) + n.filled) / share }

// left returns what is free beyond what layers have for certain.
func (n needs) left() int64 { return n.free - n.promised }

// fit refuses a reservation, which the needs include, that exceeds the free space, or that leaves too little to other users.
func (n needs) fit(c Client, p *reservation) error {
	rest := p.rest()
	if n.left() < 0 {
		return fmt.Errorf("%w of %d MiB: %d MiB of the state directory's file system can be used, and %d MiB of these are reserved for other sessions\nhint: %s",
			ErrNoRoom, rest>>20, max(n.free, 0)>>20, (n.promised-rest)>>20, n.hint("end sessions"))
	}
	if part, mine := n.part(), n.mine[c.UID]; c.UID != 0 && mine > part && n.left() < part {
		return fmt.Errorf("%w of %d MiB: your layers have %d MiB of the state directory's file system, and %d MiB are left to other users\nhint: %s",
			ErrNoRoom, p.bytes>>20, (mine-p.bytes)>>20, part>>20, n.hint("end sessions, apply or discard kept changes (corral session list)"))
	}
	return nil
}

// hint says what to do about too little room.
func (r *ledger) hint(first string) string {
	if r.limits {
		return first + ", make room on that file system, or have the operator lower layers.reserve"
	}
	return first + ", ask for a smaller layer (layers.disk), or make room on that file system"
}

// publish publishes the sum of reservations to other supervisors. It includes space that layers have already filled: a job
// may delete files, and write again.
func (r *ledger) publish() error {
	var sum int64
	for p := range r.live {
		sum += p.bytes
	}
	if err := r.own.Truncate(sum); err != nil {
		return fmt.Errorf("record reservations: %w", err)
	}
	return nil
}

// mounted records the layer of a reservation, and limits it. Its file must be closed only after the reservation was given back.
func (r *ledger) mounted(p *reservation, l *Layer) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.file = l.file
	if !r.limits {
		return nil
	}
	if l.unused, err = l.keptBack(); err != nil {
		return err
	}
	p.layer = l
	return p.limit(r.reserve, 0)
}

// unmounting ends the limit of a layer that is about to be unmounted: it keeps what it has.
func (r *ledger) unmounting(p *reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.layer = nil
}

// give cancels a reservation.
func (r *ledger) give(p *reservation) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, p)
	return r.publish()
}
