package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// read writes a stream to w. It returns an error if the stream differs from the manifest, and never unpacks more
// bytes than that says.
func read(ctx context.Context, a *openArtifact, k storedStream, w io.Writer) error {
	f, err := a.Stream(k.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	corrupt := func(err error) error { return fmt.Errorf("%w: %s: %w", ErrCorrupt, k.Name, err) }
	r, err := openMember(f)
	if err != nil {
		return corrupt(err)
	}
	if mark := r.Mark(); mark != nil && !bytes.Equal(mark, k.Mark) {
		return corrupt(errors.New("it belongs to another principal or artifact"))
	}
	sum := sha256.New()
	b := make([]byte, 64<<10)
	for left := k.Bytes; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(b)
		if left -= int64(n); left < 0 {
			return corrupt(errors.New("it is longer than the manifest says"))
		}
		sum.Write(b[:n])
		if _, werr := w.Write(b[:n]); werr != nil {
			return werr
		}
		switch {
		case err == nil:
			continue
		case !errors.Is(err, io.EOF):
			return corrupt(err)
		case left > 0:
			return corrupt(errors.New("it is shorter than the manifest says"))
		case hex.EncodeToString(sum.Sum(nil)) != k.SHA256:
			return corrupt(errors.New("SHA-256 differs"))
		}
		return nil
	}
}

// A gapReader feeds a stored stream to a lineReader, with its gap in place of the marker.
type gapReader struct {
	v   *lineReader
	gap *Gap // nil: nothing was left out
	at  int64
}

func (g *gapReader) Write(p []byte) (int, error) {
	n := len(p)
	if g.gap == nil {
		_, _ = g.v.Write(p) // never fails
		return n, nil
	}
	end := g.gap.Offset + g.gap.Marker
	if g.at < g.gap.Offset {
		head := p[:min(int64(len(p)), g.gap.Offset-g.at)]
		_, _ = g.v.Write(head) // never fails
		p = p[len(head):]
	}
	if g.at += int64(n - len(p)); len(p) > 0 && g.at == g.gap.Offset {
		g.v.Gap(g.gap.Lines, g.gap.Line())
	}
	if g.at < end {
		skip := min(int64(len(p)), end-g.at)
		p = p[skip:]
		g.at += skip
	}
	_, _ = g.v.Write(p) // never fails
	g.at += int64(len(p))
	return n, nil
}

// A lineFilter writes the lines of a range to w.
type lineFilter struct {
	w     io.Writer
	lines Range
	n     int64 // number of the line that begins or continues next
	at    int64
	gap   *Gap // not yet reached; nil if there is none
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
