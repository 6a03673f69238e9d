package fronttest

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/workspace/image/unpack"
)

// Archive returns an archive of a small root file system made from the host's shell, for job.ToolUnpack, with symbolic links: targets by
// path, relative to the root.
func Archive(t testing.TB, links map[string]string) []byte {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Program("ldd"))
	out, err := exec.Command("ldd", "/bin/sh").Output()
	if err != nil {
		t.Skipf("ldd: %v", err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var entries int64
	made := map[string]bool{".": true}
	write := func(h *tar.Header) {
		entries++
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	var parents func(dir string)
	parents = func(dir string) {
		if !made[dir] {
			made[dir] = true
			parents(filepath.Dir(dir))
			write(&tar.Header{Name: dir + "/", Mode: 0o755, Typeflag: tar.TypeDir})
		}
	}
	add := func(name string, mode int64, content []byte) {
		parents(filepath.Dir(name))
		write(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg})
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	files := []string{"/bin/sh"}
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") {
			files = append(files, word)
		}
	}
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		add(f[1:], 0o755, content)
	}
	add("etc/marker", 0o644, []byte("from the image\n"))
	add("etc/secret", 0o600, []byte("of its root\n"))
	for name, target := range links {
		parents(filepath.Dir(name))
		write(&tar.Header{Name: name, Linkname: target, Mode: 0o777, Typeflag: tar.TypeSymlink})
	}
	if err := w.WriteHeader(unpack.End(entries)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
