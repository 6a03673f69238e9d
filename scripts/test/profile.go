package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
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

// coverDir makes the directory of the test process in dir to which test binaries that run as child processes, also of other
// users, write their coverage (GOCOVERDIR). Without it they write a warning to standard error.
func coverDir(dir string) (string, error) {
	path := filepath.Join(dir, "cover")
	return path, errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o777))
}

// addChildren adds what child processes wrote to coverDir(dir).
func (p *profiles) addChildren(ctx context.Context, dir string) error {
	children := filepath.Join(dir, "cover")
	if entries, err := os.ReadDir(children); err != nil || len(entries) == 0 {
		return err
	}
	profile := filepath.Join(dir, "children")
	cmd := exec.CommandContext(ctx, "go", "tool", "covdata", "textfmt", "-i="+children, "-o="+profile)
	// A child that was killed while it wrote has left a file that is not one. Other files are read nevertheless.
	if out, err := cmd.CombinedOutput(); err != nil && len(out) > 0 {
		fmt.Fprintf(os.Stderr, "coverage of child processes: %s\n", out)
	}
	return p.add(profile)
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
