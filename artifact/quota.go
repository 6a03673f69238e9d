package artifact

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A usage is what the artifacts of a store are together.
type usage struct{ count, bytes int64 }

// A quota knows the usage of a store without looking at each artifact: it is in a small file that the processes which
// have the store open share, and lock for each commit. What it says is put right by each sweep.
type quota struct {
	mu sync.Mutex // guards the file in this process; flock(2) is between processes
	fd int
}

const (
	quotaName  = ".usage"
	quotaMagic = "corral 1"
	quotaSize  = len(quotaMagic) + 16
)

func (q *quota) open(dir int) (err error) {
	q.fd, err = openat(dir, quotaName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK)
	return err
}

func (q *quota) close() { unix.Close(q.fd) }

// lockPatience is how long a commit waits for another process. One that was stopped holds up nobody: its own usage is
// wrong until the next sweep, and that is all.
const lockPatience = 250 * time.Millisecond

// with calls f with the usage, and writes down what f makes of it. f must not fail after it has made something.
func (q *quota) with(f func(usage) (usage, error)) error {
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
		if tryLock(q.fd) == nil {
			return true
		}
		if time.Now().After(until) {
			return false
		}
		time.Sleep(wait)
	}
}

// unknown is more than any quota, so that the artifacts are counted.
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
	_, _ = unix.Pwrite(q.fd, b, 0) // what is wrong is put right by the next sweep
}

// blockSize is what a directory, and the last block of a file, takes on a disk, about.
const blockSize = 4 << 10

func onDisk(n int64) int64 { return (n + blockSize - 1) / blockSize * blockSize }

func fileSize(dir int, name string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, errName("stat", name, err)
	}
	return st.Size, nil
}

// A stored is an artifact as quotas see it.
type stored struct {
	handle string
	since  time.Time // when it became one
	bytes  int64
	owner  string // its principal
}

// before says whether a is older than b.
func before(a, b stored) bool {
	if d := a.since.Compare(b.since); d != 0 {
		return d < 0
	}
	return a.handle < b.handle
}

// artifacts returns those of the store, the oldest first: by when they were committed. A handle has the time at which its
// job began, and what a long job wrote is not old when it ends.
func (s *Store) artifacts() ([]stored, error) { return s.listed(s.look) }

// listed returns them as look sees each.
func (s *Store) listed(look func(handle string, begun time.Time) stored) ([]stored, error) {
	all, err := names(s.dir, -1)
	if err != nil {
		return nil, err
	}
	var list []stored
	for _, name := range all {
		if at, ok := made(name); ok {
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

// look looks at the artifact of a handle, whose job began at begun.
func (s *Store) look(handle string, begun time.Time) stored {
	a := stored{handle: handle, since: begun, bytes: blockSize}
	fd, err := openat(s.dir, handle, dirFlags)
	if err != nil {
		return a
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		a.since = time.Unix(st.Mtim.Unix())
	}
	for _, name := range fileNames {
		if n, err := fileSize(fd, name); err == nil {
			a.bytes += onDisk(n)
		}
	}
	return a
}

// dated is look without its size.
func (s *Store) dated(handle string, begun time.Time) stored {
	a := stored{handle: handle, since: begun}
	var st unix.Stat_t
	if unix.Fstatat(s.dir, handle, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		a.since = time.Unix(st.Mtim.Unix())
	}
	return a
}

// date writes down when an artifact is committed, as the time of its directory, in which nothing is made or removed any
// more. Without it that is when the job began.
func (s *Store) date(name string) {
	now, err := unix.TimeToTimespec(s.now())
	if err == nil {
		_ = unix.UtimesNanoAt(s.dir, name, []unix.Timespec{now, now}, unix.AT_SYMLINK_NOFOLLOW)
	}
}

// makeRoom takes artifacts away until principal can store more, see evictions; their files are removed in the background.
// The caller holds the quota. It returns what is left. It is errShare, and nothing is taken away, if there is no room.
func (s *Store) makeRoom(principal string, more usage) (usage, error) {
	list, err := s.artifacts()
	if err != nil {
		return usage{}, nil // what is wrong with the directory, the commit will find out
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
		if _, err := s.take(a.handle); err == nil {
			u.count--
			u.bytes -= a.bytes
		}
	}
	s.tell()
	return u, nil
}

// tell has what is in the background look after artifacts that were taken away, and after room for more.
func (s *Store) tell() {
	select {
	case s.taken <- struct{}{}:
	default:
	}
}

// crowded says whether the quota by count is so near that room is to be made ahead. A commit that has to make it looks at
// every artifact while its reply waits. Of few artifacts each is kept as long as it may be.
func (s *Store) crowded(u usage) bool { return s.maxCount >= 256 && u.count > s.maxCount-s.maxCount/32 }

// makeRoomAhead takes artifacts away when the quota by count is near: commits go on meanwhile.
func (s *Store) makeRoomAhead() {
	var u usage
	if s.quota.with(func(now usage) (usage, error) { u = now; return now, nil }) != nil || !s.crowded(u) {
		return
	}
	list, err := s.listed(s.dated)
	if err != nil {
		return
	}
	if int64(len(list)) <= s.maxCount-s.maxCount/16 { // the usage is wrong
		_ = s.quota.with(func(usage) (usage, error) { return s.makeRoom("", usage{}) })
		return
	}
	victims, err := s.evictions(list, "", usage{})
	if err != nil {
		return
	}
	for _, a := range victims {
		a = s.look(a.handle, a.since)
		_ = s.quota.with(func(u usage) (usage, error) {
			if mine, _ := s.take(a.handle); mine {
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

// take makes an artifact one that there is not, for whoever looks for it. Its files are still to be removed. Of several that
// take the same one it is one's.
func (s *Store) take(handle string) (mine bool, err error) {
	gone := gonePrefix + handle
	err = unix.Renameat(s.dir, handle, s.dir, gone)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		_ = removeDir(s.dir, gone)
		err = unix.Renameat(s.dir, handle, s.dir, gone)
	}
	if errors.Is(err, unix.ENOENT) {
		return false, nil // somebody else did
	}
	return err == nil, errName("rename", handle, err)
}

// remove removes an artifact.
func (s *Store) remove(handle string) error {
	if _, err := s.take(handle); err != nil {
		return err
	}
	return removeDir(s.dir, gonePrefix+handle)
}
