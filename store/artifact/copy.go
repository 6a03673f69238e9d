package artifact

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// Copy writes the streams of an artifact as they are stored, stdout first. Each stream is verified before any of it
// is written. A nil writer skips its stream.
func (s *Store) Copy(r Reader, handle string, stdout, stderr io.Writer) error {
	a, err := s.find(handle, &r)
	if err != nil {
		return err
	}
	defer a.Close()
	for _, to := range []struct {
		name string
		io.Writer
	}{{Stdout, stdout}, {Stderr, stderr}} {
		if to.Writer == nil {
			continue
		}
		if err := read(context.Background(), a, a.Manifest.Stream(to.name), io.Discard); err != nil {
			return err
		}
		if err := read(context.Background(), a, a.Manifest.Stream(to.name), to.Writer); err != nil {
			return err
		}
	}
	return nil
}

// Stream writes a stream, Stdout or Stderr, as it is stored. It verifies the stream while writing it: if it returns
// an error, the bytes written must not be used. Errors are those of Query.
func (s *Store) Stream(ctx context.Context, r Reader, handle, stream string, w io.Writer) error {
	if stream != Stdout && stream != Stderr {
		return fmt.Errorf("%q is not a stream: must be stdout or stderr", stream)
	}
	a, err := s.find(handle, &r)
	if err != nil {
		return err
	}
	defer a.Close()
	return read(ctx, a, a.Manifest.Stream(stream), w)
}

// Find returns the manifest of an artifact. Errors are those of Query.
func (s *Store) Find(ctx context.Context, r Reader, handle string) (*Manifest, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a, err := s.find(handle, &r)
	if err != nil {
		return nil, err
	}
	a.Close()
	return a.Manifest, nil
}

// CopyLines writes lines of a stream as they are stored, by their numbers in a Query. The stream is verified before
// any of it is written.
func (s *Store) CopyLines(r Reader, handle string, lines Range, w io.Writer) error {
	a, err := s.find(handle, &r)
	if err != nil {
		return err
	}
	defer a.Close()
	k := a.Manifest.Stream(lines.Stream)
	if err := read(context.Background(), a, k, io.Discard); err != nil {
		return err
	}
	return read(context.Background(), a, k, &gapReader{to: &lineFilter{w: w, lines: lines, n: 1}, gap: k.Gap})
}

// List returns at most limit artifacts that r may read now, newest first.
func (s *Store) List(r Reader, limit int) ([]*Manifest, error) {
	if s == nil {
		return nil, nil
	}
	all, err := s.disk.List()
	if err != nil {
		return nil, err
	}
	var list []*Manifest
	for _, e := range slices.Backward(all) {
		if len(list) >= limit {
			break
		}
		if a, err := s.find(e.Handle, &r); err == nil { // otherwise it is another principal's, expired, damaged or gone
			a.Close()
			list = append(list, a.Manifest)
		}
	}
	return list, nil
}
