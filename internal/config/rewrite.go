package config

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Rewrite has edit change the content of the file at path, nil if there is none, and puts what it returns in its place at
// once: who reads the file reads the old or the new one, also after a crash, and when there is an error it is as it was.
// Mode and group stay; a new file has mode 0600, or 0644 where o.Trusted. One process at a time changes files of a
// directory. A directory that is missing is made, if it is the user's or the operator's default one.
func Rewrite(path string, o LoadOptions, edit func(old []byte) ([]byte, error)) error {
	if o.Links {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		o.Links = false
	}
	d, err := lockDirectory(path, o)
	if err != nil {
		return err
	}
	defer d.unlock()
	var was os.FileInfo
	var old []byte
	f, err := openIn(d.file, path, o)
	switch {
	case err == nil:
		defer f.file.Close()
		t, err := f.text()
		if err != nil {
			return err
		}
		if was, err = f.file.Stat(); err != nil {
			return err
		}
		old = t.content
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	content, err := edit(old)
	if err != nil || old != nil && bytes.Equal(content, old) {
		return err
	}
	if len(content) > MaxSize {
		return fmt.Errorf("%s would have %d bytes, more than %d", path, len(content), MaxSize)
	}
	return d.replace(path, content, was, o.Trusted)
}

// lockPatience is how long another process that changes a file is waited for.
const lockPatience = 5 * time.Second

// A lockedDir is a directory that is locked. All that is done in it is done by its descriptor: a path may lead elsewhere by then.
type lockedDir struct {
	root *os.Root
	file *os.File // the same
}

func (d *lockedDir) unlock() {
	_ = d.file.Close()
	_ = d.root.Close()
}

// lockDirectory locks the directory of path, which lasts until it is unlocked or this process ends.
func lockDirectory(path string, o LoadOptions) (d *lockedDir, err error) {
	dir := filepath.Dir(path)
	switch {
	case o.User:
		err = os.MkdirAll(dir, 0o700)
	case path == DefaultPath:
		if err = os.Mkdir(dir, 0o755); errors.Is(err, os.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	d = &lockedDir{}
	if d.root, err = os.OpenRoot(dir); err != nil {
		return nil, err
	}
	if d.file, err = d.root.Open("."); err != nil {
		_ = d.root.Close()
		return nil, err
	}
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(10 * time.Millisecond) {
		err := syscall.Flock(int(d.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return d, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || time.Now().After(deadline) {
			d.unlock()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
	}
}

// replace writes a file beside path and renames it, if the one at path is still what it was.
func (d *lockedDir) replace(path string, content []byte, was os.FileInfo, public bool) (err error) {
	temporary := ".config-" + rand.Text() + ".new"
	f, err := d.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			err = errors.Join(err, d.root.Remove(temporary))
		}
	}()
	if err := dress(f, was, public); err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := d.unchanged(path, was); err != nil {
		return err
	}
	if err := d.root.Rename(temporary, filepath.Base(path)); err != nil {
		return err
	}
	return d.file.Sync()
}

// dress gives f the owner, group and mode of the file that it replaces.
func dress(f *os.File, was os.FileInfo, public bool) error {
	mode := os.FileMode(0o600)
	if public {
		mode = 0o644
	}
	if was != nil {
		mode = was.Mode().Perm()
		then, ok := was.Sys().(*syscall.Stat_t)
		info, err := f.Stat()
		if err != nil {
			return err
		}
		now, _ := info.Sys().(*syscall.Stat_t)
		if ok && (then.Uid != now.Uid || then.Gid != now.Gid) {
			if err := f.Chown(int(then.Uid), int(then.Gid)); err != nil {
				return err
			}
		}
	}
	return f.Chmod(mode) // after chown(2), which may clear bits
}

// unchanged looks for a change by who does not lock, such as an editor.
func (d *lockedDir) unchanged(path string, was os.FileInfo) error {
	is, err := d.root.Lstat(filepath.Base(path))
	switch {
	case was == nil && errors.Is(err, os.ErrNotExist):
		return nil
	case err == nil && was != nil && os.SameFile(was, is) && was.ModTime().Equal(is.ModTime()) && was.Size() == is.Size():
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	return fmt.Errorf("%s has been changed meanwhile\nhint: try again", path)
}
