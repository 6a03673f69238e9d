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

// A gapTaker takes a stream that may have a gap.
type gapTaker interface {
	io.Writer
	// Gap is called in place of the marker, the line that stands for left lines.
	Gap(left int64, marker string)
}

// A gapReader feeds a stored stream to a gapTaker, with its gap in place of the marker.
type gapReader struct {
	to  gapTaker
	gap *Gap // nil: nothing was left out
	at  int64
}

func (g *gapReader) Write(p []byte) (int, error) {
	if g.gap == nil {
		return g.to.Write(p)
	}
	n := len(p)
	end := g.gap.Offset + g.gap.Marker
	if g.at < g.gap.Offset {
		head := p[:min(int64(len(p)), g.gap.Offset-g.at)]
		if _, err := g.to.Write(head); err != nil {
			return 0, err
		}
		p = p[len(head):]
	}
	if g.at += int64(n - len(p)); len(p) > 0 && g.at == g.gap.Offset {
		g.to.Gap(g.gap.Lines, g.gap.Line())
	}
	if g.at < end {
		skip := min(int64(len(p)), end-g.at)
		p = p[skip:]
		g.at += skip
	}
	g.at += int64(len(p))
	if _, err := g.to.Write(p); err != nil {
		return 0, err
	}
	return n, nil
}

// A lineFilter writes the lines of a range to w.
type lineFilter struct {
	w     io.Writer
	lines Range
	n     int64 // number of the line that begins or continues next
	open  bool  // it continues
	err   error // of w
}

func (f *lineFilter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0 && f.n <= f.lines.End && f.err == nil; {
		end := bytes.IndexByte(rest, '\n') + 1
		if f.open = end == 0; f.open {
			end = len(rest)
		}
		if f.n >= f.lines.Start {
			_, f.err = f.w.Write(rest[:end])
		}
		if rest = rest[end:]; !f.open {
			f.n++
		}
	}
	return len(p), f.err
}

// Gap implements gapTaker. An error is that of the next Write.
func (f *lineFilter) Gap(left int64, marker string) {
	resume := f.n + left
	if f.open {
		marker = "\n" + marker
	}
	_, _ = f.Write([]byte(marker + "\n"))
	f.n = max(f.n, resume)
}
