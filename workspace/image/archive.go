package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// contents lists the entries of an archive that have been read.
type contents struct {
	files map[string]extent
	root  bool // it has directories of a root file system, and so is one whatever other files it has
}

// openArchive determines the kind of archive f.
func (s *Source) openArchive(f *os.File, o Options) error {
	f, size, err := s.seekable(f, o.Limits)
	if err != nil {
		return err
	}
	head := make([]byte, 6)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	c, err := look(f, size, compressed(head[:n]), o.Limits)
	if err != nil {
		return err
	}
	isLayout := !c.root && c.has(layoutFile) && c.has(indexFile)
	isDocker := !c.root && c.has(manifestFile)
	if !isLayout && !isDocker {
		s.kind = "tar archive"
		l := &layer{open: func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(f, 0, size)), nil }}
		s.write = func(w io.Writer) (Summary, error) { return flatten(w, []*layer{l}, false, o.Limits) }
		return nil
	}
	if compressed(head[:n]) {
		if f, size, err = s.decompressed(f, size, o.Limits); err != nil {
			return err
		}
		if c, err = look(f, size, false, o.Limits); err != nil {
			return err
		}
	}
	blobs := archiveBlobs{f, c.files}
	if isLayout {
		return s.openLayout(blobs, o)
	}
	return s.openDocker(blobs, o)
}

func (c *contents) has(name string) bool { _, ok := c.files[name]; return ok }

// rootNames are directories, or links to them, that root file systems have and image archives do not.
var rootNames = []string{"bin", "etc", "lib", "sbin", "usr", "var"}

// look lists the entries of an archive until it proves to be a root file system. Extents are valid only if packed is
// false.
func look(f *os.File, size int64, packed bool, limits Limits) (*contents, error) {
	section := io.NewSectionReader(f, 0, size)
	var r io.Reader = section
	if packed {
		plain, err := decompress(section)
		if err != nil {
			return nil, err
		}
		defer plain.Close()
		r = metered{plain, newMeter(limits)}
	}
	c := &contents{files: map[string]extent{}}
	m, text := newMeter(limits), 0
	err := entries(r, m, func(_ int, h *tar.Header, _ io.Reader) error {
		name := path.Clean(strings.TrimLeft(h.Name, "/"))
		if text += len(name) + len(h.Linkname); text > maxText {
			return errText
		}
		top, _, _ := strings.Cut(name, "/")
		if slices.Contains(rootNames, top) {
			c.root = true
			return errSeen
		}
		switch h.Typeflag {
		case tar.TypeReg:
			// The tar reader does not read ahead of the content, because section can seek.
			at, err := section.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			c.files[name] = extent{at: at, size: h.Size}
		case tar.TypeSymlink:
			c.files[name] = extent{link: path.Join(path.Dir(name), h.Linkname)}
		case tar.TypeLink:
			c.files[name] = extent{link: path.Clean(strings.TrimLeft(h.Linkname, "/"))}
		}
		return nil
	})
	if errors.Is(err, errSeen) {
		err = nil
	}
	return c, err
}

var errSeen = errors.New("stopped early")

// seekable returns f if it is a regular file, else a temporary copy of its contents.
func (s *Source) seekable(f *os.File, limits Limits) (*os.File, int64, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	switch {
	case info.Mode().IsRegular():
		return f, info.Size(), nil
	case info.Mode()&os.ModeNamedPipe == 0 && info.Mode()&os.ModeSocket == 0:
		return nil, 0, fmt.Errorf("%s must be a directory, a regular file or a pipe", f.Name())
	}
	return s.spool(metered{f, newMeter(limits)})
}

// decompressed returns a temporary copy of the decompressed contents of f.
func (s *Source) decompressed(f *os.File, size int64, limits Limits) (*os.File, int64, error) {
	plain, err := decompress(io.NewSectionReader(f, 0, size))
	if err != nil {
		return nil, 0, err
	}
	defer plain.Close()
	return s.spool(metered{plain, newMeter(limits)})
}

// spool copies r to an unlinked temporary file that exists until the Source is closed.
func (s *Source) spool(r io.Reader) (*os.File, int64, error) {
	f, err := os.CreateTemp("", "corral-image-*")
	if err != nil {
		return nil, 0, err
	}
	s.close = append(s.close, f)
	if err := os.Remove(f.Name()); err != nil {
		return nil, 0, err
	}
	n, err := io.Copy(f, r)
	if err != nil {
		return nil, 0, fmt.Errorf("copy to a file in %s (hint: TMPDIR selects another directory): %w", os.TempDir(), err)
	}
	return f, n, nil
}
