package flock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// twice opens a new file twice: flock(2) keeps the two descriptions apart, as it does those of two processes.
func twice(t *testing.T) (a, b int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	var fds [2]int
	for i := range fds {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		fds[i] = int(f.Fd())
	}
	return fds[0], fds[1]
}

func TestTry(t *testing.T) {
	a, b := twice(t)
	for _, tt := range []struct {
		what    string
		fd, how int
		want    error
	}{
		{"a free file", a, unix.LOCK_SH, nil},
		{"a shared lock beside another", b, unix.LOCK_SH, nil},
		{"an exclusive lock beside a shared one", b, unix.LOCK_EX, unix.EWOULDBLOCK},
		{"no file", -1, unix.LOCK_EX, unix.EBADF},
	} {
		if err := Try(tt.fd, tt.how); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.what, err, tt.want)
		}
	}
}

// TestTryAfterClose: a lock ends with its descriptor.
func TestTryAfterClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for range 2 {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := Try(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Error(err)
		}
		f.Close()
	}
}

// TestWait: a wait ends when the holder releases the lock, and not later than until or the end of the context.
func TestWait(t *testing.T) {
	a, b := twice(t)
	synctest.Test(t, func(t *testing.T) {
		if err := Wait(t.Context(), a, unix.LOCK_EX, time.Time{}); err != nil {
			t.Fatalf("a free file, once: %v", err)
		}
		begun := time.Now()
		if err := Wait(t.Context(), b, unix.LOCK_EX, begun.Add(time.Minute)); !errors.Is(err, unix.EWOULDBLOCK) || time.Since(begun) != time.Minute {
			t.Errorf("a held lock: %v after %v", err, time.Since(begun))
		}
		begun = time.Now()
		if err := Wait(t.Context(), b, unix.LOCK_EX, begun); !errors.Is(err, unix.EWOULDBLOCK) || time.Since(begun) != 0 {
			t.Errorf("without time: %v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := Wait(ctx, b, unix.LOCK_EX, begun.Add(time.Minute)); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("a context that ends: %v after %v", err, time.Since(begun))
		}
		begun = time.Now()
		time.AfterFunc(time.Second, func() { _ = unix.Flock(a, unix.LOCK_UN) })
		if err := Wait(t.Context(), b, unix.LOCK_EX, begun.Add(time.Minute)); err != nil || time.Since(begun) > time.Second+lastPause {
			t.Errorf("a lock that is released: %v after %v", err, time.Since(begun))
		}
	})
	if err := Wait(t.Context(), -1, unix.LOCK_EX, time.Now().Add(time.Hour)); !errors.Is(err, unix.EBADF) {
		t.Errorf("no file: %v", err)
	}
}
