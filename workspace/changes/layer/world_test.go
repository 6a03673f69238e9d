package layer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/workspace/changes/stream"
)

// Environment variables that make the test binary run as the program.
const asTool = "CORRAL_TEST_AS_TOOL"

func TestMain(m *testing.M) {
	if os.Getenv(asTool) != "" {
		unix.Umask(0o22)
		if err := Run(context.Background(), os.Args[1:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(sandboxtest.PrivateMounts(m))
}

// A world is a repository with a session's overlay.
type world struct {
	t                   testing.TB
	repo, merged, upper string
	opened              time.Time
}

// newWorld builds a repository and opens a session on it.
func newWorld(t testing.TB, build func(repo string)) *world {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.FileSystem("overlay"))
	w := &world{t: t, repo: filepath.Join(t.TempDir(), "repo")}
	check(t, os.Mkdir(w.repo, 0o755))
	build(w.repo)
	w.opened = past(t)
	w.merged, w.upper = sandboxtest.Overlay(t, w.repo)
	return w
}

// past waits until files written from now on get a later time than those written so far, and returns that time. Files
// get the time of the coarse clock or, if their times were queried before, of the exact one.
func past(t testing.TB) time.Time {
	t.Helper()
	began, now := time.Now(), fileTime(t)
	if now.After(began) { // on an emulated machine the exact clock may be behind
		began = now
	}
	sandboxtest.Eventually(t, time.Minute, "a clock tick", func() bool {
		now = fileTime(t)
		return now.After(began)
	})
	return now
}

// fileTime returns the time of the coarse clock.
func fileTime(t testing.TB) time.Time {
	t.Helper()
	var ts unix.Timespec
	check(t, unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts))
	return time.Unix(ts.Unix())
}

func check(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// An output is the decoded content of a stream.
type output struct {
	entries   []stream.Entry
	contents  map[string]string // by "old a" or "new a": the content, or why it is omitted
	conflicts []stream.Conflict
	newer     []stream.Newer
	sum       *stream.Sum
}

// run runs the tool in this process.
func (w *world) run(args ...string) *output {
	w.t.Helper()
	var out bytes.Buffer
	if err := Run(w.t.Context(), w.args(args), &out); err != nil {
		w.t.Fatalf("%s: %v", args, err)
	}
	w.fresh()
	return readAll(w.t, out.Bytes())
}

// fresh drops the caches of the overlay, as the supervisor does after a run that writes to the layer.
func (w *world) fresh() {
	w.t.Helper()
	if w.merged == "" {
		return
	}
	fd, err := unix.Fspick(unix.AT_FDCWD, w.merged, unix.FSPICK_CLOEXEC)
	check(w.t, err, unix.FsconfigReconfigure(fd), unix.Close(fd))
}

// args completes a command line of a command, options and paths.
func (w *world) args(args []string) []string {
	n := 1
	for n < len(args) && strings.HasPrefix(args[n], "-") {
		n++
	}
	all := append(slices.Clone(args[:n]), "-layer", filepath.Dir(w.upper), "-opened", fmt.Sprint(w.opened.UnixNano()), w.repo)
	return append(all, args[n:]...)
}

func readAll(t testing.TB, b []byte) *output {
	t.Helper()
	r := stream.NewReader(bytes.NewReader(b))
	all := &output{contents: map[string]string{}}
	key := ""
	for all.sum == nil {
		rec, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		switch rec := rec.(type) {
		case *stream.Entry:
			all.entries = append(all.entries, *rec)
		case stream.Content:
			key = map[bool]string{false: "old ", true: "new "}[rec.New] + all.entries[len(all.entries)-1].Path
			all.contents[key] = ""
			if rec.Left != stream.Here {
				all.contents[key] = fmt.Sprintf("left out: %d", rec.Left)
			}
		case []byte:
			all.contents[key] += string(rec)
		case stream.Conflict:
			all.conflicts = append(all.conflicts, rec)
		case stream.Newer:
			all.newer = append(all.newer, rec)
		case *stream.Sum:
			all.sum = rec
		}
	}
	return all
}

// lines returns the entries in short form.
func (a *output) lines() []string {
	var lines []string
	for _, e := range a.entries {
		s := fmt.Sprintf("%s %s %s", e.Kind, e.Type, e.Path)
		if e.OldType != "" && e.OldType != e.Type {
			s += " was " + string(e.OldType)
		}
		if e.Sensitive {
			s += " !"
		}
		lines = append(lines, s)
	}
	slices.Sort(lines)
	return lines
}

// tree describes everything below a directory: type, permissions and content of each path.
func tree(t testing.TB, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		s := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			s += fmt.Sprintf(" %d %x", len(b), sha256.Sum256(b))
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			s = "-> " + to
		}
		all[strings.TrimPrefix(path, root+"/")] = s
		return nil
	})
	check(t, err)
	return all
}

// same reports the differences of two trees.
func same(t testing.TB, got, want map[string]string) {
	t.Helper()
	var wrong []string
	for path, s := range want {
		if got[path] != s {
			wrong = append(wrong, fmt.Sprintf("%q: got %q, want %q", path, got[path], s))
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			wrong = append(wrong, fmt.Sprintf("%q is left: %s", path, got[path]))
		}
	}
	slices.Sort(wrong)
	for _, s := range wrong[:min(len(wrong), 20)] {
		t.Error(s)
	}
}

// applied applies everything, and checks that the repository equals the jobs' view and that no change is left.
func (w *world) applied() *output {
	w.t.Helper()
	want := tree(w.t, w.merged)
	all := w.run("apply")
	if len(all.conflicts) > 0 || all.sum.Failed != "" {
		w.t.Fatalf("not applied: %v, %+v", all.conflicts, all.sum)
	}
	same(w.t, tree(w.t, w.repo), want)
	for _, word := range []string{"list", "apply"} {
		if again := w.run(word); len(again.entries)+len(again.conflicts) > 0 || again.sum.Failed != "" || again.sum.Incomplete {
			w.t.Fatalf("%s afterwards: %v %v %+v", word, again.lines(), again.conflicts, again.sum)
		}
	}
	return all
}
