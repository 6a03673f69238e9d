// Package flock locks open files and directories (flock(2)) with a limit of time.
package flock

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of the pauses between two attempts. Most locks are held while a record or a small file is written.
const (
	firstPause = 100 * time.Microsecond
	lastPause  = 5 * time.Millisecond
)

// Try locks an open file or directory, with how as unix.LOCK_EX or unix.LOCK_SH, until the descriptor is closed or the process
// ends. It does not wait: the error is unix.EWOULDBLOCK if another one holds the lock.
func Try(fd, how int) error {
	for {
		if err := unix.Flock(fd, how|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Wait is Try, but waits for the lock until the time until. If that has passed, it tries once. The error is unix.EWOULDBLOCK
// if another one still holds the lock then, and the error of ctx if that is done before. Anyone who can open the file can lock
// it, or be stopped while holding the lock, so each wait has a limit. Wait polls, because flock(2) has no timeout other than
// signals, which belong to the program.
func Wait(ctx context.Context, fd, how int, until time.Time) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := Try(fd, how)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		left := time.Until(until)
		if left <= 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(pause, left)):
		}
	}
}
