package host

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// applyPause is the pause between two attempts to take the lock of a repository.
const applyPause = 20 * time.Millisecond

// LockApply waits until no supervisor of the machine applies changes to a repository, and prevents it until unlock is called. The error
// is unix.EAGAIN if another one still does after patience, and the error of ctx if that is done before.
//
// The lock is on a byte of a file that root alone can open (F_OFD_SETLK, fcntl(2)): users and jobs can hold locks of whatever they can
// read, such as the repository's directory. The byte is chosen by a hash, so that no user can make a repository that has that of another
// one.
func LockApply(ctx context.Context, repo Inode, patience time.Duration) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(RunDir, "apply"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, repo.Dev), repo.Ino))
	at := unix.Flock_t{Type: unix.F_WRLCK, Whence: unix.SEEK_SET, Start: int64(binary.NativeEndian.Uint64(sum[:]) >> 2), Len: 1}
	for until := time.Now().Add(patience); ; {
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &at)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) || time.Now().After(until) {
			break
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(applyPause):
		}
	}
	f.Close()
	return nil, fmt.Errorf("lock the repository in %s: %w", f.Name(), err)
}
