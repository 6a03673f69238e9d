package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// profiles adds up the coverage profiles of many test processes.
type profiles struct {
	mu     sync.Mutex
	blocks map[string]block // guarded by mu; by the place of the block: "corral/job/queue.go:1.2,3.4"
}

type block struct {
	statements int
	covered    bool
}

// add adds the profile of one process. A process that was killed has none.
func (p *profiles) add(file string) error {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.blocks == nil {
		p.blocks = map[string]block{}
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line) // place, statements, count
		if len(f) != 3 {
			continue // the mode
		}
		n, err := strconv.Atoi(f[1])
		if err != nil {
			return fmt.Errorf("%s: %q", file, line)
		}
		p.blocks[f[0]] = block{n, p.blocks[f[0]].covered || f[2] != "0"}
	}
	return nil
}

// write writes the total to a file for `go tool cover`, and the coverage of each package to out.
func (p *profiles) write(file string, out io.Writer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	type share struct{ covered, all int }
	packages := map[string]share{}
	var text strings.Builder
	text.WriteString("mode: set\n")
	for _, place := range slices.Sorted(maps.Keys(p.blocks)) {
		b := p.blocks[place]
		name, _, _ := strings.Cut(place, ":")
		s := packages[path.Dir(name)]
		s.all += b.statements
		count := 0
		if b.covered {
			s.covered += b.statements
			count = 1
		}
		packages[path.Dir(name)] = s
		fmt.Fprintf(&text, "%s %d %d\n", place, b.statements, count)
	}
	var list strings.Builder
	list.WriteString("\ncoverage:\n")
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		s := packages[name]
		fmt.Fprintf(&list, "  %5.1f %%  %s\n", 100*float64(s.covered)/float64(max(s.all, 1)), short(name))
	}
	_, err := io.WriteString(out, list.String())
	return errors.Join(err, os.WriteFile(file, []byte(text.String()), 0o644))
}
