package scan

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// TestSettings: a configuration is read as git reads it.
func TestSettings(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	for _, text := range []string{
		"[core]\n\thooksPath = a/b\n", "[Core] HOOKSPATH=a b  # c\n", "[core]hooksPath=\"a ; b\" ; c\n", "\ufeff[core]\r\n\tpager = x/y\r\n",
		"[include]\n path = \"../a\\\"b\"\n", "[includeIf \"gitdir:x]y\"]path = z\n", "[filter \"a\\\"b\"]\n clean = a \\\n  b/c\nsmudge=x\n",
		"[filter.old] clean = x\n", "# [core]\n;x\n[alias]\n x = \"!a/b \\\"c\\\" \\\\ \\t\\n\"\n y\n\n[a-b.c]d-e = f", "[core]\n a = b\"c d\"e \t\n b =\n",
	} {
		name := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("git", "config", "-z", "--list", "--file", name).Output()
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		var want, got []string
		for setting := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			name, value, ok := strings.Cut(setting, "\n")
			if ok { // otherwise it has no value
				want = append(want, name[:strings.Index(name, ".")]+name[strings.LastIndex(name, "."):]+"="+value)
			}
		}
		eachSetting(text, func(section, key, value string) { got = append(got, section+"."+key+"="+value) })
		if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
			t.Errorf("%q\ngot  %q\nwant %q", text, g, w)
		}
	}
}

// TestConfigBounds: a configuration that cannot be read as a whole makes the report incomplete, and a FIFO in its place is not opened.
func TestConfigBounds(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	for _, tc := range []struct {
		name, made string
		incomplete bool
	}{
		{"many names", "for i in $(seq 40); do git config alias.a$i \"!./x$i\"; done", true},
		{"a circle", "git config include.path config", true},
		{"large", "yes '#' | head -c 300000 >> .git/config", true},
		{"unreadable", "chmod 0 .git/config", os.Getuid() != 0},
		{"a directory", "rm .git/config; mkdir .git/config", false},
		{"includes a FIFO", "mkfifo p; git config include.path ../p 2>/dev/null", false},
		{"binary", "head -c 3000 /dev/zero >> .git/config; printf '[core]\\nhooksPath = \\\\' >> .git/config", false},
	} {
		dir := t.TempDir()
		shell(t, dir, "git init -q; "+tc.made)
		if rep := baseline(t, scanner(t, dir, Bounds{})); rep.Incomplete != tc.incomplete {
			t.Errorf("%s: %+v", tc.name, rep)
		}
	}
	dir := t.TempDir()
	shell(t, dir, "git init -q; rm .git/config")
	if err := unix.Mkfifo(filepath.Join(dir, ".git", "config"), 0o600); err != nil {
		t.Fatal(err)
	}
	if rep := baseline(t, scanner(t, dir, Bounds{})); rep.Incomplete {
		t.Errorf("a FIFO: %+v", rep)
	}
}

// FuzzSettings: no configuration ends the scanner.
func FuzzSettings(f *testing.F) {
	f.Add("[core]\n\thooksPath = a/b\\\n\\")
	f.Add("[a \"\\")
	f.Fuzz(func(_ *testing.T, text string) { eachSetting(text, func(_, _, _ string) {}) })
}
