package scan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"

	"golang.org/x/sys/unix"
)

// TestBounds: reaching each bound makes a report Incomplete, and later calls continue.
func TestBounds(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, "for i in 1 2 3 4 5 6 7 8 9; do mkdir -p $i/$i; done; mkdir .git; echo > .git/config")
	t.Run("dirs", func(t *testing.T) {
		s := scanner(t, dir, Bounds{MaxDirs: 5})
		if rep := baseline(t, s); !rep.Incomplete {
			t.Errorf("report = %+v", rep)
		}
		since := settle()
		shell(t, dir, "echo x > .git/config")
		if rep := changed(t, s, since); !slices.Equal(rep.Paths, []string{".git/config"}) || !rep.Incomplete {
			t.Errorf("a sensitive directory was crowded out: %+v", rep)
		}
		if _, _, err := s.Usage(time.Time{}); !errors.Is(err, ErrIncomplete) {
			t.Errorf("Usage: %v", err)
		}
	})
	t.Run("entries, then on", func(t *testing.T) {
		settle() // the changes above are before this scanner's time, also where times are coarse
		s := scanner(t, dir, Bounds{MaxEntries: 14})
		if rep := baseline(t, s); !rep.Incomplete {
			t.Errorf("report = %+v", rep)
		}
		since := settle()
		shell(t, dir, "for i in 1 2 3 4 5 6 7 8 9; do echo x > $i/$i/.envrc; done")
		var paths, want []string
		for i := range 9 {
			want = append(want, fmt.Sprintf("%d/%d/.envrc", i+1, i+1))
		}
		for i := 0; ; i++ {
			rep := changed(t, s, since.Add(time.Duration(i)*time.Hour)) // later jobs
			paths = append(paths, rep.Paths...)
			if !rep.Incomplete {
				break
			}
			if i == 10 {
				t.Fatal("no progress")
			}
		}
		slices.Sort(paths)
		if !s.exact {
			paths = slices.Compact(paths) // a recent change may be reported twice
		}
		if !slices.Equal(paths, want) {
			t.Errorf("Paths = %q", paths)
		}
	})
	t.Run("entries, a crowded root", func(t *testing.T) {
		dir := t.TempDir()
		shell(t, dir, "mkdir -p .git z/.git; echo > .git/config; echo > z/.git/config; echo > 0.txt")
		s := scanner(t, dir, Bounds{MaxEntries: 10_000})
		baseline(t, s)
		since := settle()
		// Names of one file: ext4 without a journal takes seconds to find an inode once as many were removed.
		for i := range 20_000 {
			if err := os.Link(filepath.Join(dir, "0.txt"), filepath.Join(dir, fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		shell(t, dir, "echo x > .git/config; echo x > z/.git/config; echo > z/.envrc")
		rep := changed(t, s, since)
		if !slices.Equal(rep.Paths, []string{".git/config", "z/.envrc", "z/.git/config"}) || !rep.Incomplete {
			t.Errorf("report = %+v", rep)
		}
	})
	t.Run("time", func(t *testing.T) {
		s := scanner(t, dir, Bounds{Time: 1})
		if _, err := s.Baseline(); err != nil { // too few entries for the clock to be read, or incomplete
			t.Fatal(err)
		}
	})
}

// TestFlood: many changes of one kind do not displace a change of another kind from the report.
func TestFlood(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, "mkdir -p .git/hooks")
	s := scanner(t, dir, Bounds{MaxReport: 10})
	baseline(t, s)
	since := settle()
	n := max(sandboxtest.Scale(20_000), 100)
	if err := os.Mkdir(filepath.Join(dir, ".claude"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		name := filepath.Join(dir, ".claude", fmt.Sprint(i))
		if err := unix.Mknod(name, unix.S_IFREG|0o644, 0); err != nil {
			t.Fatal(err)
		}
	}
	shell(t, dir, "echo > .git/hooks/pre-commit; echo > .npmrc")
	start := time.Now()
	rep := changed(t, s, since)
	t.Logf("%d new sensitive files: %v", n, time.Since(start))
	if len(rep.Paths) != 10 || rep.More != n+2-10 || rep.Incomplete {
		t.Errorf("%d paths, %d more, incomplete %v", len(rep.Paths), rep.More, rep.Incomplete)
	}
	for _, p := range []string{".git/hooks/pre-commit", ".npmrc"} {
		if !slices.Contains(rep.Paths, p) {
			t.Errorf("the flood hides %s: %q", p, rep.Paths)
		}
	}
	// Where times come from a tick, files made at a full second look as if their times had no fraction, and may be
	// reported again.
	if rep := changed(t, s, settle()); s.exact && (rep.Paths != nil || rep.More != 0) {
		t.Errorf("reported again: %+v", rep)
	}
	same(t, s)
}

// TestTracked: sensitive files beyond maxTracked are still reported by their time.
func TestTracked(t *testing.T) {
	dir := t.TempDir()
	s := scanner(t, dir, Bounds{})
	baseline(t, s)
	s.tracked = maxTracked
	since := settle()
	shell(t, dir, "echo > .envrc")
	for range 2 {
		if rep := changed(t, s, since); !slices.Equal(rep.Paths, []string{".envrc"}) || !rep.Incomplete {
			t.Errorf("report = %+v", rep)
		}
	}
}

// TestAnswerFlood: long paths do not displace others, including those of the common git directory: an answer leaves out
// what a report lists last.
func TestAnswerFlood(t *testing.T) {
	dir, common := t.TempDir(), t.TempDir()
	shell(t, dir, "mkdir -p z/.git/hooks")
	shell(t, common, "mkdir -p hooks")
	s := serving(t, dir)
	opened, err := os.Open(common)
	must(t, err)
	s.path = common
	s.common, err = NewGitDir(opened, Bounds{})
	must(t, err)
	ask(t, s, OpBaseline, time.Time{})
	since := settle()
	const flood = 92
	for i := range flood { // long paths, and deeper ones that fill the rest
		name := strings.Repeat(strings.Repeat("a", 200)+"/", 4)
		if i >= 42 {
			name = "c/c/c/c/c/c"
		}
		shell(t, dir, fmt.Sprintf("mkdir -p %s%d; echo >%s%d/.envrc", name, i, name, i))
	}
	shell(t, dir, "echo >z/.git/hooks/update; echo >zz.code-workspace; echo >.envrc")
	shell(t, common, "echo >hooks/post-merge")
	a, got := ask(t, s, OpChanged, since)
	for _, want := range []string{"z/.git/hooks/update", "zz.code-workspace", ".envrc", common + "/hooks/post-merge"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s was left out", want)
		}
	}
	if len(got)+int(a.More) != flood+4 || len(a.Paths) < MaxPaths-50 || len(a.Paths) > MaxPaths {
		t.Errorf("%d paths of %d bytes, %d more", len(got), len(a.Paths), a.More)
	}
}
