package artifact

import (
	"crypto/sha256"
	"crypto/subtle"

	"golang.org/x/sys/unix"

	"corral/store/artifact/spool"
)

// ownerID is the id of a gzip header subfield (RFC 1952) with a hash of the artifact's principal. The manifest has
// the principal, too, but if it is damaged, the owner must get an error and everybody else ErrNotFound.
const ownerID = "Co"

// ownerOf returns the subfield for a principal's artifact. It differs for each artifact of a principal.
func ownerOf(handle, principal string) []byte {
	sum := sha256.Sum256([]byte(handle + "\x00" + principal))
	return append([]byte{ownerID[0], ownerID[1], sha256.Size, 0}, sum[:]...)
}

// owns reports whether an artifact with an unreadable manifest belongs to r, according to its streams.
func (s *Store) owns(handle string, r *Reader) bool {
	if r.Owner {
		return true
	}
	for _, name := range [...]string{Stdout, Stderr} {
		mark, err := s.mark(handle, fileOf(name))
		if err == nil && subtle.ConstantTimeCompare(mark, ownerOf(handle, r.Principal)) == 1 {
			return true
		}
	}
	return false
}

// mark returns the owner's subfield from the header of a stream.
func (s *Store) mark(handle, file string) ([]byte, error) {
	dir, err := openat(s.dir, handle, dirFlags)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	f, err := openFile(dir, file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	gz, err := spool.Open(f)
	if err != nil {
		return nil, err
	}
	return gz.Mark(), nil
}
