package lang

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Places say where programs may be.
type Places struct {
	// Toolchains are the directories of the operator's configuration, which come before those of the system: the bin of
	// each, or where there is none itself, and what a version manager has in it (~/.nvm, ~/.pyenv, ~/.rustup and so on).
	Toolchains []string
	// Never are directories in which no program is looked for, wherever they lie: repositories.
	Never []string

	host host // for tests; zero is this host
}

// A host is where the system's own programs are.
type host struct {
	dirs   []string // as in PATH; * stands for any one name
	trees  []string // where links of these may lead: what every jail shows
	caches []string // of Go
	owner  uint32   // of the system
}

// system is what package rootfs shows in every jail, as far as there are programs in it. Snap's are not: they start a
// service.
var system = host{
	dirs: []string{
		"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/go/bin",
		"/usr/lib/go/bin", "/usr/lib/jvm/*/bin", "/usr/lib/dotnet", "/opt/*/bin",
	},
	trees:  []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"},
	caches: goCaches,
}

// Installed are the programs of this host. Its methods may be called by several goroutines at once; they look again when
// a directory has changed. The zero Installed has none.
type Installed struct{ c *cache }

type cache struct {
	places Places

	mu     sync.Mutex
	search *search // guarded by mu
}

// Find looks where programs may be. It reads directories, links, and a few small files.
func Find(p Places) Installed {
	if p.host.dirs == nil {
		p.host = system
	}
	return Installed{&cache{places: p}}
}

// last returns the search that was made last. Whether it holds still is for the caller to see: most of it matters to few.
func (i Installed) last() *search {
	if i.c == nil {
		return &search{}
	}
	i.c.mu.Lock()
	defer i.c.mu.Unlock()
	if i.c.search == nil {
		i.c.search = newSearch(i.c.places)
	}
	return i.c.search
}

// now returns a search all of which holds.
func (i Installed) now() *search {
	if i.c == nil {
		return &search{}
	}
	i.c.mu.Lock()
	defer i.c.mu.Unlock()
	if i.c.search == nil || !i.c.search.fresh(everything) {
		i.c.search = newSearch(i.c.places)
	}
	return i.c.search
}

// Path returns the value of PATH for jobs: the toolchains' directories, then the system's.
func (i Installed) Path() string {
	s := i.last()
	if !s.fresh(0) {
		s = i.now()
	}
	return s.path
}

// Choose returns the first program of a runtime that is here and allowed, and a sentence on what is missing when there is
// none. A nil allowed allows every name. With an executable, a name or an absolute path, it is that program or none.
func (i Installed) Choose(runtime, executable string, allowed func(name string) bool) (choice Choice, missing string) {
	r, ok := Lookup(runtime)
	if !ok {
		return Choice{}, fmt.Sprintf("there is no runtime %q", runtime)
	}
	if strings.Contains(executable, "/") && !filepath.IsAbs(executable) {
		return Choice{}, fmt.Sprintf("%q is neither a name nor an absolute path", executable)
	}
	name := executable
	if executable != "" {
		name = filepath.Base(executable)
	}
	s := i.last()
	tried := &attempt{runtime: r, executable: executable, ways: r.waysOf(name), search: s}
	c, ok, matters := tried.choose(name, allowed)
	if !s.fresh(matters) {
		tried = &attempt{runtime: r, executable: executable, ways: tried.ways, search: i.now()}
		c, ok, _ = tried.choose(name, allowed)
	}
	if !ok {
		return Choice{}, tried.missing()
	}
	return c, ""
}

// An attempt is one Choose, and what it has to say in the end.
type attempt struct {
	runtime    Runtime
	executable string // that was asked for
	ways       []way  // that may run it
	search     *search
	names      []string // looked for
	against    []string // what was found, and why it will not do
}

// choose returns the first program of a name, of any of the ways' if it is "". matters is how much of what was watched has
// to be as it was for this to hold, see fresh.
func (a *attempt) choose(name string, allowed func(name string) bool) (c Choice, ok bool, matters int) {
	for _, w := range a.ways {
		want := cmp.Or(name, w.program)
		if allowed != nil && !allowed(want) {
			continue
		}
		a.names = append(a.names, want)
		if filepath.IsAbs(a.executable) {
			if c, ok := a.take(w, want, filepath.Clean(a.executable)); ok {
				return c, true, everything
			}
			continue
		}
		for n, dir := range a.search.dirs {
			c, ok := a.take(w, want, filepath.Join(dir, want))
			switch {
			case !ok:
			case w.prepare != nil, len(a.names) > 1: // more was looked at than the directories up to this one
				return c, true, everything
			default:
				return c, true, a.search.upTo[n]
			}
		}
	}
	return Choice{}, false, everything
}

// take returns the choice of a program at path, or notes what is against it.
func (a *attempt) take(w way, name, path string) (Choice, bool) {
	real, why := a.search.check(path)
	if why == "" {
		c := Choice{
			Runtime: a.runtime.Name, Executable: name, Path: path, Real: real,
			way: w, env: a.runtime.env, with: map[string]string{}, paths: a.search.path,
		}
		if w.prepare != nil {
			why = w.prepare(a.search, &c)
		}
		if why == "" {
			return c, true
		}
	}
	if why != absent {
		a.against = append(a.against, path+": "+why)
	}
	return Choice{}, false
}

// missing says what was looked for, and where.
func (a *attempt) missing() string {
	if len(a.ways) == 0 {
		return fmt.Sprintf("%q does not run %s: it would be one of %s", a.executable, a.runtime.Name,
			strings.Join(a.runtime.Candidates(), ", "))
	}
	if len(a.names) == 0 {
		return fmt.Sprintf("no program that runs %s is allowed: it would be one of %s", a.runtime.Name,
			strings.Join(a.runtime.Candidates(), ", "))
	}
	var b strings.Builder
	what := "no program that runs " + a.runtime.Name
	if a.executable != "" {
		what = fmt.Sprintf("no %q that runs %s", a.executable, a.runtime.Name)
	}
	fmt.Fprintf(&b, "%s is on this host: looked for %s in %s", what,
		strings.Join(slices.Compact(a.names), ", "), strings.Join(a.search.dirs, ", "))
	if len(a.search.toolchains) == 0 {
		b.WriteString("; no toolchains are configured")
	}
	for _, why := range a.against {
		b.WriteString("; not " + why)
	}
	return b.String() + "\nhint: " + a.runtime.Remedy()
}

// Remedy says what brings a runtime's programs, for people.
func (r Runtime) Remedy() string {
	if r.Debian == "" {
		return r.Elsewhere
	}
	return "apt-get install " + r.Debian + ", or name a toolchain's directory in the configuration"
}

// with is a prepare that finds other programs by name, first beside the one that needs them.
func with(names ...string) func(*search, *Choice) string {
	return func(s *search, c *Choice) string {
		for _, name := range names {
			beside := []string{filepath.Join(filepath.Dir(c.Path), name), filepath.Join(filepath.Dir(c.Real), name)}
			paths := append(beside, s.all(name)...)
			at := slices.IndexFunc(paths, s.usable)
			if at < 0 {
				return "it needs " + name + ", which is not there"
			}
			c.with[name] = paths[at]
			if dir := filepath.Dir(paths[at]); !slices.Contains(strings.Split(c.paths, ":"), dir) {
				c.paths = dir + ":" + c.paths
			}
		}
		return ""
	}
}
