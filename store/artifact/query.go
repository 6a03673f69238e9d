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

	"corral/store/artifact/lines"
	"corral/store/artifact/manifest"
	"corral/store/artifact/spool"
	"corral/store/at"
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
		p := manifest.HandlePrefix(repo)
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

// A Manifest describes an artifact.
type Manifest = manifest.Manifest

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
	w := lines.Selection{Terms: q.Terms, Context: q.Context, Excerpts: q.Excerpts}
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
	m, dir, err := s.find(q.Handle, &q.Reader)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	a := &Answer{Excerpts: []Excerpt{}, Streams: streams, Manifest: m}
	views := readers{}
	for _, name := range streams {
		k := m.Stream(name)
		w.At = slices.Sorted(slices.Values(q.At[name]))
		v := lines.NewReader(w)
		if err := s.read(ctx, dir, q.Handle, k, &gapReader{v: v, gap: k.Gap}); err != nil {
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
		if p := views[q.Range.Stream].Part(); p.Start > 0 {
			a.Excerpts = slices.Insert(a.Excerpts, 0, newExcerpt(q.Range.Stream, p))
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
		if size += len(a.Excerpts[i].Content); size > lines.MaxText && i > 0 {
			a.Excerpts, a.Truncated = slices.Clip(a.Excerpts[:i]), true
			return
		}
	}
}

// find returns the manifest of an artifact that r may read now, and its open directory, which the caller must close.
func (s *Store) find(handle string, r *Reader) (*Manifest, int, error) {
	if _, ok := manifest.ParseHandle(handle); !ok || s == nil || s.dir < 0 || !r.mayName(handle) {
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

// manifest reads the manifest of an artifact, and returns its open directory, which the caller must close.
func (s *Store) manifest(handle string) (*Manifest, int, error) {
	dir, err := at.Open(s.dir, handle, at.Dir)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
			err = ErrNotFound
		}
		return nil, -1, err
	}
	f, err := openFile(dir, manifest.Name)
	if err != nil {
		unix.Close(dir)
		return nil, -1, s.missing(handle, err)
	}
	m, err := manifest.Parse(handle, f)
	f.Close()
	if err != nil {
		unix.Close(dir)
		if errors.Is(err, manifest.ErrEmpty) {
			return nil, -1, ErrNotFound
		}
		return nil, -1, fmt.Errorf("%w: manifest: %w", ErrCorrupt, err)
	}
	return m, dir, nil
}

// missing returns the error for a file of an artifact that cannot be opened: ErrCorrupt, unless the artifact is being
// removed.
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

// read writes a stream to w. It returns an error if the stream differs from the manifest, and never unpacks more
// bytes than that says.
func (s *Store) read(ctx context.Context, dir int, handle string, k manifest.Stream, w io.Writer) error {
	f, err := openFile(dir, manifest.FileOf(k.Name))
	if err != nil {
		return s.missing(handle, err)
	}
	defer f.Close()
	corrupt := func(err error) error { return fmt.Errorf("%w: %s: %w", ErrCorrupt, k.Name, err) }
	r, err := spool.Open(f)
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

// A gapReader feeds a stored stream to a lines.Reader, with its gap in place of the marker.
type gapReader struct {
	v   *lines.Reader
	gap *spool.Gap // nil: nothing was left out
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
