package scan

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A content is the format of a file of git's that is sensitive by its content, because each commit may change it: flags
// and references by which git hides a change of the work tree, or shows something other than the commit.
type content uint8

// The formats.
const (
	noContent  content = iota
	indexFile          // index, sharedindex.*: entries that git update-index --assume-unchanged or --skip-worktree has flagged
	packedRefs         // packed-refs: references below refs/replace/
)

// contents maps names in a git directory to their format.
var contents = map[string]content{"index": indexFile, "packed-refs": packedRefs}

// sharedIndex is the prefix of files that a split index refers to: "Split index" in gitformat-index(5).
const sharedIndex = "sharedindex."

// Bounds for reading one such file.
const (
	maxContent = 256 << 20 // bytes: an index of two million files
	maxRefLine = 64 << 10
	maxHidden  = 1 << 16 // flagged entries remembered individually; of more, only the sum of their hashes is compared
)

// hidden is the set of entries that a file hides from git.
type hidden struct {
	known bool     // the file was read to its end, and is well formed
	each  []uint64 // hashes of the hidden entries, sorted; nil beyond maxHidden
	count int
	sum   uint64 // of all hashes
}

// within reports whether everything hidden by h was hidden before too. If h is unknown, it returns false.
func (h *hidden) within(before *hidden) bool {
	switch {
	case !h.known:
		return false
	case h.count == 0, before.known && h.count == before.count && h.sum == before.sum:
		return true
	case !before.known || len(h.each) != h.count || len(before.each) != before.count:
		return false
	}
	for _, v := range h.each {
		if _, ok := slices.BinarySearch(before.each, v); !ok {
			return false
		}
	}
	return true
}

func (h *hidden) add(v uint64) {
	h.count++
	h.sum += v
	if h.count > maxHidden {
		h.each = nil
		return
	}
	h.each = append(h.each, v)
}

// A reading parses one file's content.
type reading struct {
	r    *bufio.Reader
	left int64 // bytes not yet read
	seed maphash.Seed
	over func() bool
	h    hidden
}

// errContent is returned for a file that is malformed, or too large to be read in time.
var errContent = errors.New("scan: malformed file of git")

// hides reads the content of the regular file f, of size bytes. It calls over from time to time, and stops when that
// returns true.
func hides(f io.ReaderAt, size int64, c content, seed maphash.Seed, over func() bool) hidden {
	if size > maxContent {
		return hidden{}
	}
	if c == packedRefs {
		r := newReading(f, size, seed, over)
		return r.result(r.refs())
	}
	// Object names have 20 or 32 bytes; only the configuration says which. Try both and use the result that is valid.
	var both hidden
	for _, name := range []int{20, 32} {
		r := newReading(f, size, seed, over)
		h := r.result(r.index(name))
		if !h.known {
			continue
		}
		if both.known && both.count > 0 && h.count > 0 { // crafted to be valid in both formats
			return hidden{}
		}
		if !both.known || h.count > 0 {
			both = h
		}
	}
	return both
}

func newReading(f io.ReaderAt, size int64, seed maphash.Seed, over func() bool) *reading {
	return &reading{r: bufio.NewReaderSize(io.NewSectionReader(f, 0, size), maxRefLine), left: size, seed: seed, over: over}
}

func (r *reading) result(err error) hidden {
	if err != nil {
		return hidden{}
	}
	slices.Sort(r.h.each)
	r.h.known = true
	return r.h
}

// take returns the next n bytes, at most maxRefLine. They are valid until the next call.
func (r *reading) take(n int) ([]byte, error) {
	if r.over() {
		return nil, errContent
	}
	b, err := r.r.Peek(n)
	if err != nil {
		return nil, errContent
	}
	_, _ = r.r.Discard(n) // they are in the buffer
	r.left -= int64(n)
	return b, nil
}

// until returns the bytes before the next end byte, and skips that.
func (r *reading) until(end byte) ([]byte, error) {
	if r.over() {
		return nil, errContent
	}
	b, err := r.r.ReadSlice(end)
	if err != nil {
		return nil, errContent
	}
	r.left -= int64(len(b))
	return b[:len(b)-1], nil
}

func (r *reading) skip(n int64) error {
	if n > r.left {
		return errContent
	}
	for n > 0 {
		part, err := r.take(int(min(n, maxRefLine)))
		if err != nil {
			return err
		}
		n -= int64(len(part))
	}
	return nil
}

// refs parses packed-refs: a line for each reference, with its object first (refs/packed-backend.c).
func (r *reading) refs() error {
	for r.left > 0 {
		line, err := r.until('\n')
		if err != nil {
			return err
		}
		// git accepts any white space, not only a blank, after an object's name of 40 or 64 digits.
		name := bytes.TrimLeft(line, "0123456789abcdefABCDEF")
		if len(name) > 0 && isSpace(name[0]) && bytes.HasPrefix(name[1:], []byte("refs/replace/")) {
			r.h.add(maphash.Bytes(r.seed, line))
		}
	}
	return nil
}

// isSpace is git's isspace (sane-ctype.h), which excludes vertical tab and form feed; here these count too.
func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// Flags of an index entry, and of its extended flags: gitformat-index(5).
const (
	assumeValid  = 0x8000
	extended     = 0x4000
	skipWorktree = 0x4000
)

// index parses an index whose object names have name bytes. It reads to the end of the file, as otherwise the file might
// pass with the wrong name size.
func (r *reading) index(name int) error {
	head, err := r.take(12)
	if err != nil || string(head[:4]) != "DIRC" {
		return errContent
	}
	version, entries := binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[8:])
	if version < 2 || version > 4 {
		return errContent
	}
	last := []byte(nil) // path of the previous entry, for version 4
	for n := range entries {
		if last, err = r.entry(version, name, n, last); err != nil {
			return err
		}
	}
	for r.left > int64(name) { // extensions, then a checksum
		head, err := r.take(8)
		if err != nil {
			return err
		}
		if err := r.skip(int64(binary.BigEndian.Uint32(head[4:]))); err != nil {
			return err
		}
	}
	return r.skip(int64(name))
}

// entry parses the nth entry and returns its path.
func (r *reading) entry(version uint32, name int, n uint32, last []byte) ([]byte, error) {
	const statSize = 40 // times, device, inode, mode, owners and size
	fixed, err := r.take(statSize + name + 2)
	if err != nil {
		return nil, err
	}
	// A file, a link, a submodule or, in a sparse index, a directory.
	switch mode := binary.BigEndian.Uint32(fixed[24:]); mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFLNK, unix.S_IFDIR, unix.S_IFDIR | unix.S_IFLNK:
	case 0: // deletions and replacements in a split index
	default:
		return nil, errContent
	}
	flags, size, more := binary.BigEndian.Uint16(fixed[len(fixed)-2:]), len(fixed), uint16(0)
	if flags&extended != 0 {
		b, err := r.take(2)
		if err != nil || version < 3 {
			return nil, errContent
		}
		more, size = binary.BigEndian.Uint16(b), size+2
	}
	path, err := r.path(version, size, last)
	if err != nil {
		return nil, err
	}
	if flags&assumeValid == 0 && more&skipWorktree == 0 {
		return path, nil
	}
	var h maphash.Hash
	h.SetSeed(r.seed)
	h.Write(path)
	if len(path) == 0 { // an entry of a split index, identified by its position
		h.Write(binary.BigEndian.AppendUint32(nil, n))
	}
	h.Write([]byte{0, byte(flags >> 15), byte(more >> 14 & 1)})
	r.h.add(h.Sum64())
	return path, nil
}

// path parses the path of an entry after its first size bytes.
func (r *reading) path(version uint32, size int, last []byte) ([]byte, error) {
	if version < 4 {
		path, err := r.until(0)
		if err != nil {
			return nil, err
		}
		path = bytes.Clone(path)
		return path, r.skip(int64(7 - (size+len(path))%8)) // entries are padded to a multiple of 8 bytes, with at least one NUL
	}
	drop, err := r.varint()
	if err != nil || drop > uint64(len(last)) {
		return nil, errContent
	}
	rest, err := r.until(0)
	if err != nil {
		return nil, err
	}
	return append(last[:len(last)-int(drop)], rest...), nil
}

// varint parses an offset in the format of git's varint.c.
func (r *reading) varint() (uint64, error) {
	v := uint64(0)
	for n := 0; ; n++ {
		b, err := r.take(1)
		if err != nil || n > 8 {
			return 0, errContent
		}
		v = v<<7 | uint64(b[0]&0x7f)
		if b[0]&0x80 == 0 {
			return v, nil
		}
		v++
	}
}

// hides reads the hidden entries of the file f in the directory dir, if due is set or f may have changed since it was
// last read. st is its state. A file that cannot be opened or is not regular has unknown content. written reports that
// some process has the file open for writing; a store through mapped memory is not an event, so the pass then does not
// count everything as watched.
func (w *walk) hides(dir int, f *file, st *stat, due bool) (read, written bool) {
	due = due || w.reread
	if !due && w.s.events.seen[f.wd] == 0 { // writing requires an open(2), which would be an event
		return false, false
	}
	due = due || w.s.events.seen[f.wd] != unix.IN_OPEN
	fd, err := -1, error(unix.EINVAL)
	if st.is(unix.S_IFREG) {
		fd, err = w.openContent(dir, f.name, st)
		known := false
		if err == nil {
			written, known = writers(fd)
		}
		if !known || written {
			w.gaps, due = true, true
		}
	}
	if err != nil {
		if due {
			f.hidden = hidden{}
		}
		return due, false
	}
	opened := os.NewFile(uintptr(fd), f.name)
	defer opened.Close()
	if !due {
		return false, false
	}
	f.hidden = hidden{}
	if now, err := fstat(fd); err == nil {
		f.hidden = hides(opened, now.size, f.content, w.s.seed, w.overdue)
	}
	return true, written
}

var errReplaced = errors.New("scan: a file of git was replaced")

// openContent opens the file name in the directory dir for reading. The watch ignores the scanner's own open(2), or each
// pass would cause the next one.
func (w *walk) openContent(dir int, name string, st *stat) (int, error) {
	if e := w.s.events; e.on() {
		path, err := openFile(dir, name, unix.O_PATH)
		if err != nil {
			return -1, err
		}
		defer unix.Close(path)
		if now, err := fstat(path); err != nil || now.id != st.id || e.ignoreOpens(path) == 0 {
			return -1, errReplaced
		}
		defer func() {
			if e.content(path) == 0 {
				w.gaps = true
			}
		}()
	}
	// Non-blocking: the file may have become a FIFO, or another process may hold a lease.
	fd, err := openFile(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return -1, err
	}
	if now, err := fstat(fd); err != nil || now.id != st.id || !now.is(unix.S_IFREG) {
		unix.Close(fd)
		return -1, errReplaced
	}
	return fd, nil
}

func openFile(dir int, name string, access uint64) (int, error) {
	return unix.Openat2(dir, name, &unix.OpenHow{
		Flags: access | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS |
			unix.RESOLVE_NO_XDEV,
	})
}

// writers reports whether any process has the file open for writing, including a descriptor in a socket and a mapping of
// a closed file: the kernel then grants no read lease (fcntl(2)). Only the file's owner may request a lease; known is
// false if the request failed otherwise.
func writers(fd int) (some, known bool) {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	if err != nil {
		return errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EAGAIN)
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK) // on failure, closing the descriptor ends the lease
	return false, true
}

// HidesMore reports whether a new version of a file of git's hides something from git that the old one, nil if there is
// none, does not: see [Rules.Hides]. If a version is not a regular file or cannot be read, it returns true. It calls over
// from time to time, and gives up when that returns true.
func (h Hiding) HidesMore(old, new *os.File, over func() bool) bool {
	seed := maphash.MakeSeed()
	read := func(f *os.File) hidden {
		if f == nil {
			return hidden{known: true}
		}
		st, err := fstat(int(f.Fd()))
		if err != nil || !st.is(unix.S_IFREG) {
			return hidden{}
		}
		return hides(f, st.size, h.content, seed, over)
	}
	before, now := read(old), read(new)
	return !now.within(&before)
}

// Hiding is the way in which a file of git's may hide something from git. The zero value is none.
type Hiding struct{ content content }

// Any reports whether the file may hide anything.
func (h Hiding) Any() bool { return h.content != noContent }
