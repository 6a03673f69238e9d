package layer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"golang.org/x/sys/unix"

	"corral/job"
	"corral/workspace/changes/stream"
)

// A digest identifies the changes that a walk has seen, to detect changes that a job made after a review. It is the
// SHA-256 of the changes in the order of the walk: path, kind, types, permissions, size and link of each, and the
// SHA-256 of a file's content. The contents of a deleted directory are not included, whether they are listed or not.
//
// All methods of a nil *digest do nothing.
type digest struct {
	sum hash.Hash
	// each has what an apply copies, by path: it checks its copy against that. nil for a list.
	each map[string]reviewed
}

// A reviewed is a file or link whose digest was calculated.
type reviewed struct {
	mode    uint32 // of a file
	link    string // target of a link
	content [sha256.Size]byte
}

// digestFormat is hashed first, so that digests of another format differ.
const digestFormat = "corral changes 1\n"

func newDigest() *digest {
	d := &digest{sum: sha256.New()}
	d.sum.Write([]byte(digestFormat)) // a hash never returns an error
	return d
}

// result returns the digest, zero if d is nil or the walk is not whole.
func (d *digest) result(whole bool) (r stream.Digest) {
	if d != nil && whole {
		d.sum.Sum(r[:0])
	}
	return r
}

// text adds a string with its length, so that different sequences of strings have different encodings.
func (d *digest) text(s string) {
	d.number(uint64(len(s)))
	d.sum.Write([]byte(s))
}

func (d *digest) number(n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	d.sum.Write(b[:])
}

// digest adds a change to the digest. If its content cannot be read, the walk is incomplete.
func (w *walk) digest(c *change) {
	d := w.sum
	if d == nil || c.at.gone || c.kind == "" {
		return
	}
	d.text(c.path)
	d.text(string(c.kind))
	for _, st := range []*unix.Stat_t{c.l, c.u} {
		if st == nil {
			d.text("")
			continue
		}
		d.text(string(typeOf(st)))
	}
	if c.u == nil {
		return
	}
	if !isLink(c.u) {
		d.number(uint64(c.u.Mode & permissions))
	}
	d.text(c.link)
	r := reviewed{mode: c.u.Mode & permissions, link: c.link}
	if isFile(c.u) && (c.kind != job.ChangeMode || d.each != nil) {
		var ok bool
		if r.content, ok = w.hashContent(c); !ok {
			w.miss(c.path, false)
		}
	}
	if d.each != nil {
		d.each[c.path] = r
	}
	if isFile(c.u) && c.kind != job.ChangeMode {
		d.number(uint64(c.u.Size))
		d.sum.Write(r.content[:])
	}
}

// digestBlock is the unit in bytes in which contents are hashed. Blocks of zeros are omitted: the file system may
// turn them into holes when it writes them, and a file of a terabyte may consist of them.
const digestBlock = 64 << 10

// hashContent hashes a file of the layer, within the walk's bounds.
func (w *walk) hashContent(c *change) (sum [sha256.Size]byte, ok bool) {
	fd, st, err := c.at.upper.file(c.name)
	if err != nil {
		return sum, false
	}
	defer unix.Close(fd)
	sum, ok = w.hashFile(fd, st)
	return sum, ok && st.Size == c.u.Size
}

func (w *walk) hashFile(fd int, st *unix.Stat_t) (sum [sha256.Size]byte, ok bool) {
	h := sha256.New()
	buf, zeros := make([]byte, digestBlock+8), make([]byte, digestBlock)
	for at := nextData(fd, 0, st.Size); at < st.Size; at = nextData(fd, at, st.Size) {
		at -= at % digestBlock
		n := int(min(st.Size-at, digestBlock))
		if w.bytes -= int64(n); w.over() || w.bytes < 0 || !readAt(fd, buf[8:8+n], at) {
			return sum, false
		}
		if !bytes.Equal(buf[8:8+n], zeros[:n]) {
			binary.LittleEndian.PutUint64(buf, uint64(at))
			h.Write(buf[:8+n])
		}
		at += digestBlock
	}
	h.Sum(sum[:0])
	return sum, true
}
