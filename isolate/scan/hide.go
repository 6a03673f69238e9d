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

// A content is the form of a file of git's that each commit may change, so that it is sensitive by what is in it: flags and
// references by which git does not show what is in the work tree, or shows something else than what was committed.
type content uint8

// The forms.
const (
	noContent  content = iota
	indexFile          // index, sharedindex.*: entries that git update-index --assume-unchanged or --skip-worktree has flagged
	packedRefs         // packed-refs: references below refs/replace/
)

// contents says which names of a git directory have one.
var contents = map[string]content{"index": indexFile, "packed-refs": packedRefs}

// sharedIndex begins the names of the files that a split index refers to: "Split index" in gitformat-index(5).
const sharedIndex = "sharedindex."

// Bounds of what is read of one such file.
const (
	maxContent = 256 << 20 // bytes: an index of two million files
	maxRefLine = 64 << 10
	maxHidden  = 1 << 16 // flagged entries that are remembered one by one; of more, that they are others is all that is seen
)

// hidden is what a file hides from git.
type hidden struct {
	known bool     // the file was read to its end, and is one
	each  []uint64 // hashes of what is hidden, sorted; nil beyond maxHidden
	count int
	sum   uint64 // of all hashes
}

// within says whether nothing is hidden by h that was not hidden before. Of what is not known the answer is no.
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

// A reading is the reading of one file's content.
type reading struct {
	r    *bufio.Reader
	left int64 // bytes of the file
	seed maphash.Seed
	over func() bool
	h    hidden
}

// errContent is a file that is not what its name says, or too large to be read in time.
var errContent = errors.New("scan: a file of git's that cannot be read")

// hides reads the content of the regular file f, of size bytes. over is asked now and then whether the time is up.
func hides(f io.ReaderAt, size int64, c content, seed maphash.Seed, over func() bool) hidden {
	if size > maxContent {
		return hidden{}
	}
	if c == packedRefs {
		r := newReading(f, size, seed, over)
		return r.result(r.refs())
	}
	// Names of objects have 20 or 32 bytes; which, only the configuration says. What either reading finds counts.
	var both hidden
	for _, name := range []int{20, 32} {
		r := newReading(f, size, seed, over)
		h := r.result(r.index(name))
		if !h.known {
			continue
		}
		if both.known && both.count > 0 && h.count > 0 { // a file made to be read in two ways
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

// take returns the next n bytes, at most maxRefLine, valid until the next call.
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

// until returns the bytes up to the next end, without it.
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

// refs reads packed-refs: a line for each reference, its object first (refs/packed-backend.c).
func (r *reading) refs() error {
	for r.left > 0 {
		line, err := r.until('\n')
		if err != nil {
			return err
		}
		// git takes any white space for the one blank after an object's name, of 40 or 64 digits.
		name := bytes.TrimLeft(line, "0123456789abcdefABCDEF")
		if len(name) > 0 && isSpace(name[0]) && bytes.HasPrefix(name[1:], []byte("refs/replace/")) {
			r.h.add(maphash.Bytes(r.seed, line))
		}
	}
	return nil
}

// isSpace is git's isspace (sane-ctype.h), which knows no vertical tab and no form feed; these are counted too.
func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// The flags of an entry of an index, and of its second word: gitformat-index(5).
const (
	assumeValid  = 0x8000
	extended     = 0x4000
	skipWorktree = 0x4000
)

// index reads an index whose objects have names of so many bytes. It goes on to the end of the file, or another reading might be
// taken for one.
func (r *reading) index(name int) error {
	head, err := r.take(12)
	if err != nil || string(head[:4]) != "DIRC" {
		return errContent
	}
	version, entries := binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[8:])
	if version < 2 || version > 4 {
		return errContent
	}
	last := []byte(nil) // path of the entry before, of version 4
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

// entry reads one entry, the nth, and returns its path.
func (r *reading) entry(version uint32, name int, n uint32, last []byte) ([]byte, error) {
	const statSize = 40 // times, device, inode, mode, owners and size
	fixed, err := r.take(statSize + name + 2)
	if err != nil {
		return nil, err
	}
	// A file, a link, a submodule or, in a sparse index, a directory.
	switch mode := binary.BigEndian.Uint32(fixed[24:]); mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFLNK, unix.S_IFDIR, unix.S_IFDIR | unix.S_IFLNK:
	case 0: // a split index's deletions and replacements
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
	if len(path) == 0 { // one of a split index, known by its place
		h.Write(binary.BigEndian.AppendUint32(nil, n))
	}
	h.Write([]byte{0, byte(flags >> 15), byte(more >> 14 & 1)})
	r.h.add(h.Sum64())
	return path, nil
}

// path reads the path of an entry that has had size bytes so far.
func (r *reading) path(version uint32, size int, last []byte) ([]byte, error) {
	if version < 4 {
		path, err := r.until(0)
		if err != nil {
			return nil, err
		}
		path = bytes.Clone(path)
		return path, r.skip(int64(7 - (size+len(path))%8)) // entries are of eights, with one NUL or more
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

// varint reads an offset as git's varint.c writes it.
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

// hides reads what the file f in the directory dir hides, if that is due or may be something else than was read last. st is its
// state. What cannot be opened or is no regular file is not known. written says that somebody has the file open for writing.
// What they do with mapped memory is no event: nothing counts as watched then.
func (w *walk) hides(dir int, f *file, st *stat, due bool) (read, written bool) {
	due = due || w.reread
	if !due && w.s.events.seen[f.wd] == 0 { // who wants to write to it must open it
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

var errReplaced = errors.New("scan: a file of git's is another one by now")

// openContent opens the file name in the directory dir for reading. That the scanner opens it is no event, or each pass would bring
// about the next one.
func (w *walk) openContent(dir int, name string, st *stat) (int, error) {
	if e := w.s.events; e.on() {
		path, err := openFile(dir, name, unix.O_PATH)
		if err != nil {
			return -1, err
		}
		defer unix.Close(path)
		if now, err := fstat(path); err != nil || now.id != st.id || e.deafen(path) == 0 {
			return -1, errReplaced
		}
		defer func() {
			if e.content(path) == 0 {
				w.gaps = true
			}
		}()
	}
	// Not to wait for a FIFO that it has become, nor for the holder of a lease.
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

// writers says whether somebody has the file open for writing, a descriptor in a socket and a mapping of a closed one included: then
// the kernel grants no lease for reading (fcntl(2)). Only the file's owner may ask.
func writers(fd int) (some, known bool) {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	if err != nil {
		return errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EAGAIN)
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK) // else it ends with the descriptor
	return false, true
}

// HidesMore says whether a new version of a file of git's hides something from git that the old one, nil if there is none, does
// not: see [Rules.Hides]. Of a version that is not a regular file, or cannot be read, the answer is yes. over is asked now and then
// whether to give up.
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

// Hiding is how a file of git's may hide something from git. The zero value is none.
type Hiding struct{ content content }

// Any says whether there is a way.
func (h Hiding) Any() bool { return h.content != noContent }
