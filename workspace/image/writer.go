package image

import (
	"archive/tar"
	"fmt"
	"io"
	"strings"
	"time"

	"corral/workspace/image/unpack"
)

// The set-id bits, see inode(7).
const setID = 0o6000

// A writer writes an archive in the form of package unpack, enforces the limits, and counts the entries.
type writer struct {
	tar    *tar.Writer
	limits Limits
	sum    Summary
	dpkg   *int64 // time of the directory of dpkg's settings, if the system has one without a dpkgFile
}

// A job is one user without privileges, whom dpkg refuses to install anything, and who cannot give files to others, unless it
// is told that it does not run as root (dpkg(1)).
const (
	dpkgSettings = "etc/dpkg/dpkg.cfg.d"
	dpkgFile     = dpkgSettings + "/corral"
	notRoot      = "force-not-root\n"
)

func newWriter(w io.Writer, limits Limits) *writer {
	return &writer{tar: tar.NewWriter(w), limits: limits}
}

func (w *writer) header(h *tar.Header) error {
	if h.Name == dpkgFile { // of an earlier import, for example
		w.dpkg = nil
	}
	if w.sum.Entries++; w.sum.Entries > w.limits.Entries {
		return tooMany(w.limits.Entries)
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("%.200q: %w", h.Name, err)
	}
	return nil
}

// drop counts a mode with set-id bits, which are dropped.
func (w *writer) drop(mode uint32) {
	if mode&setID != 0 {
		w.sum.SetID++
	}
}

func (w *writer) directory(name string, mode uint32, mtime int64) error {
	w.drop(mode)
	w.sum.Directories++
	if name == dpkgSettings {
		w.dpkg = &mtime
	}
	return w.header(&tar.Header{
		Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(mode & unpack.DirectoryMode), ModTime: time.Unix(mtime, 0),
	})
}

// file writes a regular file with size bytes of content.
func (w *writer) file(name string, mode uint32, mtime, size int64, content io.Reader) error {
	w.drop(mode)
	w.sum.Files++
	if size > w.limits.Bytes-w.sum.Bytes {
		return tooLarge(w.limits.Bytes)
	}
	w.sum.Bytes += size
	err := w.header(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: int64(mode & unpack.FileMode), Size: size, ModTime: time.Unix(mtime, 0),
	})
	if err != nil {
		return err
	}
	if _, err := io.CopyN(w.tar, content, size); err != nil {
		return fmt.Errorf("%.200q: %w", name, err)
	}
	return nil
}

func (w *writer) symlink(name, target string) error {
	w.sum.Symlinks++
	return w.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
}

func (w *writer) link(name, target string) error {
	w.sum.Links++
	return w.header(&tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target})
}

// end writes the end record and closes the archive.
func (w *writer) end() (Summary, error) {
	if w.sum.Entries == 0 {
		return w.sum, errEmpty
	}
	if w.dpkg != nil {
		if err := w.file(dpkgFile, 0o644, *w.dpkg, int64(len(notRoot)), strings.NewReader(notRoot)); err != nil {
			return w.sum, err
		}
	}
	if err := w.tar.WriteHeader(unpack.End(w.sum.Entries)); err != nil {
		return w.sum, err
	}
	return w.sum, w.tar.Close()
}
