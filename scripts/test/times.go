package main

import (
	_ "embed"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// times stores how many seconds each machine test took, so that the next run begins with the longest. Nothing else depends
// on them.
type times struct {
	file string

	mu      sync.Mutex
	seconds map[string]float64 // guarded by mu; by package and name
}

// usualTimes are the seconds of slow tests, for a first run: one line per test.
//
//go:embed times.txt
var usualTimes string

const (
	usualSeconds = 0.4 // of a test that nobody measured
	batchSeconds = 6   // of a batch: starting a machine takes a tenth of a second
)

func loadTimes(dir string) *times {
	t := &times{file: filepath.Join(dir, "times.json"), seconds: map[string]float64{}}
	for line := range strings.Lines(usualTimes) {
		if f := strings.Fields(line); len(f) == 2 {
			t.seconds[f[0]], _ = strconv.ParseFloat(f[1], 64)
		}
	}
	if b, err := os.ReadFile(t.file); err == nil {
		_ = json.Unmarshal(b, &t.seconds) // without them the order is another, that is all
	}
	return t
}

func (t *times) add(p testPackage, test string, seconds float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seconds[p.short()+"."+test] = seconds
}

func (t *times) save() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b, err := json.MarshalIndent(t.seconds, "", " "); err == nil {
		_ = os.WriteFile(t.file, b, 0o644)
	}
}

func (t *times) of(p testPackage, test string) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.seconds[p.short()+"."+test]; ok {
		return s
	}
	return usualSeconds
}

// sum returns how long the tests of a package take that were measured.
func (t *times) sum(p testPackage) (seconds float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, s := range t.seconds {
		if pkg, _, _ := strings.Cut(name, ".Test"); pkg == p.short() {
			seconds += s
		}
	}
	return seconds
}

// divide makes batches of a package's tests. None is much longer than batchSeconds unless a single test is.
func (t *times) divide(p testPackage, tests []string) []batch {
	tests = slices.Clone(tests)
	slices.SortStableFunc(tests, func(a, b string) int {
		switch ta, tb := t.of(p, a), t.of(p, b); {
		case ta > tb:
			return -1
		case ta < tb:
			return 1
		}
		return 0
	})
	var list []batch
	for len(tests) > 0 {
		b := batch{pkg: p}
		for len(tests) > 0 && (len(b.tests) == 0 || b.weight+t.of(p, tests[0]) <= batchSeconds) {
			b.tests = append(b.tests, tests[0])
			b.weight += t.of(p, tests[0])
			tests = tests[1:]
		}
		list = append(list, b)
	}
	return list
}
