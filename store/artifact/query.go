package artifact

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
)

// Errors of reading. They are wrapped with details that the reader may learn.
var (
	// ErrNotFound is returned if there is no such artifact, or it belongs to another principal or repository.
	ErrNotFound = errors.New("no such artifact")
	// ErrExpired is returned for an artifact after its expiry, to its owner only.
	ErrExpired = errors.New("the artifact has expired")
	// ErrCorrupt is returned for an artifact that differs from what was stored.
	ErrCorrupt = errors.New("the artifact is damaged")
)

// A Reader identifies the caller.
type Reader struct {
	Principal string
	Repos     []string // that the caller may use; nil means all
	// Owner is set for the user that owns the store, who may read the artifacts of all principals and repositories.
	Owner bool
}

func (r *Reader) may(m *Manifest) bool {
	return r.Owner || r.Principal == m.Principal && (r.Repos == nil || slices.Contains(r.Repos, m.RepoID))
}

// mayName reports whether r may know a handle at all, before its manifest is read.
func (r *Reader) mayName(handle string) bool {
	return r.Owner || r.Repos == nil || slices.ContainsFunc(r.Repos, func(repo string) bool {
		p := handlePrefix(repo)
		return len(handle) > len(p) && handle[:len(p)] == p
	})
}

// A Range is a range of lines of one stream.
type Range struct {
	Stream     string // Stdout or Stderr
	Start, End int64  // 1-based, inclusive
}

// A Query requests parts of an artifact.
type Query struct {
	Reader
	Handle   string
	Terms    []string // as in a View
	Excerpts int      // maximum number; 0 means none
	Context  int      // lines before and after a match
	Stream   string   // Stdout or Stderr; "" means both
	// At lists, by name of a stream, lines to show with their context as if they contained a term. They are numbers
	// of lines as Copy writes them, without gaps, in any order. At cannot be combined with a Range.
	At map[string][]int64
	// Range is a range of lines to read. Terms are then searched for in these lines only, and excerpts contain no
	// others.
	Range *Range
}

// Kinds of an Answer's excerpts.
const (
	Matched  = "matched"         // around lines that contain a term
	NoMatch  = "noMatchFallback" // the first lines, since no line contains a term
	LineRead = "lineRange"       // the lines of the Range, followed by excerpts around those that contain a term
)

// An Answer is the result of a Query. Lines and Bytes are totals of the searched streams as the job wrote them.
type Answer struct {
	Excerpts []Excerpt // never nil
	Lines    int64
	Bytes    int64
	Streams  []string // the streams that were searched
	Match    string   // Matched, NoMatch or LineRead
	// Truncated reports that not everything was returned: the maximum is about 1 MiB of text, and 20,000 lines of a
	// Range. LineEnd of the first Excerpt says how far the Range was read.
	Truncated bool
	Manifest  *Manifest
}

// Query searches an artifact. Each stream that it needs is read completely and verified before anything is returned.
// The number of concurrent queries is limited to the number of processors; others wait. The error is ErrNotFound,
// ErrExpired, ErrCorrupt, an error of reading the disk, or that of ctx.
func (s *Store) Query(ctx context.Context, q Query) (*Answer, error) {
	streams := []string{Stdout, Stderr}
	w := selection{Terms: q.Terms, Context: q.Context, Excerpts: q.Excerpts}
	switch {
	case q.Range != nil:
		streams = []string{q.Range.Stream}
		w.From, w.To, w.Within = max(q.Range.Start, 1), q.Range.End, true
	case q.Stream != "":
		streams = []string{q.Stream}
	}
	if q.Range == nil {
		w.First = q.Excerpts
	}
	if bad := slices.IndexFunc(streams, func(n string) bool { return n != Stdout && n != Stderr }); bad >= 0 {
		return nil, fmt.Errorf("%q is not a stream: must be stdout or stderr", streams[bad])
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
	from, err := s.find(q.Handle, &q.Reader)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	a := &Answer{Excerpts: []Excerpt{}, Streams: streams, Manifest: from.Manifest}
	views := readers{}
	for _, name := range streams {
		k := from.Manifest.Stream(name)
		w.At = slices.Sorted(slices.Values(q.At[name]))
		v := newLineReader(w)
		if err := read(ctx, from, k, &gapReader{to: v, gap: k.Gap}); err != nil {
			return nil, err
		}
		v.Close()
		views[name] = v
		a.Lines += k.Lines
		a.Bytes += k.Total
	}
	a.fill(&q, views)
	return a, nil
}

func (a *Answer) fill(q *Query, views readers) {
	for _, v := range views {
		a.Truncated = a.Truncated || v.Incomplete()
	}
	a.Match = Matched
	a.Excerpts = views.found(q.Excerpts)
	switch {
	case q.Range != nil:
		a.Match = LineRead
		if p := views[q.Range.Stream].Part(); p.LineStart > 0 {
			p.Source = q.Range.Stream
			a.Excerpts = slices.Insert(a.Excerpts, 0, p)
		}
	case len(a.Excerpts) == 0:
		a.Match = NoMatch
		a.Excerpts = views.front(q.Excerpts)
	}
	a.bound()
}

// bound drops excerpts beyond the maximum size of an answer.
func (a *Answer) bound() {
	size := 0
	for i := range a.Excerpts {
		if size += len(a.Excerpts[i].Content); size > maxText && i > 0 {
			a.Excerpts, a.Truncated = slices.Clip(a.Excerpts[:i]), true
			return
		}
	}
}

// find opens an artifact that r may read now. The caller must close it.
func (s *Store) find(handle string, r *Reader) (*openArtifact, error) {
	if _, ok := parseHandle(handle); !ok || s == nil || !r.mayName(handle) {
		return nil, ErrNotFound
	}
	a, err := s.disk.Open(handle)
	if err != nil {
		if errors.Is(err, ErrCorrupt) && !s.owns(handle, r) {
			err = ErrNotFound
		}
		return nil, err
	}
	switch {
	case !r.may(a.Manifest):
		err = ErrNotFound
	case !s.now().Before(a.Manifest.ExpiresAt):
		err = fmt.Errorf("%w: it was kept until %s", ErrExpired, a.Manifest.ExpiresAt.UTC().Format("2006-01-02 15:04:05 UTC"))
	default:
		return a, nil
	}
	a.Close()
	return nil, err
}

// owns reports whether an artifact with an unreadable manifest belongs to r, according to its streams.
func (s *Store) owns(handle string, r *Reader) bool {
	if r.Owner {
		return true
	}
	for _, name := range [...]string{Stdout, Stderr} {
		mark, err := s.mark(handle, name)
		if err == nil && subtle.ConstantTimeCompare(mark, ownerMark(handle, r.Principal)) == 1 {
			return true
		}
	}
	return false
}

// mark returns the owner's subfield from the header of a stream.
func (s *Store) mark(handle, stream string) ([]byte, error) {
	f, err := s.disk.OpenStream(handle, stream)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	gz, err := openMember(f)
	if err != nil {
		return nil, err
	}
	return gz.Mark(), nil
}
