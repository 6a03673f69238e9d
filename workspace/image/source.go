package image

import (
	"errors"
	"io"
)

// A Source is an opened root file system.
type Source struct {
	kind  string
	write func(io.Writer) (Summary, error)
	close []io.Closer
}

// Kind returns "directory", "tar archive", "docker archive" or "OCI layout".
func (s *Source) Kind() string { return s.kind }

// Write writes the archive. It may be called once. After an error the archive has no end record, so package unpack
// refuses it.
func (s *Source) Write(w io.Writer) (Summary, error) { return s.write(w) }

// Close closes all files of the Source.
func (s *Source) Close() error {
	var err error
	for _, c := range s.close {
		err = errors.Join(err, c.Close())
	}
	return err
}
