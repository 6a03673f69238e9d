package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// small is a root file system, and smallTree the listing of its archive.
func small() []*tar.Header {
	return []*tar.Header{
		dir("etc"), text("etc/passwd", "root"), dir("usr"), dir("usr/bin"), text("usr/bin/sh", "#!"),
		link("usr/bin/dash", "usr/bin/sh"), symlink("bin", "usr/bin"), symlink("etc/mtab", "/proc/self/mounts"), text("empty", ""),
	}
}

func smallTree() map[string]string {
	return map[string]string{
		"etc": "/755", "etc/passwd": "root", "etc/mtab": "-> /proc/self/mounts", "usr": "/755", "usr/bin": "/755",
		"usr/bin/dash": "#!", "usr/bin/sh": "= usr/bin/dash", "bin": "-> usr/bin", "empty": "",
	}
}

func sameListing(t *testing.T, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if g, ok := got[name]; !ok || g != want[name] {
			t.Errorf("%q: got %q, %t, want %q", name, g, ok, want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("unexpected %q: %q", name, got[name])
		}
	}
}

// TestKinds checks that a root file system gives the same tree in each format.
func TestKinds(t *testing.T) {
	layoutDir := layoutOf(t, imageOf(t, small()[:3], small()[3:]))
	directory := unpackedFrom(t, archive(t, small()...))
	root := archive(t, small()...)
	tests := []struct {
		name, kind, path string
	}{
		{"directory", "directory", directory},
		{"tar", "tar archive", written(t, root)},
		{"tar.gz", "tar archive", written(t, gzipped(t, root))},
		{"tar.zst", "tar archive", written(t, zstandard(t, root))},
		{"layout", "OCI layout", layoutDir},
		{"layout.tar", "OCI layout", written(t, tarred(t, layoutDir))},
		{"layout.tar.gz", "OCI layout", written(t, gzipped(t, tarred(t, layoutDir)))},
		{"layout.tar.zst", "OCI layout", written(t, zstandard(t, tarred(t, layoutDir)))},
		{"docker.tar", "docker archive", written(t, dockerSaved(t, imageOf(t, small())))},
		{"docker.tar.gz", "docker archive", written(t, gzipped(t, dockerSaved(t, imageOf(t, small()))))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kind, data, sum, err := flat(t, tt.path, generous)
			if err != nil || kind != tt.kind {
				t.Fatalf("a %s: %v", kind, err)
			}
			got := listing(t, data)
			sameListing(t, got, smallTree())
			unpacked(t, data, sum)
		})
	}
}

// unpackedFrom unpacks an archive to a directory.
func unpackedFrom(t *testing.T, root []byte) string {
	t.Helper()
	_, data, sum, err := flat(t, written(t, root), generous)
	if err != nil {
		t.Fatal(err)
	}
	return unpacked(t, data, sum)
}

func dockerSaved(t *testing.T, i v1.Image) []byte {
	t.Helper()
	ref, err := name.NewTag("example/image:1")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := tarball.Write(ref, i, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestPipe checks that archives are read from a pipe as from a file.
func TestPipe(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for kind, data := range map[string][]byte{"tar archive": archive(t, small()...), "docker archive": gzipped(t, dockerSaved(t, imageOf(t, small())))} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		fed := make(chan error)
		go func() {
			_, err := w.Write(data)
			fed <- errors.Join(err, w.Close())
		}()
		s, err := OpenFile(r, generous)
		if err := errors.Join(err, <-fed); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		_, err = s.Write(&b)
		if err := errors.Join(err, s.Close()); err != nil || s.Kind() != kind {
			t.Fatalf("a %s: %v", s.Kind(), err)
		}
		sameListing(t, listing(t, b.Bytes()), smallTree())
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
			t.Errorf("left in TMPDIR: %v, %v", left, err)
		}
	}
}

// TestLooksLike checks that a root file system is recognized even if it has the files of image formats.
func TestLooksLike(t *testing.T) {
	odd := []*tar.Header{text("oci-layout", "{}"), text("index.json", "{}"), text("manifest.json", "[]"), dir("usr")}
	want := map[string]string{"oci-layout": "{}", "index.json": "{}", "manifest.json": "[]", "usr": "/755"}
	for _, data := range [][]byte{archive(t, odd...), gzipped(t, archive(t, odd...))} {
		kind, data, _, err := flat(t, written(t, data), generous)
		if err != nil || kind != "tar archive" {
			t.Fatalf("a %s: %v", kind, err)
		}
		sameListing(t, listing(t, data), want)
	}
}

// TestChangedMeanwhile checks that a layer that differs when it is read again is an error.
func TestChangedMeanwhile(t *testing.T) {
	large := text("a", strings.Repeat("a", 1<<20))
	path := written(t, archive(t, large, text("b", "second")))
	s, err := Open(path, generous)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	swap := writerFunc(func(p []byte) (int, error) {
		if err := os.WriteFile(path, archive(t, large, text("b", "2nd")), 0o600); err != nil {
			t.Error(err)
		}
		return len(p), nil
	})
	if _, err := s.Write(swap); err == nil || !strings.Contains(err.Error(), "changed while it was read") {
		t.Errorf("got %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestOpen checks the errors for sources that are not root file systems.
func TestOpen(t *testing.T) {
	xz := append([]byte("\xfd7zXZ\x00"), make([]byte, 1000)...)
	for name, tt := range map[string]struct{ path, err string }{
		"nothing there": {"/nonexistent/x", "does not exist"},
		"a device":      {"/dev/null", "must be a directory, a regular file or a pipe"},
		"empty":         {written(t, nil), "the root file system is empty"},
		"no entries":    {written(t, archive(t)), "the root file system is empty"},
		"empty dir":     {t.TempDir(), "the root file system is empty"},
		"text":          {written(t, []byte(strings.Repeat("hello", 1000))), "not a tar archive"},
		"xz":            {written(t, xz), "the compression xz is not supported"},
		"broken gzip":   {written(t, gzipped(t, archive(t, small()...))[:100]), "unexpected EOF"},
		"cut":           {written(t, archive(t, small()...)[:1600]), "unexpected EOF"},
		"layout 2":      {written(t, archive(t, text("oci-layout", `{"imageLayoutVersion":"2.0.0"}`), text("index.json", "{}"))), `version "2.0.0"`},
		"no index":      {written(t, archive(t, text("oci-layout", `{"imageLayoutVersion":"1.0.0"}`), text("index.json", "[]"))), "index.json"},
		"no manifest":   {written(t, archive(t, text("manifest.json", "{}"))), "manifest.json"},
		"large index":   {written(t, archive(t, text("oci-layout", `{"imageLayoutVersion":"1.0.0"}`), text("index.json", strings.Repeat(" ", MaxDocument+1)))), "index.json has 4194305 bytes"},
	} {
		if _, data, _, err := flat(t, tt.path, generous); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, %d bytes", name, err, len(data))
		}
	}
	for _, limits := range []Limits{{}, {Entries: 1}, {Bytes: 1}, {Entries: -1, Bytes: 1}, {Entries: 1, Bytes: 1 << 51}} {
		if _, err := Open(t.TempDir(), Options{Limits: limits}); err == nil {
			t.Errorf("%v was accepted", limits)
		}
	}
}
