package artifact

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/flock"
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
	locked := flock.Wait(context.Background(), q.fd, unix.LOCK_EX, time.Now().Add(lockPatience)) == nil
	u, err := f(q.read())
	if err == nil && locked {
		q.write(u)
	}
	if locked {
		_ = unix.Flock(q.fd, unix.LOCK_UN)
	}
	return err
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
