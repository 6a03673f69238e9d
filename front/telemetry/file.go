package telemetry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// maxFile is the maximum size of a file of spans in bytes.
const maxFile = 64 << 20

// A file appends spans to a file, which several processes may share. A file is used by one goroutine.
type file struct {
	path     string
	maxBytes int64 // 0 means maxFile
	f        *os.File
}

// Write implements io.Writer. The file is created by the first Write; after an error the next Write tries again.
func (w *file) Write(line []byte) (int, error) {
	if err := w.room(int64(len(line))); err != nil {
		return 0, err
	}
	return w.f.Write(line)
}

// room opens the file, and rotates it if it has no room for n bytes.
func (w *file) room(n int64) error {
	if w.f == nil {
		return w.open()
	}
	limit := w.maxBytes
	if limit == 0 {
		limit = maxFile
	}
	info, err := w.f.Stat()
	if err != nil || info.Size()+n <= limit {
		return err
	}
	if at, err := os.Lstat(w.path); err == nil && os.SameFile(info, at) { // otherwise another process has rotated it
		if err := os.Rename(w.path, w.path+".1"); err != nil {
			return err
		}
	}
	_ = w.f.Close()
	w.f = nil
	return w.open()
}

// open creates the file or opens it for appending. O_NONBLOCK avoids waiting for the reader of a FIFO; the file is
// checked before it is written: one that other users can write to, or that has another link, must not be appended to.
func (w *file) open() error {
	if err := checkDirectory(filepath.Dir(w.path)); err != nil {
		return err
	}
	f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return fmt.Errorf("%s is a symbolic link\nhint: name the file itself", w.path)
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkWritable(w.path, info)
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	w.f = f
	return nil
}

// checkWritable returns an error unless the file is regular, belongs to this user or root, is writable only by its
// owner, and has one link.
func checkWritable(path string, info os.FileInfo) error {
	if err := checkOwner(path, info); err != nil {
		return err
	}
	switch st, ok := info.Sys().(*syscall.Stat_t); {
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s is writable by group or others (mode %04o)\nhint: chmod go-w %s", path, info.Mode().Perm(), path)
	case !ok || st.Nlink != 1:
		return fmt.Errorf("%s has more than one hard link\nhint: name a file with a single link", path)
	}
	return nil
}

// checkDirectory returns an error if any user can replace files in dir.
func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0 {
		err = fmt.Errorf("files in %s can be replaced by any user (mode %04o)\nhint: chmod o-w %s", dir, info.Mode().Perm(), dir)
	}
	return err
}
