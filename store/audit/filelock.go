package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/flock"
)

// A lock is held while one record is written, or while the audit log is read once. A process that is stopped
// meanwhile keeps it indefinitely, so waiting for a lock has a timeout.
const (
	// lockPatience is the timeout of a writer or reader, scanPatience that of a start.
	lockPatience = 5 * time.Second
	scanPatience = 30 * time.Second
)

// A failure is an error with its own text and a cause.
type failure struct {
	Text  string
	Cause error
}

// Error returns the text.
func (f *failure) Error() string { return f.Text }

// Unwrap returns the cause.
func (f *failure) Unwrap() error { return f.Cause }

// flockUntil locks f, with how as unix.LOCK_EX or unix.LOCK_SH. If until has passed, it tries once. The error for a lock that
// another process holds names that process, and wraps unix.EAGAIN.
func flockUntil(f *os.File, how int, until time.Time) error {
	switch err := flock.Wait(context.Background(), int(f.Fd()), how, until); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return lockHeldError(f)
	case err != nil:
		return fmt.Errorf("audit: lock: %w", err)
	}
	return nil
}

// lockHeldError returns the error for a lock of f that another process holds. It wraps unix.EAGAIN.
func lockHeldError(f *os.File) error {
	pid := lockHolder(f)
	if pid == 0 {
		return &failure{fmt.Sprintf("audit: another process keeps the audit log locked\nhint: find it with fuser -v %s, and let it continue, or end it", f.Name()), unix.EAGAIN}
	}
	how := ""
	if isStopped(pid) {
		how = ", which is stopped,"
	}
	return &failure{fmt.Sprintf("audit: process %d%s keeps the audit log locked\nhint: let it continue (kill -CONT %[1]d), or end it", pid, how), unix.EAGAIN}
}

// holder returns the process that holds the lock of f, or 0 if the kernel does not report it. The kernel returns /proc/locks a
// page at a time, and a line can be missing when other locks change between two pages: holder looks again.
func lockHolder(f *os.File) int {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for range 5 {
		if pid := holderIn(string(readSome("/proc/locks", 1<<20)), file); pid != 0 {
			return pid
		}
	}
	return 0
}

// holderIn returns the process that holds the flock(2) of a file, which is given as MAJOR:MINOR:INODE, according to the text of
// /proc/locks; 0 if no line says so.
func holderIn(locks, file string) int {
	for line := range strings.Lines(locks) {
		// Format: 1: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF; waiting processes have an arrow before FLOCK.
		fields := strings.Fields(line)
		if len(fields) != 8 || fields[1] != "FLOCK" || fields[5] != file {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// stopped reports whether a process is stopped by a signal, or traced.
func isStopped(pid int) bool {
	stat := readSome(fmt.Sprintf("/proc/%d/stat", pid), 4096)
	_, state, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return found && len(state) > 0 && (state[0] == 'T' || state[0] == 't')
}

// readSome reads at most limit bytes of a file, or nothing if it cannot be read.
func readSome(path string, limit int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil
	}
	return b
}
