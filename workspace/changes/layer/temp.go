package layer

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Names of temporary files are this prefix, 16 hex digits unique to the run, a dot and a number.
const tempPrefix = ".corral-apply-"

const tempDigits = 16

// isTemp reports whether a name is that of a temporary file. Such names are reserved: a file with one is never a
// change, and the next apply removes it.
func isTemp(name string) bool {
	rest, ok := strings.CutPrefix(name, tempPrefix)
	if !ok || len(rest) < tempDigits+2 || rest[tempDigits] != '.' {
		return false
	}
	_, err := strconv.ParseUint(rest[:tempDigits], 16, 64)
	_, err2 := strconv.ParseUint(rest[tempDigits+1:], 10, 64)
	return err == nil && err2 == nil
}

// temps creates the temporary files of one apply.
type temps struct {
	run  string
	next int
}

func newTemps() *temps {
	var b [tempDigits / 2]byte
	_, _ = rand.Read(b[:]) // never returns an error
	return &temps{run: hex.EncodeToString(b[:])}
}

// A temp is a file or link under a temporary name.
type temp struct {
	at     *dir
	name   string
	fd     int // of a file, else -1
	placed bool
}

func (t *temps) name() string {
	t.next++
	return tempPrefix + t.run + "." + strconv.Itoa(t.next)
}

func (t *temps) file(d *dir) (*temp, error) {
	name := t.name()
	fd, err := d.openat(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create a temporary file beside it: %w", err)
	}
	return &temp{at: d, name: name, fd: fd}, nil
}

func (t *temps) link(d *dir, to string) (*temp, error) {
	name := t.name()
	if err := unix.Symlinkat(to, d.fd, name); err != nil {
		return nil, fmt.Errorf("create a temporary link beside it: %w", err)
	}
	return &temp{at: d, name: name, fd: -1}, nil
}

// setTime sets the modification time.
func (t *temp) setTime(mtime unix.Timespec) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, mtime}
	if err := unix.UtimesNanoAt(t.at.fd, t.name, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set its time: %w", err)
	}
	return nil
}

// discard closes a temporary file, and removes it unless it was renamed.
func (t *temp) discard() {
	if t.fd >= 0 {
		unix.Close(t.fd)
	}
	if !t.placed {
		_ = unix.Unlinkat(t.at.fd, t.name, 0) // on an error, the next apply removes it
	}
}
