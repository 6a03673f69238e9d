package unpack

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestRefused checks that malicious entries are refused, and that nothing is created outside the directory.
func TestRefused(t *testing.T) {
	deep := strings.Repeat("d/", MaxDepth)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		headers []*tar.Header
		err     string
	}{
		{"up", []*tar.Header{file("../x", 0o644)}, "the name must be relative"},
		{"up again", []*tar.Header{dir("a", 0o755), file("a/../../x", 0o644)}, "the name must be relative"},
		{"up and back", []*tar.Header{dir("a", 0o755), file("a/../x", 0o644)}, "the name must be relative"},
		{"absolute", []*tar.Header{file(outside+"/x", 0o644)}, "the name must be relative"},
		{"here", []*tar.Header{file("./x", 0o644)}, "the name must be relative"},
		{"the root", []*tar.Header{dir(".", 0o755)}, "the name must be relative"},
		{"two slashes", []*tar.Header{dir("a", 0o755), file("a//x", 0o644)}, "the name must be relative"},
		{"two slashes at the end", []*tar.Header{dir("a/", 0o755)}, "the name must be relative"},
		{"no name", []*tar.Header{dir("", 0o755)}, "the name must be relative"},
		{"long component", []*tar.Header{file(strings.Repeat("n", MaxName+1), 0o644)}, "a component of 256 bytes"},
		{"long name", []*tar.Header{file(strings.Repeat("nnn/", 1024)+"x", 0o644)}, "a name of 4097 bytes"},
		{"deep", []*tar.Header{file(deep+"x", 0o644)}, "257 components, above the maximum of 256"},

		{"no parent", []*tar.Header{file("a/x", 0o644)}, `"a" is not an earlier entry`},
		{"parent later", []*tar.Header{file("a/x", 0o644), dir("a", 0o755)}, "is not an earlier entry"},
		{"parent is a file", []*tar.Header{file("a", 0o644), file("a/x", 0o644)}, "is not an earlier entry"},
		{"parent is a link out", []*tar.Header{symlink("a", outside), file("a/x", 0o644)}, "is not an earlier entry"},
		{"parent is a link up", []*tar.Header{symlink("a", ".."), file("a/x", 0o644)}, "is not an earlier entry"},
		{"parent is a link inside", []*tar.Header{dir("b", 0o755), symlink("a", "b"), file("a/x", 0o644)}, "is not an earlier entry"},
		{"parent becomes a link", []*tar.Header{dir("a", 0o755), symlink("a", outside), file("a/x", 0o644)}, "file exists"},

		{"file twice", []*tar.Header{file("a", 0o644), file("a", 0o644)}, "file exists"},
		{"directory twice", []*tar.Header{dir("a", 0o755), dir("a", 0o755)}, "file exists"},
		{"file over link", []*tar.Header{symlink("a", outside+"/x"), file("a", 0o644)}, "file exists"},
		{"directory over link", []*tar.Header{symlink("a", outside), dir("a", 0o755), file("a/x", 0o644)}, "file exists"},
		{"link over file", []*tar.Header{file("a", 0o644), symlink("a", "x")}, "file exists"},
		{"hard link over link", []*tar.Header{file("b", 0o644), symlink("a", outside+"/x"), link("a", "b")}, "file exists"},

		{"hard link out", []*tar.Header{link("a", "../outside/x")}, "a hard link to"},
		{"hard link to an absolute name", []*tar.Header{link("a", "/etc/passwd")}, "a hard link to"},
		{"hard link to nothing", []*tar.Header{link("a", "b")}, "a hard link to a missing file"},
		{"hard link to a later file", []*tar.Header{link("a", "b"), file("b", 0o644)}, "a hard link to a missing file"},
		{"hard link to itself", []*tar.Header{link("a", "a")}, "a hard link to a missing file"},
		{"hard link to a symbolic one", []*tar.Header{symlink("b", "/etc/passwd"), link("a", "b")}, "which is not a regular file"},
		{"hard link to a directory", []*tar.Header{dir("b", 0o755), link("a", "b")}, "which is not a regular file"},
		{"hard link through a link", []*tar.Header{symlink("b", "/etc"), link("a", "b/passwd")}, "whose directory is not an earlier entry"},
		{"hard link to no name", []*tar.Header{{Typeflag: tar.TypeLink, Name: "a"}}, "a hard link to"},
		{"symbolic link to nothing", []*tar.Header{{Typeflag: tar.TypeSymlink, Name: "a"}}, "a link target of 0 bytes"},
		{"symbolic link, long", []*tar.Header{symlink("a", strings.Repeat("x", MaxPath+1))}, "a link target of 4096 bytes"},

		{"device", []*tar.Header{other(tar.TypeChar, "a")}, "unsupported entry type '3'"},
		{"disk", []*tar.Header{other(tar.TypeBlock, "a")}, "unsupported entry type '4'"},
		{"pipe", []*tar.Header{other(tar.TypeFifo, "a")}, "unsupported entry type '6'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Unpack(bytes.NewReader(whole(t, tt.headers...)), t.TempDir())
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want an error with %q", err, tt.err)
			}
			if left := listing(t, outside); len(left) > 0 {
				t.Errorf("created outside: %v", left)
			}
		})
	}
}

// TestEnd checks that a truncated archive and one with data after its end are refused.
func TestEnd(t *testing.T) {
	good := whole(t, dir("a", 0o755), file("a/b", 0o644))
	tests := []struct {
		name    string
		archive []byte
		err     string
	}{
		{"nothing", nil, "it has no end record"},
		{"no end", archive(t, dir("a", 0o755)), "it has no end record"},
		{"cut between entries", good[:512], "it has no end record"},
		{"cut before a file's content", good[:1024], "unexpected EOF"},
		{"cut in a file", good[:1024+2], "unexpected EOF"},
		{"too few", archive(t, dir("a", 0o755), End(2)), `ends after 1 entries, but its end record says "2"`},
		{"too many", archive(t, dir("a", 0o755), file("b", 0o644), End(1)), `ends after 2 entries, but its end record says "1"`},
		{"two ends", archive(t, End(0), End(0)), "data after its end"},
		{"an entry more", archive(t, End(0), dir("a", 0o755)), "data after its end"},
		{"bytes more", append(slices.Clone(good), 'x'), "data after its end"},
		{"another record", archive(t, &tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "0"}}), "says"},
		{"no archive", bytes.Repeat([]byte("corral"), 1000), "invalid tar header"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Unpack(bytes.NewReader(tt.archive), t.TempDir()); err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want an error with %q", err, tt.err)
			}
		})
	}
}

// TestSparseRefused checks that sparse files are refused: a small archive could expand to a terabyte.
func TestSparseRefused(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("tar"))
	from := t.TempDir()
	if err := errors.Join(os.WriteFile(from+"/big", []byte("x"), 0o600), os.Truncate(from+"/big", 1<<40)); err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]string{"gnu": "unsupported entry type 'S'", "pax": "sparse files are refused"} {
		archive, err := exec.Command("tar", "--sparse", "--format="+format, "-C", from, "-cf", "-", "big").Output()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Unpack(bytes.NewReader(archive), t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", format, err, want)
		}
	}
}

// FuzzUnpack checks that Unpack creates only entries of the form, and only in the directory.
func FuzzUnpack(f *testing.F) {
	f.Add(whole(f, rich()[:17]...))
	f.Add(whole(f, symlink("a", ".."), dir("b", 0o755), link("c", "a/x")))
	f.Add(archive(f, file("../x", 0o644), End(1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 64<<10 {
			t.Skip()
		}
		parent := t.TempDir()
		where := filepath.Join(parent, "in")
		if err := os.Mkdir(where, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // modes of the archive may prevent the owner from removing directories
			_ = exec.Command("chmod", "-R", "u+rwx", parent).Run()
		})
		totals, err := Unpack(bytes.NewReader(data), where)
		if entries, readErr := os.ReadDir(parent); readErr != nil || len(entries) != 1 {
			t.Fatalf("created outside the directory: %v, %v", entries, readErr)
		}
		var count int64
		walked := filepath.WalkDir(where, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == where {
				return err
			}
			count++
			info, err := d.Info()
			if err == nil && (info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0) {
				t.Errorf("%q is %s", path, info.Mode())
			}
			return err
		})
		if walked != nil && os.Geteuid() == 0 {
			t.Fatal(walked)
		}
		if err == nil && walked == nil && count != totals.Entries {
			t.Errorf("%d entries exist, but the totals are %s", count, totals)
		}
	})
}
