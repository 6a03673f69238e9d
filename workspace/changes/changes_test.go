package changes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/job"
	"corral/workspace/changes/stream"
)

func TestList(t *testing.T) {
	w := newWorld(t, func(dir string) {
		write(t, dir, "a", "a\n")
		write(t, dir, "d/b", "four")
	})
	got, err := List(t.Context(), w, w.layer, 0)
	if check(t, err); got.Entries == nil || len(got.Entries) != 0 || got.More != 0 || got.Incomplete {
		t.Errorf("%+v", got)
	}
	write(t, w.merged, "a", "A\nA\n")
	write(t, w.merged, "n\n", "")
	write(t, w.merged, ".vscode/x", "")
	check(t, os.RemoveAll(filepath.Join(w.merged, "d")), os.Symlink("a", filepath.Join(w.merged, "l")))
	got, err = List(t.Context(), w, w.layer, 0)
	want := []job.Change{
		{Path: ".vscode", Kind: job.ChangeAdded, Type: job.TypeDirectory, Sensitive: true},
		{Path: ".vscode/x", Kind: job.ChangeAdded, Type: job.TypeFile, Sensitive: true},
		{Path: "a", Kind: job.ChangeModified, Type: job.TypeFile, Bytes: 4},
		{Path: "d", Kind: job.ChangeDeleted, Type: job.TypeDirectory, Bytes: 4},
		{Path: "l", Kind: job.ChangeAdded, Type: job.TypeLink, Bytes: 1},
		{Path: "n\n", Kind: job.ChangeAdded, Type: job.TypeFile},
	}
	if check(t, err); !slices.Equal(got.Entries, want) || got.Bytes != 9 {
		t.Errorf("%+v", got)
	}
	got, err = List(t.Context(), w, w.layer, 2)
	if check(t, err); !slices.Equal(got.Entries, want[:2]) || got.More != 4 || got.Bytes != 9 {
		t.Errorf("%+v", got)
	}
	for _, spec := range w.specs {
		if spec.Workspace != job.ReadOnly || spec.Repo != w.repo || spec.Claim != w.layer.Claim {
			t.Errorf("%+v", spec)
		}
	}
}

func TestApply(t *testing.T) {
	w := newWorld(t, func(dir string) {
		write(t, dir, "a", "a\n")
		write(t, dir, "b", "b\n")
	})
	write(t, w.merged, "a", "A\n")
	write(t, w.merged, "b", "B\n")
	apply := func(dry bool, paths ...string) (states string, sum *stream.Sum) {
		t.Helper()
		var all []string
		sum, err := Apply(t.Context(), w, w.layer, stream.Digest{}, dry, paths, func(e *stream.Entry) error {
			all = append(all, fmt.Sprintf("%s %s %d", e.Kind, e.Path, e.State))
			return nil
		}, func(c stream.Conflict) error {
			all = append(all, "conflict "+c.Path)
			return nil
		})
		check(t, err)
		return strings.Join(all, ", "), sum
	}
	if got, sum := apply(true); got != "modified a 2, modified b 2" || sum.Entries != 2 || sum.Applied != 0 {
		t.Errorf("%s %+v", got, sum)
	}
	if got, sum := apply(false, "a"); got != "modified a 1" || sum.Applied != 1 {
		t.Errorf("%s %+v", got, sum)
	}
	write(t, w.repo, "b", "mine\n")
	if got, sum := apply(false); got != "conflict b" || sum.Conflicts != 1 || sum.Applied != 0 {
		t.Errorf("%s %+v", got, sum)
	}
	if got := tree(t, w.repo); got["a"] != "100644 A\n" || got["b"] != "100644 mine\n" {
		t.Errorf("%q", got)
	}
	var spaces []job.Workspace
	for _, spec := range w.specs {
		spaces = append(spaces, spec.Workspace)
	}
	if !slices.Equal(spaces, []job.Workspace{job.ReadOnly, job.Direct, job.Direct}) {
		t.Errorf("%v", spaces)
	}
}

// An answer acts as a tool other than corral-layer.
type answer func(ctx context.Context, stdio job.Stdio) (job.Result, error)

func (f answer) Run(ctx context.Context, _ job.Spec, stdio job.Stdio) (job.Result, error) {
	defer stdio.Stdout.Close()
	defer stdio.Stderr.Close()
	return f(ctx, stdio)
}

// flood writes a stream of n large entries, or until the context ends.
func flood(ctx context.Context, stdio job.Stdio, n int) (job.Result, error) {
	w := stream.NewWriter(stdio.Stdout)
	for i := 0; i < n && ctx.Err() == nil; i++ {
		_ = w.Entry(&stream.Entry{Path: fmt.Sprint(i), Kind: job.ChangeAdded, Type: job.TypeFile})
		_ = w.Content(stream.Content{New: true})
		_ = w.Data(make([]byte, 1<<20))
	}
	return job.Result{Status: job.Success}, w.End(&stream.Sum{})
}

// TestAnswers checks that malformed, incomplete and excessive answers are errors.
func TestAnswers(t *testing.T) {
	refusal := &job.Refusal{Step: "session", Message: "no such session"}
	for _, tt := range []struct {
		name string
		tool answer
		want string
	}{
		{"refused", func(context.Context, job.Stdio) (job.Result, error) { return job.Result{}, refusal }, "no such session"},
		{"silent", func(context.Context, job.Stdio) (job.Result, error) { return job.Result{Status: job.Lost}, nil }, "changes of session 5e55: corral-layer ended without a complete answer (lost)"},
		{"complains", func(_ context.Context, s job.Stdio) (job.Result, error) {
			_, _ = s.Stderr.WriteString("corral-layer: the layer: gone\n")
			return job.Result{Status: job.Failure}, nil
		}, "changes of session 5e55: the layer: gone"},
		{"at its limit", func(context.Context, job.Stdio) (job.Result, error) {
			return job.Result{Status: job.Failure, Limit: job.LimitMemory}, nil
		}, "changes of session 5e55: the limit of memory was reached"},
		{"no stream", func(_ context.Context, s job.Stdio) (job.Result, error) {
			_, _ = s.Stdout.WriteString(strings.Repeat("x", 100))
			return job.Result{Status: job.Success}, nil
		}, "malformed answer of corral-layer: a record of 2021161080 bytes"},
		{"contents in a list", func(ctx context.Context, s job.Stdio) (job.Result, error) { return flood(ctx, s, 1) }, "corral-layer returned an unexpected record"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := List(t.Context(), tt.tool, Layer{Session: "5e55", Repo: "/r"}, 0)
			if err == nil || err.Error() != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
	_, err := Patch(t.Context(), answer(func(ctx context.Context, s job.Stdio) (job.Result, error) { return flood(ctx, s, 1<<20) }),
		Layer{}, discard{}, nil)
	if !errors.Is(err, errTooMany) {
		t.Errorf("excessive contents: %v", err)
	}
	many := answer(func(_ context.Context, s job.Stdio) (job.Result, error) {
		w := stream.NewWriter(s.Stdout)
		for range 1000 {
			_ = w.Entry(&stream.Entry{Path: "x", Kind: job.ChangeAdded, Type: job.TypeFile})
		}
		return job.Result{Status: job.Success}, w.End(&stream.Sum{})
	})
	if _, err := List(t.Context(), many, Layer{}, 10); !errors.Is(err, errTooMany) {
		t.Errorf("excessive entries: %v", err)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// TestCancel checks that canceling the context stops the tool.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tool := answer(func(ctx context.Context, _ job.Stdio) (job.Result, error) {
		cancel()
		<-ctx.Done()
		return job.Result{Status: job.Cancelled}, nil
	})
	if _, err := List(ctx, tool, Layer{Session: "5e55"}, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestOf(t *testing.T) {
	now := time.Now()
	if got := Of(job.Session{ID: "i", Repo: "/r", Opened: now}); got.Session != "i" || got.Repo != "/r" || !got.Opened.Equal(now) {
		t.Errorf("%+v", got)
	}
}

// TestDigestTime checks that a review with a digest has as much time as an apply, so that it is not cut.
func TestDigestTime(t *testing.T) {
	w := newWorld(t, func(repo string) { write(t, repo, "a", "a") })
	write(t, w.merged, "a", "A")
	w.layer.Digest = true
	show, err := Show(t.Context(), w, w.layer, 1, nil, func(*stream.Entry) error { return nil })
	check(t, err)
	diff, err := Patch(t.Context(), w, w.layer, io.Discard, nil)
	check(t, err)
	if show.Digest != diff.Digest || show.Digest == (stream.Digest{}) {
		t.Errorf("%v, %v", show.Digest, diff.Digest)
	}
	for _, spec := range w.specs {
		if !slices.Contains(spec.Args, "-time=1h0m0s") {
			t.Errorf("%q", spec.Args)
		}
	}
}
