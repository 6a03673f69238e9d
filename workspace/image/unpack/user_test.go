package unpack

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestNameUser checks that the user of jobs gets a name in an image, and that the image's accounts do not change.
func TestNameUser(t *testing.T) {
	const added = "job:x:1000:1000::/home/job:/bin/sh\n"
	for _, tt := range []struct{ name, passwd, want string }{
		{"no such user", "root:x:0:0::/root:/bin/sh\n", "root:x:0:0::/root:/bin/sh\n" + added},
		{"no end of line", "root:x:0:0::/root:/bin/sh", "root:x:0:0::/root:/bin/sh\n" + added},
		{"empty", "", added},
		{"another name", "ada:x:1000:1000::/home/ada:/bin/sh\n", "ada:x:1000:1000::/home/ada:/bin/sh\n"},
		{"another job", "job:x:7:7::/:/bin/sh\n", "job:x:7:7::/:/bin/sh\n"},
		{"nonsense", ":::\nx\n", ":::\nx\n" + added},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "etc/passwd")
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "etc"), 0o755), os.WriteFile(path, []byte(tt.passwd), 0o644)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second call finds the account
			if err := nameUser(dir); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		if got, err := os.ReadFile(path); string(got) != tt.want || err != nil {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
}

// TestNameUserOutside checks that a link in place of the file is not followed out of the image.
func TestNameUserOutside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(outside, []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func(path string) error{
		"none":      func(string) error { return nil },
		"a link":    func(path string) error { return os.Symlink(outside, path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "etc"), 0o755), make(filepath.Join(dir, "etc/passwd"))); err != nil {
			t.Fatal(err)
		}
		if err := nameUser(dir); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := os.ReadFile(outside); string(got) != "x\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
