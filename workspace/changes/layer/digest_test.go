package layer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/workspace/changes/stream"
)

// digest returns the digest at the end of a run.
func (w *world) digest(args ...string) stream.Digest {
	w.t.Helper()
	all := w.run(args...)
	if all.sum.Digest == (stream.Digest{}) {
		w.t.Fatalf("%q: no digest: %+v", args, all.sum)
	}
	return all.sum.Digest
}

// TestDigest checks that all commands give the same digest for the same changes, whatever they list, and that each
// change of the result of an apply changes it.
func TestDigest(t *testing.T) {
	w := newWorld(t, project(t))
	m := at{t, w.merged}
	edits := []func(){
		func() { m.write("new", "1\n") },
		func() { m.write("new", "2\n") }, // the same size
		func() { m.write("b", "TWO\n") },
		func() { m.chmod("run", 0o755) },
		func() { m.chmod("new", 0o600) },
		func() { m.link("b", "to") },
		func() { m.remove("to"); m.link("a", "to") },
		func() { m.mkdir("made") },
		func() { m.chmod("made", 0o700) },
		func() { m.remove("d") },
		func() { m.write("d", "a file\n") },
		func() { m.remove("empty") },
		func() { m.mkdir("empty/d"); m.write("empty/d/x", "x\n") },
		func() { check(t, os.Truncate(m.path("new"), 1<<40)) },
		func() {
			f, err := os.OpenFile(m.path("new"), os.O_WRONLY, 0)
			check(t, err)
			_, err = f.WriteAt([]byte("x"), 1<<39)
			check(t, err, f.Close())
		},
		func() { m.remove("e") },
	}
	seen := map[stream.Digest]int{}
	for i, edit := range edits {
		edit()
		d := w.digest("list", "-digest")
		if before, ok := seen[d]; ok {
			t.Errorf("the digest after edit %d equals that after edit %d", i, before)
		}
		seen[d] = i
		for _, args := range [][]string{{"list", "-digest", "-most=1"}, {"diff", "-digest"}, {"apply", "-dry-run", "-digest"}} {
			if got := w.digest(args...); got != d {
				t.Errorf("after edit %d: %q has %v, list %v", i, args, got, d)
			}
		}
	}
	if all := w.run("list"); all.sum.Digest != (stream.Digest{}) {
		t.Error("digest without -digest")
	}
	// The digest of some paths does not depend on other paths.
	some := w.digest("list", "-digest", "made", "d")
	m.write("other", "x")
	if w.digest("diff", "-digest", "made", "d") != some || w.digest("apply", "-dry-run", "-digest", "d", "made") != some || w.digest("list", "-digest", "made") == some {
		t.Error("the digests of the same paths differ, or that of fewer paths is equal")
	}
	// Holes equal zeros, and rewriting a file with the same content does not change the digest.
	m.write("zeros", strings.Repeat("\x00", 3*digestBlock)+"end")
	full := w.digest("list", "-digest", "zeros")
	m.remove("zeros")
	f, err := os.OpenFile(m.path("zeros"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	check(t, err, unix.Chmod(m.path("zeros"), 0o644))
	_, err = f.WriteAt([]byte("end"), 3*digestBlock)
	check(t, err, f.Close())
	if w.digest("list", "-digest", "zeros") != full {
		t.Error("the digest of a hole differs from that of zeros")
	}
}

// TestExpect checks that nothing is applied unless the changes have the expected digest.
func TestExpect(t *testing.T) {
	w := newWorld(t, project(t))
	m := at{t, w.merged}
	m.write("b", "GOOD\n")
	m.write("d/new", "x\n")
	reviewed := w.digest("diff", "-digest")
	m.write("b", "EVIL\n") // by a job between diff and apply
	before := tree(t, w.repo)
	for _, args := range [][]string{{"apply", "-expect=" + reviewed.String()}, {"apply", "-dry-run", "-expect=" + reviewed.String()}, {"apply", "-expect=" + reviewed.String(), "d"}} {
		all := w.run(args...)
		if all.sum.Applied != 0 || !strings.Contains(all.sum.Failed, "expected digest") || all.sum.Digest == reviewed {
			t.Errorf("%q: %+v", args, all.sum)
		}
	}
	same(t, tree(t, w.repo), before)
	if all := w.run("apply", "-expect="+w.digest("list", "-digest").String()); all.sum.Failed != "" || all.sum.Applied != 2 {
		t.Errorf("%+v", all.sum)
	}
	if b, err := os.ReadFile(filepath.Join(w.repo, "b")); string(b) != "EVIL\n" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	m.write("b", "MORE\n")
	check(t, os.Mkdir(m.path("deep"), 0o755))
	for at := "deep"; strings.Count(at, "/") < 300; at += "/d" {
		check(t, os.MkdirAll(m.path(at), 0o755))
	}
	all := w.run("apply", "-expect="+reviewed.String())
	if all.sum.Applied != 0 || !strings.Contains(all.sum.Failed, "not everything could be examined") {
		t.Errorf("%+v", all.sum)
	}
	for _, bad := range []string{"", "12", strings.Repeat("0", 64), strings.Repeat("x", 64)} {
		if err := Run(t.Context(), w.args([]string{"apply", "-expect=" + bad}), os.Stderr); err == nil {
			t.Errorf("digest %q was accepted", bad)
		}
	}
}

// TestExpectCopied checks that nothing else is copied than what has the expected digest, if somebody writes to the layer
// after the digest was compared: a job can have passed on a descriptor of a file.
func TestExpectCopied(t *testing.T) {
	w := newWorld(t, project(t))
	m := at{t, w.merged}
	m.write("aa", "first\n")
	m.write("b", "GOOD\n")
	for n := range 2000 { // these are applied before b, which is altered
		m.write(fmt.Sprintf("z%d", n), "x")
	}
	held, err := os.OpenFile(m.path("b"), os.O_WRONLY, 0)
	check(t, err)
	defer held.Close()
	reviewed := w.digest("diff", "-digest")
	done := make(chan error)
	go func() {
		var err error
		for err = os.ErrNotExist; err != nil; _, err = os.Lstat(filepath.Join(w.repo, "aa")) {
			if t.Context().Err() != nil {
				break
			}
		}
		_, err = held.WriteAt([]byte("EVIL\n"), 0)
		done <- err
	}()
	all := w.run("apply", "-expect="+reviewed.String())
	check(t, <-done)
	if b, err := os.ReadFile(filepath.Join(w.repo, "b")); string(b) == "EVIL\n" || err != nil {
		t.Errorf("%q, %v: %+v %q", b, err, all.sum, conflicts(all))
	}
	if got := conflicts(all); len(got) > 0 && !slices.Equal(got, []string{"b: moving"}) {
		t.Errorf("%q", got)
	}
}

// TestDigestUnbounded checks that a list and a diff that are cut, in entries or in the bytes to compare, have the digest
// of all changes.
func TestDigestUnbounded(t *testing.T) {
	w := newWorld(t, project(t))
	m := at{t, w.merged}
	for _, name := range []string{"b", "d/x", "n/1", "n/2", "n/3"} {
		m.write(name, "TWO\n"+name)
	}
	m.write("a", "one\n")
	want := w.digest("apply", "-dry-run", "-digest")
	o := Options{Layer: filepath.Dir(w.upper), Repo: w.repo, Digest: true, Bounds: Bounds{Bytes: 8, List: 2, File: 1, Diff: 1}}
	for name, run := range map[string]func(context.Context, Options, *stream.Writer) error{"list": List, "diff": Diff} {
		var out bytes.Buffer
		check(t, run(t.Context(), o, stream.NewWriter(&out)))
		if all := readAll(t, out.Bytes()); all.sum.Digest != want || all.sum.More == 0 {
			t.Errorf("%s: %+v, want digest %v", name, all.sum, want)
		}
	}
}
