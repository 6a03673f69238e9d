package edit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func ptr(s string) *string { return &s }

// run edits a file of the repository at root.
func run(t *testing.T, root string, r Request) (report string, err error) {
	t.Helper()
	if err := r.Check(); err != nil {
		return "", err
	}
	return r.do(root)
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name) //nolint:gosec // a file of the test
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestReplace checks the content of the file after an edit, and the text of the report or error. An edit that fails leaves the
// file unchanged.
func TestReplace(t *testing.T) {
	for _, tt := range []struct{ name, file, old, new, want, says string }{
		{"one line", "a\nb\nc\n", "b", "x", "a\nx\nc\n", "edited f: +1 -1 lines\n@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		{"several lines", "a\nb\nc\n", "b\nc\n", "x\n", "a\nx\n", "+1 -2"},
		{"lines are added", "a\nc\n", "a\n", "a\nb\n", "a\nb\nc\n", "+1 -0 lines\n@@ -1,2 +1,3 @@\n a\n+b\n c\n"},
		{"part of a line", "the old word\n", "old", "new", "the new word\n", "-the old word\n+the new word"},
		{"deleted", "a\nb\n", "b\n", "", "a\n", "+0 -1"},
		{"no final newline", "a\nb", "b", "c", "a\nc", "-b\n+c"},
		{"CRLF, lines with LF", "a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", "x\r\ny\r\nz\r\nc\r\n", "+3 -2"},
		{"CRLF, one line replaced by two", "a\r\nb\r\n", "a", "x\ny", "x\r\ny\r\nb\r\n", "+2 -1"},
		{"LF, lines with CRLF", "a\nb\n", "a\r\nb\r\n", "x\r\n", "x\n", "+1 -2"},
		{"mixed line ends", "a\r\nb\nc\n", "b\nc", "x\ny", "a\r\nx\ny\n", "+2 -2"},
		{"mixed line ends, CRLF part", "a\r\nb\r\nc\n", "a\nb", "x\ny", "x\r\ny\r\nc\n", "+2 -2"},
		{"Latin-1", "gr\xfc\xdfe\nold\n", "old", "new", "gr\xfc\xdfe\nnew\n", "+1 -1"},
		{"twice", "a\nb\na\n", "a", "x", "", "old occurs 2 times in f, on lines 1, 3"},
		{"overlapping", "aaa\n", "aa", "x", "", "2 times"},
		{"many times", strings.Repeat("a\n", 500), "a", "x", "", "more than 100 times in f, on lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"},
		{"white space", "if x {\n\ty()\n}\n", "if x {\n    y()\n}", "z", "", "Nearest is line 1:\n     1  if x {\n     2  \ty()\n     3  }\nLine 2 differs from line 2 of old only in white space."},
		{"nearest", "alpha\nfunc load(name string) error {\nomega\n", "func loads(name string) error {", "z", "", "Nearest is line 2"},
		{"nothing like it", "alpha\n", "zzzzzz", "y", "", "not found in f, and no line resembles it"},
		{"no change", "a\n", "a", "a", "", "old and new are the same"},
		{"binary", "a\x00b\n", "a", "x", "", "binary"},
		{"exists", "a\n", "", "x", "", `exists and has 2 bytes`},
		{"empty", "", "", "x\n", "x\n", "+1 -0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fails := tt.want == "" && tt.name != "empty"
			tryEdit(t, tt.file, Request{Path: "f", Old: &tt.old, New: &tt.new}, fails, tt.want, tt.says)
		})
	}
}

// tryEdit makes an edit of the file f, and checks its content and the report. If the edit is to fail, it checks that the error has
// says and that the file is unchanged.
func tryEdit(t *testing.T, file string, r Request, fails bool, want, says string) {
	t.Helper()
	root := t.TempDir()
	name := filepath.Join(root, "f")
	write(t, name, file)
	got, err := run(t, root, r)
	if fails {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v, want %q", err, says)
		}
		want = file
	} else if err != nil || !strings.Contains(got, says) {
		t.Errorf("%v, %q, want %q", err, got, says)
	}
	if now := content(t, name); now != want {
		t.Errorf("file: %q, want %q", now, want)
	}
	alone(t, root, "f")
}

// alone checks that nothing but the named files is in a directory.
func alone(t *testing.T, dir string, names ...string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(names) {
		t.Errorf("%s has %v, want %q", dir, list, names)
	}
}

// TestCheck checks requests that no file decides.
func TestCheck(t *testing.T) {
	long := strings.Repeat("x", MaxText+1)
	for _, tt := range []struct {
		r    Request
		want string
	}{
		{Request{}, "old or patch is required"},
		{Request{Path: "f"}, "old or patch is required"},
		{Request{Path: "f", Old: ptr("a")}, "new is required"},
		{Request{Path: "f", Old: ptr("a"), New: ptr("b"), Patch: ptr("c")}, "cannot be combined"},
		{Request{Old: ptr("a"), New: ptr("b")}, "path is required"},
		{Request{Path: "f", Old: ptr("a\x00"), New: ptr("b")}, "old: contains a NUL byte"},
		{Request{Path: "f", Old: ptr("a"), New: &long}, "new: has 1048577 bytes, the maximum is 1048576"},
		{Request{Path: "f", Old: ptr("a"), New: ptr("k = [REDACTED:aws-key]")}, `new: contains "[REDACTED:"`},
		{Request{Path: "f", Old: ptr("k = [REDACTED:aws-key]"), New: ptr("b")}, `old: contains "[REDACTED:"`},
		{Request{Path: "f", Patch: ptr("@@ @@\n+k = [REDACTED:secret]\n")}, `patch: contains "[REDACTED:"`},
		{Request{Path: "f", Old: ptr(""), New: ptr("")}, ""},
	} {
		got := ""
		if err := tt.r.Check(); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%+v: %q, want %q", tt.r, got, tt.want)
		}
	}
}

// TestRun checks that a request passes through standard input, and that the report is all that is written.
func TestRun(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root)
	r := Request{Path: "new/dir/f.txt", Old: ptr(""), New: ptr("<&>\u2028\n")}
	var out strings.Builder
	if err := Run(nil, strings.NewReader(r.Encode()), &out); err != nil || out.String() != "created new/dir/f.txt: 1 line, 7 bytes\n" {
		t.Errorf("%v, %q", err, out.String())
	}
	if got := content(t, "new/dir/f.txt"); got != *r.New {
		t.Errorf("%q", got)
	}
	redacted := Request{Path: "f", Old: ptr("a"), New: ptr("[REDACTED:x]")}
	for _, bad := range []string{"", "x", redacted.Encode()} {
		if err := Run(nil, strings.NewReader(bad), &out); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if err := Run([]string{"f"}, strings.NewReader(r.Encode()), &out); err == nil {
		t.Error("arguments were accepted")
	}
}

// TestReplaceAll: each occurrence is replaced, from the beginning on, in the line ends of the file.
func TestReplaceAll(t *testing.T) {
	for _, tt := range []struct{ name, file, old, new, want, says string }{
		{"several", "a b a\nb a\n", "a", "xx", "xx b xx\nb xx\n", "edited f: +2 -2 lines"},
		{"one", "a\nb\n", "b", "x", "a\nx\n", "+1 -1"},
		{"overlapping", "aaaaa\n", "aa", "b", "bba\n", "+1 -1"},
		{"what contains it", "a a\n", "a", "aa", "aa aa\n", "+1 -1"},
		{"line ends", "a\r\nb\r\na\r\nb\r\n", "a\nb", "x", "x\r\nx\r\n", "-4"},
		{"none", "a\n", "b", "x", "a\n", "old was not found in f"},
		{"the same", "a\n", "a", "a", "a\n", "nothing would change"},
		{"too many", strings.Repeat("a", maxAll+1), "a", "b", strings.Repeat("a", maxAll+1), "more than 10000 times"},
		{"too long", strings.Repeat("a", 100), "a", strings.Repeat("b", MaxText), strings.Repeat("a", 100), "more than 16777216 bytes"},
		{"a new file", "", "", "x", "", "replaceAll requires old"},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "f"), tt.file)
		report, err := run(t, root, Request{Path: "f", Old: &tt.old, New: &tt.new, All: true})
		if err != nil {
			report = err.Error()
		}
		if got := content(t, filepath.Join(root, "f")); got != tt.want || !strings.Contains(report, tt.says) {
			t.Errorf("%s: %.80q, %q", tt.name, got, report)
		}
	}
}
