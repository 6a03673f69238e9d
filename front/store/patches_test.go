package store

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"corral/internal/config"
	"corral/job"
	"corral/store/artifact"
	"corral/workspace/changes/stream"
)

// A fakeLayer is a runner that acts as corral-layer in a session with new files.
type fakeLayer struct {
	files []string // contents of files named a, b, …
	err   error
	asked []string // the tools that were called
}

func (r *fakeLayer) Run(_ context.Context, spec job.Spec, stdio job.Stdio) (job.Result, error) {
	defer stdio.Stdout.Close()
	defer stdio.Stderr.Close()
	r.asked = append(r.asked, spec.Args[1]+" for "+spec.Claim.Tool)
	if r.err != nil {
		return job.Result{}, r.err
	}
	w := stream.NewWriter(stdio.Stdout)
	var sum stream.Sum
	for i, text := range r.files {
		size := int64(len(text))
		sum.Entries++
		sum.Bytes += size
		_ = w.Entry(&stream.Entry{Path: string(rune('a' + i)), Kind: job.ChangeAdded, Type: job.TypeFile, Mode: 0o644, Size: size})
		if spec.Args[1] == "list" && !strings.Contains(strings.Join(spec.Args, " "), " -contents=") {
			continue
		}
		left := stream.Here
		if size > 64<<10 && spec.Args[1] == "list" {
			left, text = stream.TooLarge, ""
		}
		_ = w.Content(stream.Content{New: true, Left: left})
		_ = w.Data([]byte(text))
	}
	return job.Result{Status: job.Success}, w.End(&sum)
}

// of returns a job of a client in a session.
func (r *fakeLayer) of(session string) job.Spec {
	return job.Spec{Session: session, Repo: "/app", Claim: job.Claim{Repo: "app", Principal: "user:ada", Artifact: "runtime-app-x"}}
}

func (r *fakeLayer) patches(t *testing.T, change func(*config.Config)) *Patches {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil { // others may not access a state directory
		t.Fatal(err)
	}
	c := config.Default()
	if change != nil {
		change(&c)
	}
	a := NewArtifacts(c, slog.New(slog.DiscardHandler), func() (*os.File, error) { return os.Open(dir) }, nil)
	t.Cleanup(a.Close)
	return New(r, a)
}

func (p *Patches) read(t *testing.T, principal, repo, handle string) error {
	t.Helper()
	_, err := p.Query(t.Context(), artifact.Query{
		Reader: artifact.Reader{Principal: principal, Repos: []string{repo}}, Handle: handle, Terms: []string{"x"}, Excerpts: 1,
	})
	return err
}

func list(t *testing.T, p *Patches, spec job.Spec) *job.Changes {
	t.Helper()
	c, err := p.List(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPatches checks that there is one artifact for each state of each session, and none without changes.
func TestPatches(t *testing.T) {
	r := &fakeLayer{}
	p := r.patches(t, nil)
	if c := list(t, p, r.of("1")); c.Patch != "" || c.PatchReason != "" {
		t.Errorf("of nothing: %+v", c)
	}
	r.files = []string{"x\n"}
	first := list(t, p, r.of("1")).Patch
	if again := list(t, p, r.of("1")).Patch; again != first || first == "" {
		t.Errorf("%q, then %q", first, again)
	}
	if other := list(t, p, r.of("2")).Patch; other == first || other == "" {
		t.Errorf("another session: %q", other)
	}
	r.files = []string{"y\n"}
	if next := list(t, p, r.of("1")).Patch; next == first || next == "" {
		t.Errorf("after a change: %q", next)
	}
	for _, who := range [][2]string{{"user:eve", "app"}, {"user:ada", "other"}} {
		if err := p.read(t, who[0], who[1], first); !errors.Is(err, artifact.ErrNotFound) {
			t.Errorf("%q: %v", who, err)
		}
	}
	if err := p.read(t, "user:ada", "app", first); err != nil {
		t.Error(err)
	}
	unkept := r.of("1")
	unkept.Claim.Artifact = ""
	if c := list(t, p, unkept); c.Patch != "" || c.PatchReason != "" || len(c.Entries) != 1 {
		t.Errorf("nothing is to be kept: %+v", c)
	}
}

// TestPatchGone checks that a handle that cannot be read any more is not returned again.
func TestPatchGone(t *testing.T) {
	r := &fakeLayer{files: []string{"x\n"}}
	p := r.patches(t, func(c *config.Config) { c.Artifacts.MaxCount = 1 })
	first := list(t, p, r.of("1")).Patch
	list(t, p, r.of("2"))
	if again := list(t, p, r.of("1")).Patch; again == first || again == "" {
		t.Errorf("%q, then %q", first, again)
	}
}

// TestPatchDue checks that a large patch is made once, when its owner reads it, and that a failure is reported.
func TestPatchDue(t *testing.T) {
	r := &fakeLayer{files: []string{strings.Repeat("x\n", 50_000)}}
	p := r.patches(t, nil)
	first := list(t, p, r.of("1")).Patch
	if again := list(t, p, r.of("1")).Patch; again != first || first == "" || p.artifacts.Has(artifact.Reader{Owner: true}, first) {
		t.Fatalf("%q, then %q", first, again)
	}
	for _, who := range [][2]string{{"user:eve", "app"}, {"user:ada", "other"}} {
		if err := p.read(t, who[0], who[1], first); !errors.Is(err, artifact.ErrNotFound) {
			t.Errorf("%q: %v", who, err)
		}
	}
	for range 2 {
		if err := p.read(t, "user:ada", "app", first); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(r.asked, ", "); got != "list for changes, list for changes, diff for changes diff" {
		t.Errorf("called %s", got)
	}
	next := list(t, p, r.of("1")).Patch
	r.err = errors.New("no such session")
	if err := p.read(t, "user:ada", "app", next); err == nil || next == first || !strings.Contains(err.Error(), "no such session") {
		t.Errorf("%q: %v", next, err)
	}
	if err := p.read(t, "user:ada", "app", next); !errors.Is(err, artifact.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// TestPatchNotKept checks that changes are listed although their patch cannot be stored.
func TestPatchNotKept(t *testing.T) {
	r := &fakeLayer{files: []string{strings.Repeat("x\n", 5000)}}
	p := r.patches(t, func(c *config.Config) { c.Output.Keep = 1 << 10 })
	if c := list(t, p, r.of("1")); c.Patch != "" || len(c.Entries) != 1 || c.PatchReason != "the output could not be stored: it has more than 1024 bytes" {
		t.Errorf("%+v", c)
	}
	p.artifacts = NewArtifacts(config.Default(), slog.New(slog.DiscardHandler), func() (*os.File, error) { return nil, io.ErrUnexpectedEOF }, nil)
	for _, n := range []int{1, 50_000} {
		r.files = []string{strings.Repeat("x\n", n)}
		if c := list(t, p, r.of("2")); c.Patch != "" || c.PatchReason != "there is no directory to store output in" {
			t.Errorf("%+v", c)
		}
	}
}

// TestPatchesBounded checks that the number of promised patches and remembered sessions is bounded.
func TestPatchesBounded(t *testing.T) {
	r := &fakeLayer{files: []string{strings.Repeat("x\n", 50_000)}}
	p := r.patches(t, nil)
	for range maxPatches + 10 {
		if _, err := p.promise(r.of(strings.Repeat("s", len(p.last)+1))); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.due) > maxPatches || len(p.last) > maxPatches {
		t.Errorf("%d promised patches, %d sessions", len(p.due), len(p.last))
	}
}
