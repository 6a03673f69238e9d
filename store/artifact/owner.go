package artifact

import (
	"crypto/subtle"

	"golang.org/x/sys/unix"

	"corral/store/artifact/manifest"
	"corral/store/artifact/spool"
	"corral/store/at"
)

// owns reports whether an artifact with an unreadable manifest belongs to r, according to its streams.
func (s *Store) owns(handle string, r *Reader) bool {
	if r.Owner {
		return true
	}
	for _, name := range [...]string{Stdout, Stderr} {
		mark, err := s.mark(handle, manifest.FileOf(name))
		if err == nil && subtle.ConstantTimeCompare(mark, manifest.Mark(handle, r.Principal)) == 1 {
			return true
		}
	}
	return false
}

// mark returns the owner's subfield from the header of a stream.
func (s *Store) mark(handle, file string) ([]byte, error) {
	dir, err := at.Open(s.dir, handle, at.Dir)
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
