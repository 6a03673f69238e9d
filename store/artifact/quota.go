package artifact

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/store/artifact/manifest"
	"corral/store/at"
)

// A usage is the total of a store's artifacts.
type usage struct{ count, bytes int64 }

// A quota tracks the usage of a store without examining each artifact: a small file, shared by all processes that
// have the store open, and locked for each commit. Each sweep corrects it.
type quota struct {
	mu sync.Mutex // guards the file within this process; flock(2) does between processes
	fd int
}

const (
	quotaName  = ".usage"
	quotaMagic = "corral 1"
	quotaSize  = len(quotaMagic) + 16
)

func (q *quota) open(dir int) (err error) {
	q.fd, err = at.Open(dir, quotaName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK)
	return err
}

func (q *quota) close() { unix.Close(q.fd) }

// lockPatience is how long a commit waits for another process's lock. A stopped process must not block others:
// without the lock only the recorded usage becomes wrong, until the next sweep.
const lockPatience = 250 * time.Millisecond

// update calls f with the usage, and records the usage that f returns. f must not return an error after it has
// changed the store.
func (q *quota) update(f func(usage) (usage, error)) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	locked := q.lock()
	u, err := f(q.read())
	if err == nil && locked {
		q.write(u)
	}
	if locked {
		_ = unix.Flock(q.fd, unix.LOCK_UN)
	}
	return err
}

func (q *quota) lock() bool {
	wait := 50 * time.Microsecond
	for until := time.Now().Add(lockPatience); ; wait = min(2*wait, 5*time.Millisecond) {
		if at.TryLock(q.fd) == nil {
			return true
		}
		if time.Now().After(until) {
			return false
		}
		time.Sleep(wait)
	}
}

// unknown is above every quota, so that the artifacts are counted.
const unknown = 1 << 62

func (q *quota) read() usage {
	var b [quotaSize]byte
	n, _ := unix.Pread(q.fd, b[:], 0)
	if n != quotaSize || string(b[:len(quotaMagic)]) != quotaMagic {
		return usage{unknown, unknown}
	}
	u := usage{int64(binary.LittleEndian.Uint64(b[8:])), int64(binary.LittleEndian.Uint64(b[16:]))}
	if u.count < 0 || u.bytes < 0 || u.count > unknown || u.bytes > unknown {
		return usage{unknown, unknown}
	}
	return u
}

func (q *quota) write(u usage) {
	b := []byte(quotaMagic)
	b = binary.LittleEndian.AppendUint64(b, uint64(max(u.count, 0)))
	b = binary.LittleEndian.AppendUint64(b, uint64(max(u.bytes, 0)))
	_, _ = unix.Pwrite(q.fd, b, 0) // the next sweep corrects an error
}

// blockSize is the approximate disk space of a directory, and the granularity of that of a file.
const blockSize = 4 << 10

func onDisk(n int64) int64 { return (n + blockSize - 1) / blockSize * blockSize }

func fileSize(dir int, name string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, at.Err("stat", name, err)
	}
	return st.Size, nil
}

// A stored describes an artifact for the quotas.
type stored struct {
	handle string
	since  time.Time // when it was committed
	bytes  int64
	owner  string // principal
}

// before reports whether a is older than b.
func before(a, b stored) bool {
	if d := a.since.Compare(b.since); d != 0 {
		return d < 0
	}
	return a.handle < b.handle
}

// artifacts returns the store's artifacts, oldest first, by the time of their commit. The time in a handle is not
// used: it is when the job began, and the output of a long job must not be old when it is stored.
func (s *Store) artifacts() ([]stored, error) { return s.listed(s.look) }

// listed returns the artifacts as described by look, oldest first.
func (s *Store) listed(look func(handle string, begun time.Time) stored) ([]stored, error) {
	all, err := at.Names(s.dir, -1)
	if err != nil {
		return nil, err
	}
	var list []stored
	for _, name := range all {
		if at, ok := manifest.ParseHandle(name); ok {
			a := look(name, at)
			a.owner = s.owner(name)
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b stored) int {
		switch {
		case before(a, b):
			return -1
		case before(b, a):
			return 1
		}
		return 0
	})
	s.owners.only(list)
	return list, nil
}

// look returns the commit time and size of an artifact whose job began at begun.
func (s *Store) look(handle string, begun time.Time) stored {
	a := stored{handle: handle, since: begun, bytes: blockSize}
	fd, err := at.Open(s.dir, handle, at.Dir)
	if err != nil {
		return a
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		a.since = time.Unix(st.Mtim.Unix())
	}
	for _, name := range manifest.Files {
		if n, err := fileSize(fd, name); err == nil {
			a.bytes += onDisk(n)
		}
	}
	return a
}

// dated is look without the size.
func (s *Store) dated(handle string, begun time.Time) stored {
	a := stored{handle: handle, since: begun}
	var st unix.Stat_t
	if unix.Fstatat(s.dir, handle, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		a.since = time.Unix(st.Mtim.Unix())
	}
	return a
}

// date records the time of a commit as the modification time of the artifact's directory, in which no file is created
// or removed any more. If it fails, the time is that of the last change in the directory.
func (s *Store) date(name string) {
	now, err := unix.TimeToTimespec(s.now())
	if err == nil {
		_ = unix.UtimesNanoAt(s.dir, name, []unix.Timespec{now, now}, unix.AT_SYMLINK_NOFOLLOW)
	}
}

// makeRoom evicts artifacts until principal can store more, see evictions; their files are removed in the background.
// The caller holds the quota's lock. It returns the remaining usage. If there is no room, it returns errShare and
// evicts nothing.
func (s *Store) makeRoom(principal string, more usage) (usage, error) {
	list, err := s.artifacts()
	if err != nil {
		return usage{}, nil // the commit will report the error
	}
	u := total(list)
	if u.count+more.count <= s.maxCount && u.bytes+more.bytes <= s.maxBytes {
		return u, nil
	}
	victims, err := s.evictions(list, principal, more)
	if err != nil {
		return u, err
	}
	for _, a := range victims {
		if _, err := s.unlink(a.handle); err == nil {
			u.count--
			u.bytes -= a.bytes
		}
	}
	s.wakeSweeper()
	return u, nil
}

// wakeSweeper makes the background goroutine remove the files of evicted artifacts and evict more if needed.
func (s *Store) wakeSweeper() {
	select {
	case s.taken <- struct{}{}:
	default:
	}
}

// crowded reports whether the quota by count is nearly reached, so that artifacts should be evicted in advance.
// Otherwise a commit would have to examine every artifact while its reply waits. With a small quota each artifact is
// kept as long as possible.
func (s *Store) crowded(u usage) bool { return s.maxCount >= 256 && u.count > s.maxCount-s.maxCount/32 }

// makeRoomAhead evicts artifacts if the quota by count is nearly reached, without blocking commits.
func (s *Store) makeRoomAhead() {
	var u usage
	if s.quota.update(func(now usage) (usage, error) { u = now; return now, nil }) != nil || !s.crowded(u) {
		return
	}
	list, err := s.listed(s.dated)
	if err != nil {
		return
	}
	if int64(len(list)) <= s.maxCount-s.maxCount/16 { // the recorded usage is wrong
		_ = s.quota.update(func(usage) (usage, error) { return s.makeRoom("", usage{}) })
		return
	}
	victims, err := s.evictions(list, "", usage{})
	if err != nil {
		return
	}
	for _, a := range victims {
		a = s.look(a.handle, a.since)
		_ = s.quota.update(func(u usage) (usage, error) {
			if mine, _ := s.unlink(a.handle); mine {
				u.count--
				u.bytes -= a.bytes
			}
			return u, nil
		})
	}
}

func total(list []stored) usage {
	u := usage{count: int64(len(list))}
	for _, a := range list {
		u.bytes += a.bytes
	}
	return u
}

// unlink renames an artifact out of readers' sight; its files must still be removed. If several processes race,
// exactly one gets mine = true.
func (s *Store) unlink(handle string) (mine bool, err error) {
	gone := gonePrefix + handle
	err = unix.Renameat(s.dir, handle, s.dir, gone)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		_ = removeDir(s.dir, gone)
		err = unix.Renameat(s.dir, handle, s.dir, gone)
	}
	if errors.Is(err, unix.ENOENT) {
		return false, nil // another process did it
	}
	return err == nil, at.Err("rename", handle, err)
}

// remove removes an artifact and its files.
func (s *Store) remove(handle string) error {
	if _, err := s.unlink(handle); err != nil {
		return err
	}
	return removeDir(s.dir, gonePrefix+handle)
}
