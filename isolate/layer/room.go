package layer

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
)

// A ledger accounts for the space to which layers may still grow. Their files are sparse: reserved space must be available
// when it is used, or a session that fills its layer would fill the host's disk.
//
// The stores of one file system share a ledger. Other supervisors learn of the reservations from a file each in
// promisesDir, which its owner keeps locked: the file's size is the sum of its owner's reservations, so it uses no block
// of a full disk.
type ledger struct {
	dev  uint64
	dir  *os.File // promisesDir; locked while a reservation is made
	own  *os.File // size is the sum of this ledger's reservations
	name string   // of own's file

	mu   fault.Mutex
	live map[*reservation]bool // guarded by mu
}

// A reservation is the space that one layer may use on the host's disk.
type reservation struct {
	user   uint32
	bytes  int64
	filled int64    // bytes already on the disk, before file is set
	file   *os.File // guarded by the ledger's mu: the mounted file
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
func openLedger(store int, dev uint64) (*ledger, error) {
	if err := unix.Mkdirat(store, promisesDir, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: promisesDir, Err: err}
	}
	fd, err := unix.Openat(store, promisesDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: promisesDir, Err: err}
	}
	r := &ledger{dev: dev, dir: os.NewFile(uintptr(fd), promisesDir), name: rand.Text(), live: map[*reservation]bool{}}
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

// take reserves space for a client's layer of a size in bytes; filled bytes of it are on the disk already. The caller must
// give it back.
func (r *ledger) take(c Client, bytes, filled int64) (*reservation, error) {
	p := &reservation{user: c.UID, bytes: bytes, filled: filled}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.withLock(func() error {
		others, err := r.others()
		if err != nil {
			return err
		}
		if err := r.fits(c, p, others); err != nil {
			return err
		}
		r.live[p] = true
		if err := r.publish(); err != nil {
			delete(r.live, p)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// fits refuses a reservation that exceeds the free space, or that leaves too little to other users.
func (r *ledger) fits(c Client, p *reservation, others int64) error {
	promised, mine, layers := others, c.Kept, c.Kept
	for q := range r.live {
		rest := q.rest()
		promised, layers = promised+rest, layers+q.bytes-rest
		if q.user == c.UID {
			mine += q.bytes
		}
	}
	var st unix.Statfs_t // after reading the layers' use: data written in between then counts twice rather than not at all
	if err := unix.Fstatfs(int(r.dir.Fd()), &st); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	free := int64(st.Bavail)*st.Bsize - int64(st.Blocks)*st.Bsize/reserve
	rest := p.rest()
	left := free - promised - rest
	if left < 0 {
		return fmt.Errorf("%w of %d MiB: %d MiB of the state directory's file system can be used, and %d MiB of these are reserved for other sessions\nhint: end sessions, ask for a smaller layer, or make room",
			ErrNoRoom, rest>>20, max(free, 0)>>20, promised>>20)
	}
	part := (max(free, 0) + layers) / share
	if c.UID != 0 && mine+p.bytes > part && left < part {
		return fmt.Errorf("%w of %d MiB: your layers have %d MiB of the state directory's file system, and %d MiB are left to other users\nhint: end sessions, apply or discard kept changes (corral session list), or ask for a smaller layer",
			ErrNoRoom, p.bytes>>20, mine>>20, part>>20)
	}
	return nil
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

// mounted records the file of a layer with a reservation. It must be closed only after the reservation was given back.
func (r *ledger) mounted(p *reservation, file *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.file = file
}

// give cancels a reservation.
func (r *ledger) give(p *reservation) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, p)
	return r.publish()
}
