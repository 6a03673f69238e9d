package scan

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Links says which paths of a repository are sensitive because its sensitive links lead to them, as a [Scanner] finds them. The
// repository is scanned when a path is looked up for the first time. It must not be used by several goroutines at a time.
type Links struct {
	repo    *os.File // nil: it was scanned
	bounds  Bounds
	missed  bool               // a bound was reached, or the repository could not be scanned
	exact   map[string]bool    // files to which links lead, and links on their way
	above   map[string]bool    // directories that are sensitive if another file replaces them: those above, and those behind links
	zones   map[string][]*zone // the rules for the content of directories behind links
	visited map[*node]bool
}

// NewLinks returns the Links of a repository, which it closes when it is scanned.
func NewLinks(repo *os.File, b Bounds) *Links {
	return &Links{
		repo: repo, bounds: b, exact: map[string]bool{}, above: map[string]bool{}, zones: map[string][]*zone{}, visited: map[*node]bool{},
	}
}

// Rules returns the rules for the root of the repository, and for what its links lead to.
func (l *Links) Rules() Rules {
	r := RepositoryRules()
	r.links = l
	return r
}

// Missed reports whether links may have been missed, as far as paths were looked up: a bound was reached.
func (l *Links) Missed() bool { return l.missed }

// Close closes the repository if it was not scanned.
func (l *Links) Close() {
	if l != nil && l.repo != nil {
		l.repo.Close()
		l.repo = nil
	}
}

// entry returns whether links make a path sensitive, and the rules for its content.
func (l *Links) entry(path string, directory bool) (sensitive bool, below Rules) {
	if l.repo != nil {
		repo := l.repo
		l.repo = nil
		l.missed = !l.scan(repo)
	}
	return l.exact[path] || !directory && l.above[path], Rules{links: l, path: path, zones: slices.Clip(l.zones[path])}
}

// scan reports whether it found all links.
func (l *Links) scan(repo *os.File) bool {
	s, err := New(repo, l.bounds)
	if err != nil {
		return false
	}
	defer unix.Close(s.fd)
	if _, err = s.Baseline(); err == nil {
		l.tree(s, spot{}, s.root)
	}
	return err == nil && !s.partial && !l.missed
}

// tree adds what the links in a directory lead to.
func (l *Links) tree(s *Scanner, at spot, n *node) {
	for i := range n.files {
		f := &n.files[i]
		for _, to := range f.links() {
			l.link(s, at.join(f.name), to)
		}
	}
	for _, c := range n.dirs {
		l.tree(s, at.join(c.name), c)
	}
}

// link adds what a link at a spot leads to.
func (l *Links) link(s *Scanner, at spot, to *link) {
	y := &to.way
	for _, on := range y.links {
		l.add(on, l.exact)
	}
	switch {
	case y.end == undecided:
		l.missed = true
		return
	case y.end != arrived || !y.st.is(unix.S_IFDIR) || to.trackDir:
		l.add(y.at, l.exact)
	default:
		l.add(y.at, l.above)
	}
	key, ok := s.leads(to, at)
	if !ok {
		return
	}
	if path := y.at.path; !slices.Contains(l.zones[path], to.zone) {
		l.zones[path] = append(l.zones[path], to.zone)
	}
	if c := s.linked[key]; c != nil && !l.visited[c] {
		l.visited[c] = true
		l.tree(s, y.at, c)
	}
}

// add adds a path to a set, and the directories above it to those that must not be replaced.
func (l *Links) add(at spot, to map[string]bool) {
	if at.path == "" {
		return
	}
	for to[at.path] = true; at.path != ""; at, _ = at.split() {
		l.above[at.path] = true
	}
}
