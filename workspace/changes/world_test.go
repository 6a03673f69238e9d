package changes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
	"corral/workspace/changes/layer"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.PrivateMounts(m)) }

// A world is a repository with a session's overlay, and the runner of the session's tools.
type world struct {
	t                   testing.TB
	repo, merged, upper string
	layer               Layer
	specs               []job.Spec
}

func newWorld(t testing.TB, build func(dir string)) *world {
	t.Helper()
	w := &world{t: t, repo: filepath.Join(t.TempDir(), "repo")}
	check(t, os.Mkdir(w.repo, 0o755))
	build(w.repo)
	written := time.Now()
	sandboxtest.Eventually(t, time.Minute, "a clock tick", func() bool { return fileTime(t).After(written) })
	w.layer = Layer{Session: "5e55", Repo: w.repo, Opened: fileTime(t), Claim: job.Claim{Tool: "changes"}}
	w.merged, w.upper = sandboxtest.Overlay(t, w.repo)
	return w
}

// fileTime returns the time of the coarse clock, as file systems do.
func fileTime(t testing.TB) time.Time {
	t.Helper()
	var ts unix.Timespec
	check(t, unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts))
	return time.Unix(ts.Unix())
}

// Run implements job.Runner: the tool runs in this process.
func (w *world) Run(ctx context.Context, spec job.Spec, stdio job.Stdio) (job.Result, error) {
	defer stdio.Stdout.Close()
	defer stdio.Stderr.Close()
	w.specs = append(w.specs, spec)
	if spec.Tool != job.ToolChanges || spec.Session != w.layer.Session || spec.Args[0] != "changes" {
		return job.Result{}, errors.New("unexpected job")
	}
	args := append([]string{spec.Args[1], "-layer=" + filepath.Dir(w.upper)}, spec.Args[2:]...)
	if err := layer.Run(ctx, args, stdio.Stdout); err != nil {
		_, _ = stdio.Stderr.WriteString("corral-layer: " + err.Error() + "\n")
		return job.Result{Status: job.Failure, ExitCode: 1}, nil
	}
	return job.Result{Status: job.Success}, nil
}

func check(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, root, name, content string) {
	t.Helper()
	path := filepath.Join(root, name)
	check(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644))
}

// tree describes a tree as far as git tracks it: files with their execute permission, and links.
func tree(t testing.TB, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	check(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		if d.Type() == os.ModeSymlink {
			to, err := os.Readlink(path)
			all[name] = "-> " + to
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		all[name] = gitMode(job.TypeFile, uint32(info.Mode().Perm())) + " " + string(b)
		return err
	}))
	return all
}

func same(t testing.TB, got, want map[string]string) {
	t.Helper()
	for path, s := range want {
		if got[path] != s {
			t.Errorf("%q: got %.200q, want %.200q", path, got[path], s)
		}
	}
	for path, s := range got {
		if _, ok := want[path]; !ok {
			t.Errorf("unexpected %q: %.200q", path, s)
		}
	}
}
