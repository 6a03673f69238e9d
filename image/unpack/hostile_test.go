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

	"corral/internal/sandboxtest"
)

// TestRefused is a table of what an archive may try.
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
		{"up", []*tar.Header{file("../x", 0o644)}, "a name that is absolute"},
		{"up again", []*tar.Header{dir("a", 0o755), file("a/../../x", 0o644)}, "a name that is absolute"},
		{"up and back", []*tar.Header{dir("a", 0o755), file("a/../x", 0o644)}, "a name that is absolute"},
		{"absolute", []*tar.Header{file(outside+"/x", 0o644)}, "a name that is absolute"},
		{"here", []*tar.Header{file("./x", 0o644)}, "a name that is absolute"},
		{"the root", []*tar.Header{dir(".", 0o755)}, "a name that is absolute"},
		{"two slashes", []*tar.Header{dir("a", 0o755), file("a//x", 0o644)}, "a name that is absolute"},
		{"two slashes at the end", []*tar.Header{dir("a/", 0o755)}, "a name that is absolute"},
		{"no name", []*tar.Header{dir("", 0o755)}, "a name that is absolute"},
		{"long component", []*tar.Header{file(strings.Repeat("n", MaxName+1), 0o644)}, "a component of 256 bytes"},
		{"long name", []*tar.Header{file(strings.Repeat("nnn/", 1024)+"x", 0o644)}, "a name of 4097 bytes"},
		{"deep", []*tar.Header{file(deep+"x", 0o644)}, "257 components, more than 256"},

		{"no parent", []*tar.Header{file("a/x", 0o644)}, `"a" is not in the archive before it`},
		{"parent later", []*tar.Header{file("a/x", 0o644), dir("a", 0o755)}, "is not in the archive"},
		{"parent is a file", []*tar.Header{file("a", 0o644), file("a/x", 0o644)}, "is not in the archive"},
		{"parent is a link out", []*tar.Header{symlink("a", outside), file("a/x", 0o644)}, "is not in the archive"},
		{"parent is a link up", []*tar.Header{symlink("a", ".."), file("a/x", 0o644)}, "is not in the archive"},
		{"parent is a link inside", []*tar.Header{dir("b", 0o755), symlink("a", "b"), file("a/x", 0o644)}, "is not in the archive"},
		{"parent becomes a link", []*tar.Header{dir("a", 0o755), symlink("a", outside), file("a/x", 0o644)}, "file exists"},

		{"file twice", []*tar.Header{file("a", 0o644), file("a", 0o644)}, "file exists"},
		{"directory twice", []*tar.Header{dir("a", 0o755), dir("a", 0o755)}, "file exists"},
		{"file over link", []*tar.Header{symlink("a", outside+"/x"), file("a", 0o644)}, "file exists"},
		{"directory over link", []*tar.Header{symlink("a", outside), dir("a", 0o755), file("a/x", 0o644)}, "file exists"},
		{"link over file", []*tar.Header{file("a", 0o644), symlink("a", "x")}, "file exists"},
		{"hard link over link", []*tar.Header{file("b", 0o644), symlink("a", outside+"/x"), link("a", "b")}, "file exists"},

		{"hard link out", []*tar.Header{link("a", "../outside/x")}, "a link to"},
		{"hard link to an absolute name", []*tar.Header{link("a", "/etc/passwd")}, "a link to"},
		{"hard link to nothing", []*tar.Header{link("a", "b")}, "a link to what is not there"},
		{"hard link to a later file", []*tar.Header{link("a", "b"), file("b", 0o644)}, "a link to what is not there"},
		{"hard link to itself", []*tar.Header{link("a", "a")}, "a link to what is not there"},
		{"hard link to a symbolic one", []*tar.Header{symlink("b", "/etc/passwd"), link("a", "b")}, "which is no regular file"},
		{"hard link to a directory", []*tar.Header{dir("b", 0o755), link("a", "b")}, "which is no regular file"},
		{"hard link through a link", []*tar.Header{symlink("b", "/etc"), link("a", "b/passwd")}, "whose directory is not in the archive"},
		{"hard link to no name", []*tar.Header{{Typeflag: tar.TypeLink, Name: "a"}}, "a link to"},
		{"symbolic link to nothing", []*tar.Header{{Typeflag: tar.TypeSymlink, Name: "a"}}, "a target of 0 bytes"},
		{"symbolic link, long", []*tar.Header{symlink("a", strings.Repeat("x", MaxPath+1))}, "a target of 4096 bytes"},

		{"device", []*tar.Header{other(tar.TypeChar, "a")}, "an entry of kind '3'"},
		{"disk", []*tar.Header{other(tar.TypeBlock, "a")}, "an entry of kind '4'"},
		{"pipe", []*tar.Header{other(tar.TypeFifo, "a")}, "an entry of kind '6'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Unpack(bytes.NewReader(whole(t, tt.headers...)), t.TempDir())
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want an error with %q", err, tt.err)
			}
			if left := listing(t, outside); len(left) > 0 {
				t.Errorf("outside there is %v", left)
			}
		})
	}
}

// TestEnd: an archive that was cut, or goes on, is not taken for a whole one.
func TestEnd(t *testing.T) {
	good := whole(t, dir("a", 0o755), file("a/b", 0o644))
	tests := []struct {
		name    string
		archive []byte
		err     string
	}{
		{"nothing", nil, "it has no end"},
		{"no end", archive(t, dir("a", 0o755)), "it has no end"},
		{"cut between entries", good[:512], "it has no end"},
		{"cut before a file's content", good[:1024], "unexpected EOF"},
		{"cut in a file", good[:1024+2], "unexpected EOF"},
		{"too few", archive(t, dir("a", 0o755), End(2)), `ends after 1 entries and says "2"`},
		{"too many", archive(t, dir("a", 0o755), file("b", 0o644), End(1)), `ends after 2 entries and says "1"`},
		{"two ends", archive(t, End(0), End(0)), "goes on"},
		{"an entry more", archive(t, End(0), dir("a", 0o755)), "goes on"},
		{"bytes more", append(slices.Clone(good), 'x'), "goes on"},
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

// TestSparseRefused: a few bytes of an archive would be a terabyte to read.
func TestSparseRefused(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("tar"))
	from := t.TempDir()
	if err := errors.Join(os.WriteFile(from+"/big", []byte("x"), 0o600), os.Truncate(from+"/big", 1<<40)); err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]string{"gnu": "an entry of kind 'S'", "pax": "a sparse file"} {
		archive, err := exec.Command("tar", "--sparse", "--format="+format, "-C", from, "-cf", "-", "big").Output()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Unpack(bytes.NewReader(archive), t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", format, err, want)
		}
	}
}

// FuzzUnpack holds that nothing is made but in the directory, and nothing but what the form has.
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
		t.Cleanup(func() { // an archive may take its directories from their owner, and only root removes such
			_ = exec.Command("chmod", "-R", "u+rwx", parent).Run()
		})
		totals, err := Unpack(bytes.NewReader(data), where)
		if entries, readErr := os.ReadDir(parent); readErr != nil || len(entries) != 1 {
			t.Fatalf("beside the directory: %v, %v", entries, readErr)
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
			t.Errorf("%d entries, and %s", count, totals)
		}
	})
}
