package unpack

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrFull is wrapped in the error if the file system is full.
var ErrFull = errors.New("no room")

// An unpacker unpacks one archive into a directory.
type unpacker struct {
	archive *tar.Reader
	root    *os.Root
	dirs    []directory
	known   map[string]struct{} // the names of dirs
	names   int                 // bytes of these names
	in      *os.Root            // the directory of the last entry, which most often is that of the next too
	inName  string
	buffer  []byte
	totals  Totals
}

// A directory is one that was created, with the attributes to set when it is complete.
type directory struct {
	name  string
	mode  uint32
	mtime unix.Timespec
}

// Unpack fills dir, which must be empty, from the archive r, and reads r to its end. Nobody else may write to dir
// meanwhile.
//
// The error names the invalid entry. It wraps ErrFull if the file system is full. Entries that were created before
// the error remain.
func Unpack(r io.Reader, dir string) (Totals, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Totals{}, err
	}
	defer root.Close() //nolint:errcheck // only used for lookups
	if err := checkEmpty(root); err != nil {
		return Totals{}, err
	}
	stream := bufio.NewReaderSize(r, 256<<10)
	u := &unpacker{
		archive: tar.NewReader(stream), root: root, known: map[string]struct{}{"": {}}, in: root, buffer: make([]byte, 64<<10),
	}
	err = u.entries()
	if u.in != root {
		_ = u.in.Close()
	}
	if err == nil {
		err = u.finish()
	}
	if _, more := stream.ReadByte(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("the archive has data after its end")
	}
	return u.totals, u.explain(err)
}

func checkEmpty(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	names, err := f.Readdirnames(1)
	if len(names) > 0 {
		return fmt.Errorf("the directory must be empty, but contains %q", names[0])
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// entries unpacks all entries of the archive, until the last.
func (u *unpacker) entries() error {
	for {
		h, err := u.archive.Next()
		if errors.Is(err, io.EOF) {
			return errors.New("the archive is truncated: it has no end record")
		}
		if err != nil {
			return fmt.Errorf("read the archive after %d entries: %w", u.totals.Entries, err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			return u.end(h)
		}
		if u.totals.Entries++; u.totals.Entries > MaxEntries {
			return fmt.Errorf("more than %d entries", MaxEntries)
		}
		if err := u.entry(h); err != nil {
			return fmt.Errorf("%.200q: %w", h.Name, err)
		}
	}
}

func (u *unpacker) end(h *tar.Header) error {
	if got, want := h.PAXRecords[endRecord], strconv.FormatInt(u.totals.Entries, 10); got != want {
		return fmt.Errorf("the archive ends after %s entries, but its end record says %.40q", want, got)
	}
	if _, err := u.archive.Next(); !errors.Is(err, io.EOF) {
		return errors.New("the archive has data after its end")
	}
	return nil
}

func (u *unpacker) entry(h *tar.Header) error {
	name := h.Name
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	dir, base, err := Split(name)
	if err != nil {
		return err
	}
	if err := u.enter(dir); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(name, base, h)
	case tar.TypeReg:
		if sparse(h) {
			return errors.New("sparse files are refused: their size has no bound in the archive")
		}
		return u.file(base, h)
	case tar.TypeSymlink:
		return u.symlink(base, h.Linkname)
	case tar.TypeLink:
		return u.link(name, h.Linkname)
	}
	return fmt.Errorf("unsupported entry type %q", h.Typeflag)
}

// sparse reports whether the content of a file may be larger than its data in the archive.
func sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// enter opens dir as the directory of the next entry.
func (u *unpacker) enter(dir string) error {
	if dir == u.inName {
		return nil
	}
	if _, ok := u.known[dir]; !ok {
		return fmt.Errorf("its directory %.200q is not an earlier entry of the archive", dir)
	}
	next := u.root
	if dir != "" {
		var err error
		if next, err = u.root.OpenRoot(dir); err != nil {
			return err
		}
	}
	if u.in != u.root {
		_ = u.in.Close()
	}
	u.in, u.inName = next, dir
	return nil
}

// directory creates a directory that its user may write to. finish sets its mode.
func (u *unpacker) directory(name, base string, h *tar.Header) error {
	if u.names += len(name); u.names > maxNames {
		return fmt.Errorf("the names of directories have more than %d bytes in total", maxNames)
	}
	if err := u.in.Mkdir(base, 0o700); err != nil {
		return err
	}
	u.known[name] = struct{}{}
	u.dirs = append(u.dirs, directory{name, uint32(h.Mode) & DirectoryMode, timestamp(h)})
	u.totals.Directories++
	return nil
}

func (u *unpacker) file(base string, h *tar.Header) error {
	f, err := u.in.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = u.fill(f, h.Size)
	if err == nil {
		err = seal(f, uint32(h.Mode)&FileMode, timestamp(h))
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	u.totals.Files++
	return err
}

// fill writes the content of a file. Blocks of zeros become holes, so that sparse files do not use up the quota.
func (u *unpacker) fill(f *os.File, size int64) error {
	var at int64
	for at < size {
		n, err := io.ReadFull(u.archive, u.buffer[:min(int64(len(u.buffer)), size-at)])
		if err != nil {
			return err
		}
		if !zero(u.buffer[:n]) {
			if _, err := f.WriteAt(u.buffer[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		u.totals.Bytes += int64(n)
	}
	return f.Truncate(size)
}

func zero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

func (u *unpacker) symlink(base, target string) error {
	if err := CheckTarget(target); err != nil {
		return err
	}
	u.totals.Symlinks++
	return u.in.Symlink(target, base)
}

// link creates an additional name of an existing file.
func (u *unpacker) link(name, target string) error {
	dir, _, err := Split(target)
	if err != nil {
		return fmt.Errorf("a hard link to %w", err)
	}
	if _, ok := u.known[dir]; !ok {
		return fmt.Errorf("a hard link to %.200q, whose directory is not an earlier entry of the archive", target)
	}
	info, err := u.root.Lstat(target)
	if err != nil {
		return fmt.Errorf("a hard link to a missing file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("a hard link to %.200q, which is not a regular file", target)
	}
	u.totals.Links++
	return u.root.Link(target, name)
}

// finish sets the modes and times of directories, in reverse order, because the contents of a directory without
// search permission cannot be reached.
func (u *unpacker) finish() error {
	for n := len(u.dirs) - 1; n >= 0; n-- {
		d := u.dirs[n]
		f, err := u.root.OpenFile(d.name, os.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		err = seal(f, d.mode, d.mtime)
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("%.200q: %w", d.name, err)
		}
	}
	return nil
}

// seal sets mode and time of f, after which f must not be written.
func seal(f *os.File, mode uint32, mtime unix.Timespec) error {
	fd := int(f.Fd())
	if err := unix.Fchmod(fd, mode); err != nil {
		return fmt.Errorf("chmod: %w", err)
	}
	if err := unix.UtimesNanoAt(fd, "", []unix.Timespec{mtime, mtime}, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("utimensat: %w", err)
	}
	return nil
}

// timestamp returns the time of h in whole seconds. A time that file systems cannot store becomes 1970.
func timestamp(h *tar.Header) unix.Timespec {
	s := h.ModTime.Unix()
	if s < 0 || s > math.MaxUint32 {
		s = 0
	}
	return unix.Timespec{Sec: s}
}

// explain adds to an error of a full file system whether bytes or files are exhausted: a layer is a file system of a
// fixed size.
func (u *unpacker) explain(err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	what := "bytes"
	var s unix.Statfs_t
	if dir, openErr := u.root.Open("."); openErr == nil {
		if unix.Fstatfs(int(dir.Fd()), &s) == nil && s.Files > 0 && s.Ffree == 0 {
			what = "files"
		}
		_ = dir.Close()
	}
	return fmt.Errorf("%w for more %s, after %d entries and %d bytes: %w", ErrFull, what, u.totals.Entries, u.totals.Bytes, err)
}
