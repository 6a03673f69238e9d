package artifact

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"corral/store/artifact/spool"
)

// Copy writes the streams of an artifact as they are stored, stdout first. Each stream is verified before any of it
// is written. A nil writer skips its stream.
func (s *Store) Copy(r Reader, handle string, stdout, stderr io.Writer) error {
	m, dir, err := s.find(handle, &r)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	for _, to := range []struct {
		name string
		io.Writer
	}{{Stdout, stdout}, {Stderr, stderr}} {
		if to.Writer == nil {
			continue
		}
		if err := s.read(context.Background(), dir, handle, m.Stream(to.name), io.Discard); err != nil {
			return err
		}
		if err := s.read(context.Background(), dir, handle, m.Stream(to.name), to.Writer); err != nil {
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
	m, dir, err := s.find(handle, &r)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return s.read(ctx, dir, handle, m.Stream(stream), w)
}

// Find returns the manifest of an artifact. Errors are those of Query.
func (s *Store) Find(ctx context.Context, r Reader, handle string) (*Manifest, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, dir, err := s.find(handle, &r)
	if err != nil {
		return nil, err
	}
	unix.Close(dir)
	return m, nil
}

// CopyLines writes lines of a stream as they are stored, by their numbers in a Query. The stream is verified before
// any of it is written.
func (s *Store) CopyLines(r Reader, handle string, lines Range, w io.Writer) error {
	m, dir, err := s.find(handle, &r)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	k := m.Stream(lines.Stream)
	if err := s.read(context.Background(), dir, handle, k, io.Discard); err != nil {
		return err
	}
	return s.read(context.Background(), dir, handle, k, &lineFilter{w: w, lines: lines, n: 1, gap: k.Gap})
}

// A lineFilter writes the lines of a range to w.
type lineFilter struct {
	w     io.Writer
	lines Range
	n     int64 // number of the line that begins or continues next
	at    int64
	gap   *spool.Gap // not yet reached; nil if there is none
	after int64
}

func (f *lineFilter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part := rest
		if f.gap != nil {
			part = rest[:min(int64(len(rest)), f.ahead())]
		}
		if err := f.pass(part); err != nil {
			return 0, err
		}
		rest = rest[len(part):]
	}
	return len(p), nil
}

// ahead returns the number of bytes, at least one, until the gap begins or its marker ends.
func (f *lineFilter) ahead() int64 {
	if f.at == f.gap.Offset {
		f.after = f.n + f.gap.Lines
	}
	if f.at < f.gap.Offset {
		return f.gap.Offset - f.at
	}
	if end := f.gap.Offset + f.gap.Marker; f.at < end {
		return end - f.at
	}
	f.gap = nil
	f.n = max(f.n, f.after)
	return 1
}

func (f *lineFilter) pass(p []byte) error {
	f.at += int64(len(p))
	for len(p) > 0 && f.n <= f.lines.End {
		end := bytes.IndexByte(p, '\n') + 1
		whole := end > 0
		if !whole {
			end = len(p)
		}
		if f.n >= f.lines.Start {
			if _, err := f.w.Write(p[:end]); err != nil {
				return err
			}
		}
		if p = p[end:]; whole {
			f.n++
		}
	}
	return nil
}

// List returns at most limit artifacts that r may read now, newest first.
func (s *Store) List(r Reader, limit int) ([]*Manifest, error) {
	if s == nil || s.dir < 0 {
		return nil, nil
	}
	all, err := s.artifacts()
	if err != nil {
		return nil, err
	}
	var list []*Manifest
	for _, a := range slices.Backward(all) {
		if len(list) >= limit {
			break
		}
		if m, dir, err := s.find(a.handle, &r); err == nil { // otherwise it is another principal's, expired, damaged or gone
			unix.Close(dir)
			list = append(list, m)
		}
	}
	return list, nil
}
