package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// Errors of reading. They are wrapped with what a reader may know.
var (
	// ErrNotFound is an artifact that is not there, or is another principal's or repository's.
	ErrNotFound = errors.New("no such artifact")
	// ErrExpired is one that may be read no more; only its owner is told.
	ErrExpired = errors.New("the artifact has expired")
	// ErrCorrupt is one that is not what was stored.
	ErrCorrupt = errors.New("the artifact is damaged")
)

// A Reader is who asks.
type Reader struct {
	Principal string
	Repos     []string // that it may use; nil is every one
	// Owner asks as whose the store is: for the artifacts of all principals and repositories.
	Owner bool
}

func (r *Reader) may(m *Manifest) bool {
	return r.Owner || r.Principal == m.Principal && (r.Repos == nil || slices.Contains(r.Repos, m.RepoID))
}

// mayName says whether r may know of a handle at all; the manifest is not read yet.
func (r *Reader) mayName(handle string) bool {
	return r.Owner || r.Repos == nil || slices.ContainsFunc(r.Repos, func(repo string) bool {
		p := handlePrefix(repo)
		return len(handle) > len(p) && handle[:len(p)] == p
	})
}

// A Range is lines of one stream.
type Range struct {
	Stream     string // Stdout or Stderr
	Start, End int64  // 1-based, both included
}

// A Query asks for parts of an artifact.
type Query struct {
	Reader
	Handle   string
	Terms    []string // as in a View
	Excerpts int      // at most; 0 is none
	Context  int      // lines before and after a match
	Stream   string   // Stdout, Stderr; "" is both
	// At are lines to be shown with those around them, as if a term were in them, by name of a stream. They are numbered as
	// what Copy writes is, which has no gap in it, and are in no order. Not with a Range.
	At map[string][]int64
	// Range is lines to read. Terms are looked for in these alone, then, and an excerpt has no others.
	Range *Range
}

// What an Answer's excerpts are.
const (
	Matched  = "matched"         // around lines that have a term
	NoMatch  = "noMatchFallback" // the first lines: no line has one
	LineRead = "lineRange"       // the lines of the Range, and after these the excerpts around those that have a term
)

// An Answer is what a Query finds. Lines and Bytes are of the streams that were searched, as the job wrote them.
type Answer struct {
	Excerpts []Excerpt // never nil
	Lines    int64
	Bytes    int64
	Streams  []string // that were searched
	Match    string   // Matched, NoMatch or LineRead
	// Truncated says that there is more than could be returned, which is about 1 MiB of text, and 20,000 lines of a
	// Range: LineEnd of the first Excerpt says how far the Range goes.
	Truncated bool
	Manifest  *Manifest
}

// Query searches an artifact. Every stream that it looks at is read whole and checked before anything is returned. As many
// queries read at once as there are processors; the others wait. The error is ErrNotFound, ErrExpired or ErrCorrupt, one
// of reading the disk, or that of ctx when it ends before.
func (s *Store) Query(ctx context.Context, q Query) (*Answer, error) {
	streams := []string{Stdout, Stderr}
	w := wanted{terms: q.Terms, context: q.Context, excerpts: q.Excerpts}
	switch {
	case q.Range != nil:
		streams = []string{q.Range.Stream}
		w.from, w.to, w.within = max(q.Range.Start, 1), q.Range.End, true
	case q.Stream != "":
		streams = []string{q.Stream}
	}
	if q.Range == nil {
		w.first = q.Excerpts
	}
	if bad := slices.IndexFunc(streams, func(n string) bool { return n != Stdout && n != Stderr }); bad >= 0 {
		return nil, fmt.Errorf("%q is no stream", streams[bad])
	}
	if s == nil {
		return nil, ErrNotFound
	}
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m, dir, err := s.find(q.Handle, &q.Reader)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	a := &Answer{Excerpts: []Excerpt{}, Streams: streams, Manifest: m}
	views := map[string]*lineReader{}
	for _, name := range streams {
		k := m.stream(name)
		w.at = slices.Sorted(slices.Values(q.At[name]))
		v := newLineReader(w)
		if err := s.read(ctx, dir, q.Handle, k, &gapReader{v: v, gap: k.gap}); err != nil {
			return nil, err
		}
		v.close()
		views[name] = v
		a.Lines += k.lines
		a.Bytes += k.total
	}
	a.fill(&q, views)
	return a, nil
}

func (a *Answer) fill(q *Query, views map[string]*lineReader) {
	stdout, stderr := views[Stdout], views[Stderr]
	for _, v := range views {
		a.Truncated = a.Truncated || v.cut
	}
	a.Match = Matched
	a.Excerpts = found(stdout, stderr, q.Excerpts)
	switch {
	case q.Range != nil:
		a.Match = LineRead
		if p := &views[q.Range.Stream].part; p.start > 0 {
			a.Excerpts = slices.Insert(a.Excerpts, 0,
				Excerpt{LineStart: p.start, LineEnd: p.end, Content: string(p.text), Source: q.Range.Stream})
		}
	case len(a.Excerpts) == 0:
		a.Match = NoMatch
		a.Excerpts = front(stdout, stderr, q.Excerpts)
	}
	a.bound()
}

// bound leaves those excerpts out that are too much: each may be large, and so may what the streams have together.
func (a *Answer) bound() {
	size := 0
	for i := range a.Excerpts {
		if size += len(a.Excerpts[i].Content); size > maxText && i > 0 {
			a.Excerpts, a.Truncated = slices.Clip(a.Excerpts[:i]), true
			return
		}
	}
}

// find returns the manifest of an artifact that r may read now, and its open directory.
func (s *Store) find(handle string, r *Reader) (*Manifest, int, error) {
	if _, ok := made(handle); !ok || s == nil || s.dir < 0 || !r.mayName(handle) {
		return nil, -1, ErrNotFound
	}
	m, dir, err := s.manifest(handle)
	if err != nil {
		if errors.Is(err, ErrCorrupt) && !s.owns(handle, r) {
			err = ErrNotFound
		}
		return nil, -1, err
	}
	switch {
	case !r.may(m):
		err = ErrNotFound
	case !s.now().Before(m.ExpiresAt):
		err = fmt.Errorf("%w: it was kept until %s", ErrExpired, m.ExpiresAt.UTC().Format("2006-01-02 15:04:05 UTC"))
	default:
		return m, dir, nil
	}
	unix.Close(dir)
	return nil, -1, err
}

// manifest reads that of an artifact, and returns its open directory.
func (s *Store) manifest(handle string) (*Manifest, int, error) {
	dir, err := openat(s.dir, handle, dirFlags)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
			err = ErrNotFound
		}
		return nil, -1, err
	}
	f, err := openFile(dir, manifestName)
	if err != nil {
		unix.Close(dir)
		return nil, -1, s.missing(handle, err)
	}
	m, err := parseManifest(handle, f)
	f.Close()
	if err != nil {
		unix.Close(dir)
		if errors.Is(err, errEmpty) {
			return nil, -1, ErrNotFound
		}
		return nil, -1, fmt.Errorf("%w: manifest: %w", ErrCorrupt, err)
	}
	return m, dir, nil
}

// missing is err, of a file of an artifact: the artifact is damaged, unless it is just being removed.
func (s *Store) missing(handle string, err error) error {
	var st unix.Stat_t
	if unix.Fstatat(s.dir, handle, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return ErrNotFound
	}
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.EACCES) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// read writes a stream to w, until ctx ends. It is an error if it is not what the manifest says; no more than that is ever
// unpacked.
func (s *Store) read(ctx context.Context, dir int, handle string, k storedStream, w io.Writer) error {
	f, err := openFile(dir, fileOf(k.name))
	if err != nil {
		return s.missing(handle, err)
	}
	defer f.Close()
	corrupt := func(err error) error { return fmt.Errorf("%w: %s: %w", ErrCorrupt, k.name, err) }
	r, err := unpack(f)
	if err != nil {
		return corrupt(err)
	}
	if mark := r.gz.Extra; mark != nil && !bytes.Equal(mark, k.owner) {
		return corrupt(errors.New("it is another's"))
	}
	sum := sha256.New()
	b := make([]byte, 64<<10)
	for left := k.bytes; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(b)
		if left -= int64(n); left < 0 {
			return corrupt(errors.New("it is longer than it was"))
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
			return corrupt(errors.New("it is shorter than it was"))
		case hex.EncodeToString(sum.Sum(nil)) != k.sha:
			return corrupt(errors.New("SHA-256 differs"))
		}
		return nil
	}
}

// A gapReader takes a stream as it is stored, and tells its lines of what was left out.
type gapReader struct {
	v   *lineReader
	gap *gap // nil: nothing was
	at  int64
}

func (g *gapReader) Write(p []byte) (int, error) {
	n := len(p)
	if g.gap == nil {
		g.v.write(p)
		return n, nil
	}
	end := g.gap.Offset + g.gap.Marker
	if g.at < g.gap.Offset {
		head := p[:min(int64(len(p)), g.gap.Offset-g.at)]
		g.v.write(head)
		p = p[len(head):]
	}
	if g.at += int64(n - len(p)); len(p) > 0 && g.at == g.gap.Offset {
		g.v.gap(g.gap.Lines, leftOut(g.gap.Bytes))
	}
	if g.at < end {
		skip := min(int64(len(p)), end-g.at)
		p = p[skip:]
		g.at += skip
	}
	g.v.write(p)
	g.at += int64(len(p))
	return n, nil
}
