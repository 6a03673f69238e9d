package layer

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A room counts what layers may still grow to. Their files have holes: what is promised must be there when it is wanted,
// or one session's full disk is the host's.
//
// The stores of one file system share a room. Other supervisors are told by a file each in promisesDir, which its owner
// holds a lock of: its size is what its owner promised, hence it takes no block of a full disk.
type room struct {
	dev  uint64
	dir  *os.File // promisesDir; a lock of it is held while something is promised
	own  *os.File // what this room promised
	name string   // of own

	mu   sync.Mutex
	live map[*promise]bool // guarded by mu
}

// A promise is what one layer may come to take of the host's disk.
type promise struct {
	user   uint32
	bytes  int64
	filled int64    // of them, before file is set
	file   *os.File // guarded by the room's mu: the mounted one
}

// rest is how much the layer may still grow.
func (p *promise) rest() int64 {
	var st unix.Stat_t
	if p.file == nil {
		return max(p.bytes-p.filled, 0)
	}
	if unix.Fstat(int(p.file.Fd()), &st) != nil {
		return p.bytes
	}
	return max(p.bytes-st.Blocks*512, 0)
}

// promisesDir lies in the directory of a store. No layer has a name that begins so.
const promisesDir = ".promises"

// reserve is the part of a file system that layers leave alone: a sixteenth.
const reserve = 16

// share is the part of what can be promised that one user may have whatever the others have: a quarter. Who has more leaves
// as much to others.
const share = 4

// maxSupervisors bounds the files in promisesDir.
const maxSupervisors = 1024

// openRoom opens the room of the file system that a store's directory is on.
func openRoom(store int, dev uint64) (*room, error) {
	if err := unix.Mkdirat(store, promisesDir, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: promisesDir, Err: err}
	}
	fd, err := unix.Openat(store, promisesDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: promisesDir, Err: err}
	}
	r := &room{dev: dev, dir: os.NewFile(uintptr(fd), promisesDir), name: rand.Text(), live: map[*promise]bool{}}
	if err := r.alone(r.appear); err != nil {
		r.dir.Close()
		return nil, err
	}
	return r, nil
}

// alone calls f while no other supervisor promises anything.
func (r *room) alone(f func() error) error {
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
	defer unix.Flock(fd, unix.LOCK_UN) //nolint:errcheck // it is held
	return f()
}

// appear makes the file for others.
func (r *room) appear() error {
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

// close takes back what is promised yet.
func (r *room) close() error {
	err := unix.Unlinkat(int(r.dir.Fd()), r.name, 0)
	return errors.Join(err, r.own.Close(), r.dir.Close())
}

// others is what other supervisors promised, in all. Files of those that have ended are removed. The caller is alone.
func (r *room) others() (int64, error) {
	if _, err := r.dir.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	names, err := r.dir.Readdirnames(maxSupervisors + 1)
	if len(names) > maxSupervisors { // those that have ended are gone the next time
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

// of reads one file.
func (r *room) of(name string) (int64, error) {
	dir := int(r.dir.Fd())
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil // it ended now
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

// take promises a layer of bytes for a client, of which filled are on the disk already. The caller must give it back.
func (r *room) take(c Client, bytes, filled int64) (*promise, error) {
	p := &promise{user: c.UID, bytes: bytes, filled: filled}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.alone(func() error {
		others, err := r.others()
		if err != nil {
			return err
		}
		if err := r.fits(c, p, others); err != nil {
			return err
		}
		r.live[p] = true
		if err := r.tell(); err != nil {
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

// fits refuses a promise that could not be kept, or that leaves too little to other users.
func (r *room) fits(c Client, p *promise, others int64) error {
	promised, mine, layers := others, c.Kept, c.Kept
	for q := range r.live {
		rest := q.rest()
		promised, layers = promised+rest, layers+q.bytes-rest
		if q.user == c.UID {
			mine += q.bytes
		}
	}
	var st unix.Statfs_t // after what layers take of it: what is written meanwhile counts twice, and not never
	if err := unix.Fstatfs(int(r.dir.Fd()), &st); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	free := int64(st.Bavail)*st.Bsize - int64(st.Blocks)*st.Bsize/reserve
	rest := p.rest()
	left := free - promised - rest
	if left < 0 {
		return fmt.Errorf("%w of %d MiB: %d MiB of the state directory's file system can be used, of which %d MiB are promised to other sessions\nhint: end sessions, ask for a smaller layer, or make room",
			ErrNoRoom, rest>>20, max(free, 0)>>20, promised>>20)
	}
	part := (max(free, 0) + layers) / share
	if c.UID != 0 && mine+p.bytes > part && left < part {
		return fmt.Errorf("%w of %d MiB: layers of yours have %d MiB of the state directory's file system, and %d MiB are left to other users\nhint: end sessions, apply or discard kept changes (corral session list), or ask for a smaller layer",
			ErrNoRoom, p.bytes>>20, mine>>20, part>>20)
	}
	return nil
}

// tell lets other supervisors know. What layers have filled already is told, too: a job may remove it, and write again.
func (r *room) tell() error {
	var sum int64
	for p := range r.live {
		sum += p.bytes
	}
	if err := r.own.Truncate(sum); err != nil {
		return fmt.Errorf("what is promised: %w", err)
	}
	return nil
}

// mounted notes the file in which a promised layer is. It is closed after the promise was given back.
func (r *room) mounted(p *promise, file *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.file = file
}

// give takes a promise back.
func (r *room) give(p *promise) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, p)
	return r.tell()
}
