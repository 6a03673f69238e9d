package agent

import (
	"fmt"
	"slices"
	"strings"

	"corral/job"
	"corral/mcp/ctxtools"
	"corral/mcp/run"

	safe "corral/internal/text"
)

const (
	// maxLines is the maximum number of lines of a list of changes.
	maxLines = 100
	// maxInDir is the maximum number of changes below a new directory that are lines of their own.
	maxInDir = 20
	// maxName is the maximum length in bytes of a path in a line: a job can make names of 16 KB as they are quoted.
	maxName = 512
)

// A folded is a line of a list of changes: one change, or all of a directory.
type folded struct {
	job.Change
	below int // number of further changes that the line stands for
}

// line returns the line.
func (f folded) line() string {
	name := safe.Cut(safe.Quote(f.Path), maxName)
	if f.Type == job.TypeDirectory {
		name += "/"
	}
	if f.below > 0 {
		name += "  (" + ctxtools.Counted(f.below, "change") + ")"
	}
	if f.Sensitive {
		name += "  (sensitive)"
	}
	return fmt.Sprintf("%-8s %s", f.Kind, name)
}

// writeLines writes at most maxLines lines, each after prefix, and returns how many more there are.
func writeLines(b *strings.Builder, prefix string, lines []folded) (more int) {
	for _, e := range lines[:min(len(lines), maxLines)] {
		b.WriteString(prefix + e.line() + "\n")
	}
	return max(len(lines)-maxLines, 0)
}

// fold makes one line of the changes below a git directory, and one of a new directory with many. Sensitive paths keep their lines.
// What is asked for by name, dir, is not folded itself.
func fold(changes []job.Change, dir string) []folded {
	below := belowNew(changes, dir)
	var lines []folded
	git := map[string]int{} // the line of each git directory
	for _, c := range changes {
		top := run.GitDir(c, dir)
		at, known := git[top]
		switch {
		case c.Sensitive, top == "" && !inside(c.Path, below):
			line := folded{Change: c}
			if n := below[c.Path]; n > maxInDir {
				line.below = n
			}
			lines = append(lines, line)
		case top == "":
		case !known:
			git[top] = len(lines)
			line := folded{Change: job.Change{Path: top, Kind: job.ChangeModified, Type: job.TypeDirectory}}
			if c.Path == top {
				line.Kind = c.Kind
			} else {
				line.below = 1
			}
			lines = append(lines, line)
		default:
			lines[at].below++
		}
	}
	return lines
}

// belowNew returns how many changes are below each new directory but dir.
func belowNew(changes []job.Change, dir string) map[string]int {
	below := map[string]int{}
	for _, c := range changes {
		if c.Kind == job.ChangeAdded && c.Type == job.TypeDirectory && c.Path != dir {
			below[c.Path] = 0
		}
	}
	for _, c := range changes {
		for _, at := range parents(c.Path) {
			if _, ok := below[at]; ok {
				below[at]++
			}
		}
	}
	return below
}

// inside reports whether a path is in a directory that is one line.
func inside(path string, below map[string]int) bool {
	return slices.ContainsFunc(parents(path), func(at string) bool { return below[at] > maxInDir })
}

// parents returns the directories that a path is in, from the outermost.
func parents(p string) []string {
	var list []string
	for n := range len(p) {
		if p[n] == '/' {
			list = append(list, p[:n])
		}
	}
	return list
}
