package edit

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/flock"
)

// lockTime is how long an edit waits for another one in the same directory.
const lockTime = 10 * time.Second

// A file is a file that was read.
type file struct {
	shown   string // path, relative to the repository
	content []byte
	fd      *os.File
	st      unix.Stat_t
}

// errChanged reports that another program changed the file between reading and writing.
var errChanged = errors.New("another program changed the file during the edit")

// lock waits until no other edit works in the directory. If another program holds the lock for longer, the edit goes on without it, and
// under a name of its own: any program that can read the directory can hold the lock.
func (p *place) lock() error {
	switch err := flock.Wait(context.Background(), p.dir, unix.LOCK_EX, time.Now().Add(lockTime)); {
	case errors.Is(err, unix.EWOULDBLOCK):
		var own [8]byte
		_, _ = rand.Read(own[:]) // crypto/rand.Read never fails
		p.temporary = fmt.Sprintf(".corral-apply-%x.0", own)
	case err != nil:
		return fmt.Errorf("lock the directory of %s: %w", p.shown(), err)
	}
	return nil
}

// edit replaces the content of the file by what plan makes of it, and reports the difference. plan gets nil if there is no
// file. If another program changes the file meanwhile, plan gets the file again, a few times.
func (p *place) edit(plan func(f *file) ([]change, error)) (report string, err error) {
	for range 5 {
		if report, err = p.once(plan); !errors.Is(err, errChanged) {
			return report, err
		}
	}
	return "", fmt.Errorf("%s: %w, several times: nothing was changed", p.shown(), err)
}

func (p *place) once(plan func(f *file) ([]change, error)) (report string, err error) {
	f, err := p.read()
	if err != nil {
		return "", err
	}
	if f != nil {
		defer f.fd.Close()
	}
	list, err := plan(f)
	if err != nil {
		return "", err
	}
	var old []byte
	if f != nil {
		old = f.content
	}
	content := rewrite(old, list)
	switch {
	case len(content) > MaxFile:
		return "", fmt.Errorf("%s would have %d bytes, the maximum is %d", p.shown(), len(content), MaxFile)
	case f != nil && bytes.Equal(old, content):
		return "", fmt.Errorf("the edit would not change %s: old and new are the same", p.shown())
	}
	notes, err := p.write(f, content)
	if err != nil {
		return "", err
	}
	return describe(p.shown(), f == nil, old, list) + notes, nil
}

// read reads the file. It returns nil if there is none.
func (p *place) read() (*file, error) {
	shown := p.shown()
	var st, opened unix.Stat_t
	switch err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == unix.ENOENT:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", shown, err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fmt.Errorf("%s is not a regular file, and only files can be edited", shown)
	case st.Size > MaxFile:
		return nil, fmt.Errorf("%s has %d bytes, and an edit reads at most %d: use a command", shown, st.Size, MaxFile)
	}
	// Should it have become a FIFO, O_NONBLOCK keeps the call from waiting for a writer.
	fd, err := unix.Openat(p.dir, p.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", shown, err)
	}
	f := &file{shown: shown, fd: os.NewFile(uintptr(fd), shown)}
	if err = unix.Fstat(fd, &opened); err == nil && opened.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errChanged
	}
	if err == nil {
		f.st = opened
		f.content, err = readAll(f.fd)
	}
	if err == nil {
		err = f.check(p)
	}
	if err != nil {
		f.fd.Close()
		return nil, err
	}
	return f, nil
}

// check refuses a file that cannot be edited as text.
func (f *file) check(p *place) error {
	switch {
	case len(f.content) > MaxFile:
		return fmt.Errorf("%s has more than %d bytes, which is the maximum of an edit: use a command", f.shown, MaxFile)
	case bytes.IndexByte(f.content, 0) >= 0:
		return fmt.Errorf("%s is binary (it has a NUL byte), and only text can be edited", f.shown)
	}
	if err := unix.Faccessat(p.dir, p.name, unix.W_OK, 0); err != nil {
		return fmt.Errorf("%s cannot be written (mode %04o): %w", f.shown, f.st.Mode&0o7777, err)
	}
	return nil
}

// readAll reads at most one byte more than MaxFile.
func readAll(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, MaxFile+1)) }

// write gives the file its new content. f is nil if there is none yet. It returns notes for the client: what of the file
// could not be kept.
func (p *place) write(f *file, content []byte) (notes string, err error) {
	_ = unix.Unlinkat(p.dir, p.temporary, 0) // left over, see temporary
	mode := uint32(0o666)
	if f != nil {
		mode = 0o600
	}
	fd, err := unix.Openat(p.dir, p.temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return "", fmt.Errorf("create a file beside %s: %w", p.shown(), err)
	}
	t := os.NewFile(uintptr(fd), p.temporary)
	defer t.Close()
	if _, err = t.Write(content); err == nil && f != nil {
		notes, err = f.inherit(t)
	}
	if err == nil {
		err = t.Sync()
	}
	if err == nil {
		err = p.place(f)
	}
	if errors.Is(err, errKept) {
		return "", fmt.Errorf("%s: %w; one of its versions is in %s", p.shown(), err, p.putAside())
	}
	if err != nil {
		_ = unix.Unlinkat(p.dir, p.temporary, 0)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.shown(), err)
	}
	if err := unix.Fsync(p.dir); err != nil {
		return "", fmt.Errorf("%s was changed, but its directory was not synced: %w", p.shown(), err)
	}
	if f != nil {
		_ = unix.Unlinkat(p.dir, p.temporary, 0) // the old content
	}
	return notes, nil
}

// errKept reports that the temporary file has to stay, because it may have the only copy of what another program wrote.
var errKept = errors.New("another program changed the file twice during the edit")

// maxAside is the maximum number of versions of one file that are put aside.
const maxAside = 100

// putAside gives the temporary file a name that no later edit removes, and that changes of a session include, and returns it.
func (p *place) putAside() string {
	for n := range maxAside {
		name := fmt.Sprintf("%s.version-%d", p.name, n+1)
		if unix.Renameat2(p.dir, p.temporary, p.dir, name, unix.RENAME_NOREPLACE) == nil {
			return name
		}
	}
	return p.temporary
}

// place makes the temporary file the file. Both exchange their names, and then the temporary one must be what was read.
// Otherwise it is what another program has just written, and they exchange their names again.
func (p *place) place(f *file) error {
	if f == nil {
		err := unix.Renameat2(p.dir, p.temporary, p.dir, p.name, unix.RENAME_NOREPLACE)
		if err == unix.EEXIST {
			return errChanged
		}
		return err
	}
	if err := p.exchange(); err != nil {
		return err
	}
	if p.holds(f.content) {
		return nil
	}
	var mine, now unix.Stat_t
	if err := unix.Fstatat(p.dir, p.name, &mine, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return errKept
	}
	if err := p.exchange(); err != nil {
		return errKept
	}
	if err := unix.Fstatat(p.dir, p.temporary, &now, unix.AT_SYMLINK_NOFOLLOW); err != nil || now.Ino != mine.Ino {
		return errKept
	}
	return errChanged
}

func (p *place) exchange() error {
	return unix.Renameat2(p.dir, p.temporary, p.dir, p.name, unix.RENAME_EXCHANGE)
}

// holds reports whether the temporary file is a regular file with that content.
func (p *place) holds(content []byte) bool {
	fd, err := unix.Openat(p.dir, p.temporary, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), p.temporary)
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(content)) {
		return false
	}
	now, err := readAll(f)
	return err == nil && bytes.Equal(now, content)
}
