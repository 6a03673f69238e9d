package artifact

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// Copy writes the streams of an artifact as they are stored: stdout first. Nothing is written of a stream that is not
// what was stored. A nil writer leaves its stream out.
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
		if err := s.read(context.Background(), dir, handle, m.stream(to.name), io.Discard); err != nil {
			return err
		}
		if err := s.read(context.Background(), dir, handle, m.stream(to.name), to.Writer); err != nil {
			return err
		}
	}
	return nil
}

// Stream writes a stream, Stdout or Stderr, as it is stored, reading it once: when there is an error, what was written is
// not to be believed. The error is as that of a Query; that of ctx when it ends before.
func (s *Store) Stream(ctx context.Context, r Reader, handle, stream string, w io.Writer) error {
	if stream != Stdout && stream != Stderr {
		return fmt.Errorf("%q is no stream", stream)
	}
	m, dir, err := s.find(handle, &r)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return s.read(ctx, dir, handle, m.stream(stream), w)
}

// Find returns the manifest of an artifact. The error is as that of a Query.
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

// CopyLines writes lines of a stream as they are stored, by the numbers that a Query has for them. Nothing is written of
// a stream that is not what was stored.
func (s *Store) CopyLines(r Reader, handle string, lines Range, w io.Writer) error {
	m, dir, err := s.find(handle, &r)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	k := m.stream(lines.Stream)
	if err := s.read(context.Background(), dir, handle, k, io.Discard); err != nil {
		return err
	}
	return s.read(context.Background(), dir, handle, k, &lineFilter{w: w, lines: lines, n: 1, gap: k.gap})
}

// A lineFilter passes lines of a range.
type lineFilter struct {
	w     io.Writer
	lines Range
	n     int64 // the number of the line that comes next, or goes on
	at    int64
	gap   *gap // not come to yet; nil: there is none
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

// ahead is how many bytes there are, at least one, up to where the gap begins or its marker ends.
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

// List returns the artifacts that r may read now, the newest first, at most most of them.
func (s *Store) List(r Reader, most int) ([]*Manifest, error) {
	if s == nil || s.dir < 0 {
		return nil, nil
	}
	all, err := s.artifacts()
	if err != nil {
		return nil, err
	}
	var list []*Manifest
	for _, a := range slices.Backward(all) {
		if len(list) >= most {
			break
		}
		if m, dir, err := s.find(a.handle, &r); err == nil { // else it is another's, expired, damaged or gone
			unix.Close(dir)
			list = append(list, m)
		}
	}
	return list, nil
}
