package rootfs

import (
	"crypto/md5"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// status returns dpkg's record of a package with configuration files: paths, each with its content.
func status(files ...string) string {
	var s strings.Builder
	s.WriteString("Package: x\nStatus: install ok installed\nConffiles:\n")
	for _, f := range files {
		p, content, _ := strings.Cut(f, " = ")
		p, word, _ := strings.Cut(p, " ")
		fmt.Fprintf(&s, " %s %x %s\n", p, md5.Sum([]byte(content)), word)
	}
	return s.String() + "Description: some\n text\n"
}

// TestShipped: configuration files of packages are copied while they are as the package has them.
func TestShipped(t *testing.T) {
	host := fakeHost(t,
		"etc/chromium.d/default-flags = flags", "etc/libreoffice/sofficerc = rc", "etc/nginx/mime.types = types", "etc/top.conf = top",
		"etc/nginx/nginx.conf = changed by the administrator", "etc/nginx/site.conf = of no package", "etc/init.d/nginx = start",
		"etc/old/old.conf = old", "etc/link.conf -> top.conf", "etc/linked -> chromium.d", "etc/ssl/openssl.cnf = changed",
		"etc/key.conf = -----BEGIN PRIVATE KEY-----", "etc/closed.conf = closed", "etc/deep/a/b/c.conf = deep", "etc/services = z", "etc/pip.conf = token",
		"var/lib/dpkg/status = "+status(
			"/etc/chromium.d/default-flags = flags", "/etc/libreoffice/sofficerc = rc", "/etc/nginx/mime.types = types", "/etc/top.conf = top",
			"/etc/nginx/nginx.conf = as shipped", "/etc/init.d/nginx = start", "/etc/old/old.conf obsolete = old", "/etc/link.conf = top",
			"/etc/linked/default-flags = flags", "/etc/ssl/openssl.cnf = cnf", "/etc/key.conf = -----BEGIN PRIVATE KEY-----",
			"/etc/closed.conf = closed", "/etc/missing/x.conf = x", "/etc/deep/a/b/c.conf = deep", "/etc/passwd = root", "/etc/deep = x", "/etc/pip.conf = token",
		)+"\n"+status("/etc/../usr/x = x", "/usr/x = x", "/etc//top2 = x", "/etc/ = x", "etc/x = x"))
	if err := os.Chmod(filepath.Join(host, "etc/closed.conf"), 0o640); err != nil {
		t.Fatal(err)
	}
	tree := must(t, Options{Host: host})
	for p, want := range map[string]string{
		"/etc/chromium.d":               "dir",
		"/etc/chromium.d/default-flags": "= flags",
		"/etc/libreoffice/sofficerc":    "= rc",
		"/etc/nginx/mime.types":         "= types",
		"/etc/top.conf":                 "= top",
		"/etc/old/old.conf":             "= old",
		"/etc/deep/a/b/c.conf":          "= deep",
		"/etc/ssl/openssl.cnf":          "= changed", // of the table
		"/etc/nginx/nginx.conf":         "absent",
		"/etc/nginx/site.conf":          "absent",
		"/etc/init.d":                   "absent",
		"/etc/link.conf":                "absent",
		"/etc/linked":                   "absent",
		"/etc/key.conf":                 "absent",
		"/etc/closed.conf":              "absent",
		"/etc/missing":                  "absent",
		"/etc/pip.conf":                 "absent",
	} {
		if got := describe(tree, p); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
	if len(tree.Skipped) > 0 {
		t.Errorf("skipped: %v", tree.Skipped)
	}
	if got := describe(tree, "/etc/passwd"); strings.HasSuffix(got, "= root") {
		t.Errorf("/etc/passwd: %s", got)
	}
}

// TestShippedFollowed: the kept copy is not used after the database of packages has changed, which it notices.
func TestShippedFollowed(t *testing.T) {
	host := fakeHost(t, "etc/app/a.conf = a", "var/lib/dpkg/status = "+status())
	e := &Etc{}
	defer e.Close()
	for range 2 {
		if got := describe(must(t, Options{Host: host, Etc: e}), "/etc/app/a.conf"); got != "absent" {
			t.Errorf("%s", got)
		}
	}
	db := filepath.Join(host, "var/lib/dpkg/status")
	if err := os.WriteFile(db+"-new", []byte(status("/etc/app/a.conf = a")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(db+"-new", db); err != nil {
		t.Fatal(err)
	}
	if n, ok := e.Changes(); n == 0 || !ok {
		t.Errorf("not noticed: %d, %v", n, ok)
	}
	if got := describe(must(t, Options{Host: host, Etc: e}), "/etc/app/a.conf"); got != "= a" {
		t.Errorf("%s", got)
	}
	for name, spoil := range map[string]func() error{
		"writable by others": func() error { return os.Chmod(db, 0o666) },
		"a link":             func() error { return replace(db, func(p string) error { return os.Symlink(p+".old", p) }) },
		"missing":            func() error { return os.Remove(db) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(name, err)
		}
		if got := describe(must(t, Options{Host: host, Etc: e}), "/etc/app/a.conf"); got != "absent" {
			t.Errorf("%s: %s", name, got)
		}
		_ = os.Remove(db)
		if err := os.WriteFile(db, []byte(status("/etc/app/a.conf = a")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzStatus: no database makes the reader fail, or name a file outside of /etc.
func FuzzStatus(f *testing.F) {
	f.Add([]byte(status("/etc/a/b = x", "/etc/../x = y")))
	f.Add([]byte("Conffiles:\n" + strings.Repeat("x", maxStatusLine+1) + "\n /etc/a d41d8cd98f00b204e9800998ecf8427e"))
	f.Add([]byte("Conffiles:\n /etc/a newconffile\n /etc/a/b d41d8cd98f00b204e9800998ecf8427e obsolete x\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := parseStatus(strings.NewReader(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		var check func(*shippedDir)
		check = func(d *shippedDir) {
			for name := range d.files {
				if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
					t.Errorf("%q", name)
				}
			}
			for name, below := range d.dirs {
				if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
					t.Errorf("%q", name)
				}
				check(below)
			}
		}
		check(all)
	})
}
