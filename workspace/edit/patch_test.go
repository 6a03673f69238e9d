package edit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPatch checks what a patch makes of a file, or why it does not fit. The file is unchanged then.
func TestPatch(t *testing.T) {
	const ten = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"
	for _, tt := range []struct{ name, file, patch, want, says string }{
		{"git", ten, "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -2,3 +2,3 @@ func\n 2\n-3\n+x\n 4\n", strings.Replace(ten, "3", "x", 1), "edited f: +1 -1"},
		{"hunks only", ten, "@@ -2,3 +2,3 @@\n 2\n-3\n+x\n 4\n", strings.Replace(ten, "3", "x", 1), "edited f: +1 -1"},
		{"two hunks", ten, "@@ -1,2 +1,3 @@\n+0\n 1\n 2\n@@ -9,2 +10,1 @@\n-9\n 10\n", "0\n1\n2\n3\n4\n5\n6\n7\n8\n10\n", "+1 -1"},
		{"wrong numbers", ten, "@@ -7,9 +1,1 @@\n 2\n-3\n+x\n 4\n", strings.Replace(ten, "3", "x", 1), "+1 -1"},
		{"no numbers", ten, "@@ @@\n 2\n-3\n+x\n 4\n", strings.Replace(ten, "3", "x", 1), "+1 -1"},
		{"second of two places, by its number", "a\nb\na\nb\n", "@@ -3,2 +3,2 @@\n-a\n+x\n b\n", "a\nb\nx\nb\n", "+1 -1"},
		{"two places", "a\nb\na\nb\n", "@@ @@\n-a\n+x\n b\n", "", "fits f in several places, lines 1, 3"},
		{"stripped blank", "a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n", "a\n\nc\n", "+1 -1"},
		{"CRLF", "a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "a\r\nc\r\n", "+1 -1"},
		{"added after a line", "a\nb\n", "@@ -1,0 +2 @@\n+x\n", "a\nx\nb\n", "+1 -0"},
		{"no final newline stays", "a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "a\nc", "+1 -1"},
		{"no final newline, marked", "a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n", "a\nc", "+1 -1"},
		{"gets a final newline", "a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n", "a\nb\n", "edited f"},
		{"added to a file without final newline", "a\nb", "@@ -1,2 +1,3 @@\n a\n b\n+c\n", "a\nb\nc", "+"},
		{"misfit", ten, "@@ -2,3 +2,3 @@\n 2\n-three\n+x\n 4\n", "", "does not fit f. Nearest is line 2:"},
		{"misfit shows the hunk", ten, "@@ -2,3 +2,3 @@ here\n 2\n-three\n+x\n 4\n", "", "@@ -2,3 +2,3 @@ here\n 2\n-three\n+x\n 4\n"},
		{"second hunk misfits", ten, "@@ -1,1 +1,1 @@\n-1\n+x\n@@ -9,2 +10,1 @@\n-nine\n 10\n", "", "does not fit f after line 1"},
		{"order", ten, "@@ -9,1 +9,1 @@\n-9\n+x\n@@ -1,1 +1,1 @@\n-1\n+y\n", "", "does not fit"},
		{"other file", ten, "--- a/g\n+++ b/g\n@@ -1,1 +1,1 @@\n-1\n+y\n", "", `the patch is for "g"`},
		{"two files", ten, "--- a/f\n+++ b/f\n@@ -1,1 +1,1 @@\n-1\n+y\n--- a/g\n+++ b/g\n@@ -1,1 +1,1 @@\n-1\n+y\n", "", "the patch is for 2 files, and path is \"f\""},
		{"deletes the file", ten, "--- a/f\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-1\n", "", "deletes the file"},
		{"no hunk", ten, "hello\n", "", "patch has no hunk"},
		{"no change", ten, "@@ -1,1 +1,1 @@\n 1\n", "", "changes nothing"},
		{"not a patch line", ten, "@@ -1,1 +1,1 @@\n-1\n+2\nxyz\n", "", `"xyz" begins neither`},
		{"creates what exists", ten, "--- /dev/null\n+++ b/f\n@@ -0,0 +1,1 @@\n+1\n", "", "exists and has"},
		{"deleted and added lines that look like names", "-- a\n", "@@ -1 +1 @@\n--- a\n+++ b\n", "++ b\n", "+1 -1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tryEdit(t, tt.file, Request{Path: "f", Patch: &tt.patch}, tt.want == "", tt.want, tt.says)
		})
	}
}

// TestPatchCreates checks that a patch creates a file, and that its names give the path if there is none.
func TestPatchCreates(t *testing.T) {
	root := t.TempDir()
	text := "--- /dev/null\n+++ b/sub/new.txt\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
	got, err := run(t, root, Request{Patch: &text})
	if err != nil || got != "created sub/new.txt: 2 lines, 3 bytes\n" {
		t.Errorf("%v, %q", err, got)
	}
	if now := content(t, filepath.Join(root, "sub/new.txt")); now != "a\nb" {
		t.Errorf("%q", now)
	}
}

// TestPatchFiles checks that a patch of several files changes each that it fits, whole, that the others stay as they are, and that each
// is named.
func TestPatchFiles(t *testing.T) {
	const git = "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-1\n+x\n 2\n" +
		"diff --git a/sub/g b/sub/g\nnew file mode 100644\n--- /dev/null\n+++ b/sub/g\n@@ -0,0 +1 @@\n+new\n"
	const plain = "--- f\n+++ f\n@@ -1,2 +1,2 @@\n-1\n+x\n 2\n--- h\n+++ h\n@@ @@\n-a\n+b\n@@ @@\n-z\n+y\n"
	for _, tt := range []struct{ name, patch, f, g, h, says, fails string }{
		{"git", git, "x\n2\n", "new\n", "a\nc\n", "edited f: +1 -1 lines\n@@ -1,2 +1,2 @@\n-1\n+x\n 2\ncreated sub/g: 1 line, 4 bytes\n", ""},
		{"one does not fit", plain + "--- f\n+++ f\n@@ @@\n-2\n+3\n", "x\n3\n", "", "a\nc\n", "edited f: +1 -1", "h was not changed: patch: this hunk does not fit h after line 1"},
		{"one is invalid", git + "--- a/h\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "1\n2\n", "", "a\nc\n", "", "patch deletes the file h"},
		{"one has no name", "@@ @@\n-1\n+x\ndiff --git a/h b/h\n@@ @@\n-a\n+b\n", "1\n2\n", "", "a\nc\n", "", "the patch names no file"},
		{"outside", git + "--- a/../h\n+++ b/../h\n@@ @@\n-a\n+b\n", "x\n2\n", "new\n", "a\nc\n", "created sub/g", "../h was not changed: "},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "f"), "1\n2\n")
		write(t, filepath.Join(root, "h"), "a\nc\n")
		said, err := run(t, root, Request{Patch: &tt.patch})
		if failed := fmt.Sprint(err); !strings.Contains(said, tt.says) || (err == nil) != (tt.fails == "") || !strings.Contains(failed, tt.fails) {
			t.Errorf("%s: %q, %s", tt.name, said, failed)
		}
		g, _ := os.ReadFile(filepath.Join(root, "sub/g"))
		if f, h := content(t, filepath.Join(root, "f")), content(t, filepath.Join(root, "h")); f != tt.f || string(g) != tt.g || h != tt.h {
			t.Errorf("%s: %q, %q, %q", tt.name, f, g, h)
		}
	}
}

// FuzzPatch checks that no patch makes apply fail in another way than by an error, and that its changes are in order.
func FuzzPatch(f *testing.F) {
	f.Add("a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n")
	f.Add("a\r\nb", "--- a/f\n+++ b/f\n@@ -0,0 +1 @@\n+c\n\\ No newline\n")
	f.Add("", "@@ -0,0 +1 @@\n+c\n")
	f.Fuzz(func(t *testing.T, content, text string) {
		p, err := parsePatch(text)
		if err != nil {
			return
		}
		file := &file{shown: "f", content: []byte(content)}
		list, err := p[0].apply(file)
		if err != nil {
			return
		}
		at := 0
		for _, c := range list {
			if c.start < at || c.end < c.start || c.end > len(content) {
				t.Fatalf("%+v after %d in %d bytes", c, at, len(content))
			}
			at = c.end
		}
		_ = rewrite(file.content, list)
		_ = describe("f", false, file.content, list)
	})
}
