package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/flock"
	"corral/store/at"
)

// lockTimeout bounds the wait for a process that opens or purges a base.
const lockTimeout = 10 * time.Second

// lockDir locks the directory, so that no other process creates, opens or removes a base. Closing dir releases the lock.
func lockDir(ctx context.Context, dir int) error {
	switch err := flock.Wait(ctx, dir, unix.LOCK_EX, time.Now().Add(lockTimeout)); {
	case err == nil:
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%s has been locked by another process for %v", dirName, lockTimeout)
	case errors.Is(err, ctx.Err()):
		return err
	default:
		return at.Err("lock", dirName, err)
	}
}

// lockedDir opens and locks the directory of bases. Closing it releases the lock. It returns errNone if it does not
// exist.
func lockedDir(ctx context.Context, state int) (int, error) {
	dir, err := openDir(state, false)
	if err != nil {
		return -1, err
	}
	if err := lockDir(ctx, dir); err != nil {
		closeFD(dir)
		return -1, err
	}
	return dir, nil
}

func unlockDir(dir int) { _ = unix.Flock(dir, unix.LOCK_UN) }

// lockRange locks or unlocks a byte of an open file against other open file descriptions (fcntl(2), F_OFD_SETLK), without
// waiting. The lock is released with the description, also when the process is killed.
func lockRange(fd int, kind int16, at int64) bool {
	l := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: at, Len: 1}
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &l) == nil
}
