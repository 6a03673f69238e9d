package runtimes

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Installed are the programs of this host. It is safe for concurrent use, and searches again when a directory has
// changed. The zero Installed has no programs.
type Installed struct{ c *cache }

type cache struct {
	places Places

	mu     sync.Mutex
	search *search // guarded by mu
}

// Find searches the host. It reads directories, links, and a few small files.
func Find(p Places) Installed {
	if p.host.dirs == nil {
		p.host = system
	}
	return Installed{&cache{places: p}}
}

// current returns a search that is up to date: its path, or all of it. Hosts have many directories that PATH does not have, and a
// command needs PATH alone.
func (i Installed) current(all bool) *search {
	if i.c == nil {
		return &search{}
	}
	i.c.mu.Lock()
	defer i.c.mu.Unlock()
	if s := i.c.search; s == nil || changed(s.watched) || all && changed(s.beside) {
		i.c.search = newSearch(i.c.places)
	}
	return i.c.search
}

// Path returns the value of PATH for jobs: the directories of toolchains, then those of the system.
func (i Installed) Path() string { return i.current(false).path }

// Caches returns the variables, NAME=value, with which package managers install from the download caches among the
// toolchains. Of several caches of a manager, the first one that exists counts. A cache may lie where only jobs can see
// it, below a home directory that is closed to the caller, so only one that is known to be absent is left out.
func (i Installed) Caches() []string {
	if i.c == nil {
		return nil
	}
	return cacheVariables(i.c.places.Toolchains)
}

// Choose returns the first installed and allowed program of a runtime. If there is none, missing explains what was looked
// for. A nil allowed allows every name. A nonempty executable, which is a name or an absolute path, restricts the choice
// to it.
func (i Installed) Choose(runtime, executable string, allowed func(name string) bool) (choice Choice, missing string) {
	r, ok := Lookup(runtime)
	if !ok {
		return Choice{}, fmt.Sprintf("unknown runtime %q", runtime)
	}
	if strings.Contains(executable, "/") && !filepath.IsAbs(executable) {
		return Choice{}, fmt.Sprintf("executable %q must be a name or an absolute path", executable)
	}
	name := executable
	if executable != "" {
		name = filepath.Base(executable)
	}
	tried := &attempt{runtime: r, executable: executable, ways: r.waysOf(name), search: i.current(true)}
	c, ok := tried.choose(name, allowed)
	if !ok {
		return Choice{}, tried.missing()
	}
	return c, ""
}

// An attempt is one call of Choose.
type attempt struct {
	runtime    Runtime
	executable string // as requested
	ways       []way  // ways that may use executable
	search     *search
	names      []string // names looked for
	against    []string // programs found, and why each was rejected
}

// choose returns the first usable program with the given name, or of any way if name is "".
func (a *attempt) choose(name string, allowed func(name string) bool) (Choice, bool) {
	for _, w := range a.ways {
		want := cmp.Or(name, w.program)
		if allowed != nil && !allowed(want) {
			continue
		}
		a.names = append(a.names, want)
		paths := a.search.all(want)
		if filepath.IsAbs(a.executable) {
			paths = []string{filepath.Clean(a.executable)}
		}
		for _, path := range paths {
			if c, ok := a.try(w, want, path); ok {
				return c, true
			}
		}
	}
	return Choice{}, false
}

// try returns the choice of the program at path, or records why it is rejected.
func (a *attempt) try(w way, name, path string) (Choice, bool) {
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

// missing explains what was looked for, where, and why it was rejected.
func (a *attempt) missing() string {
	if len(a.ways) == 0 {
		return fmt.Sprintf("%q does not run %s: use one of %s", a.executable, a.runtime.Name,
			strings.Join(a.runtime.Candidates(), ", "))
	}
	if len(a.names) == 0 {
		return fmt.Sprintf("no program that runs %s is allowed: allow one of %s", a.runtime.Name,
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
		b.WriteString("; rejected " + why)
	}
	return b.String() + "\nhint: " + a.runtime.Remedy()
}
