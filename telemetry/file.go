package telemetry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// maxFile is how many bytes a file of spans has.
const maxFile = 64 << 20

// A file is one that spans are added to. Several processes may add to one. It is used by one goroutine.
type file struct {
	path string
	most int64 // bytes; 0 is maxFile
	f    *os.File
}

// Write implements io.Writer. Nothing is made before the first one; after an error the next one tries again.
func (w *file) Write(line []byte) (int, error) {
	if err := w.room(int64(len(line))); err != nil {
		return 0, err
	}
	return w.f.Write(line)
}

// room opens the file, and another one when it is full.
func (w *file) room(n int64) error {
	if w.f == nil {
		return w.open()
	}
	most := w.most
	if most == 0 {
		most = maxFile
	}
	info, err := w.f.Stat()
	if err != nil || info.Size()+n <= most {
		return err
	}
	if at, err := os.Lstat(w.path); err == nil && os.SameFile(info, at) { // else another process has done it
		if err := os.Rename(w.path, w.path+".1"); err != nil {
			return err
		}
	}
	_ = w.f.Close()
	w.f = nil
	return w.open()
}

// open makes the file or adds to it. It is opened without waiting, and looked at before it is written: what is no file, as
// a FIFO, could wait for a reader, and what others can write to, or have a name for, is not this program's to add to.
func (w *file) open() error {
	if err := apart(filepath.Dir(w.path)); err != nil {
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
		err = own(w.path, info)
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	w.f = f
	return nil
}

// own refuses a file that is not this user's or root's alone to write.
func own(path string, info os.FileInfo) error {
	if err := trusted(path, info); err != nil {
		return err
	}
	switch st, ok := info.Sys().(*syscall.Stat_t); {
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written by others (mode %04o)\nhint: chmod go-w %s", path, info.Mode().Perm(), path)
	case !ok || st.Nlink != 1:
		return fmt.Errorf("%s has other names, where it may be another's\nhint: name a file of its own", path)
	}
	return nil
}

// trusted refuses what is no file, or one of a user who is neither this one nor root.
func trusted(path string, info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", path)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user\nhint: chown it, or name another file", path)
	}
	return nil
}

// apart refuses a directory in which everybody can put another file in the place of one.
func apart(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0 {
		err = fmt.Errorf("everybody can replace files of %s (mode %04o)\nhint: chmod o-w %s", dir, info.Mode().Perm(), dir)
	}
	return err
}
