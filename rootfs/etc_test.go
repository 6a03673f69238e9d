package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

func TestGenerated(t *testing.T) {
	host := fakeHost(t, "etc/passwd = ann:x:1000:1000::/home/ann:/bin/sh", "etc/hosts = 10.0.0.1 db.internal",
		"etc/hostname = secret", "etc/resolv.conf = nameserver 10.0.0.1", "etc/mtab -> ../proc/mounts", "bin -> usr/bin")
	tree := must(t, Options{Host: host, JobUIDs: IDRange{200001, 2}})
	for p, want := range map[string]string{
		"/etc/passwd": "= root:x:0:0:root:/root:/usr/sbin/nologin\n" +
			"job:x:200001:200001::/home/job:/bin/sh\njob:x:200002:200002::/home/job:/bin/sh\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"/etc/group":       "= root:x:0:\ntty:x:5:\njob:x:200001:\njob:x:200002:\nnogroup:x:65534:\n",
		"/etc/hosts":       "= 127.0.0.1\tlocalhost\n127.0.0.1\tjail\n::1\tlocalhost ip6-localhost ip6-loopback\n",
		"/etc/hostname":    "= jail\n",
		"/etc/resolv.conf": "= ",
		"/etc/mtab":        "-> ../proc/self/mounts",

		"/var/door/resolv.conf": "= nameserver 127.0.0.1\noptions timeout:5 attempts:2\n",
	} {
		if got := describe(tree, p); got != want {
			t.Errorf("%s\n got %s\nwant %s", p, got, want)
		}
	}
	if err := os.WriteFile(filepath.Join(host, "usr/bin/bash"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	tree = must(t, Options{Host: host, JobUIDs: IDRange{1, 1}})
	if got := describe(tree, "/etc/passwd"); !strings.Contains(got, "job:x:1:1::/home/job:/bin/bash\n") {
		t.Errorf("with bash: %s", got)
	}
	if got := describe(tree, "/etc/chromium.d"); got != "absent" {
		t.Errorf("without Chromium: %s", got)
	}
	tree = must(t, Options{Host: fakeHost(t, "etc/chromium.d/")})
	if got := describe(tree, "/etc/chromium.d/corral"); !strings.Contains(got, "$CHROMIUM_FLAGS --no-sandbox") {
		t.Errorf("with Chromium: %s", got)
	}
	tree = must(t, Options{Host: host, Connected: true})
	if got := describe(tree, "/etc/resolv.conf") + describe(tree, "/etc/nsswitch.conf"); !strings.Contains(got, "nameserver 127.0.0.1\n") || !strings.Contains(got, "hosts: files dns\n") {
		t.Errorf("connected: %s", got)
	}
	for connected, want := range map[bool]string{false: "absent", true: "nameserver 127.0.0.1\n"} {
		if got := describe(Image(connected), "/etc/resolv.conf"); !strings.Contains(got, want) {
			t.Errorf("an image, connected %v: %q", connected, got)
		}
	}
}

func TestCopied(t *testing.T) {
	tree := must(t, Options{Host: fakeHost(t,
		"etc/ld.so.cache = cache", "etc/ld.so.conf.d/libc.conf = /x",
		"etc/alternatives/cc -> /usr/bin/gcc", "etc/localtime -> /usr/share/zoneinfo/UTC", "etc/os-release -> ../usr/lib/os-release",
		"etc/ssl/certs/a.pem -> /usr/share/ca-certificates/a.crt", "etc/ssl/certs/java/cacerts = jks", "etc/ssl/openssl.cnf = cnf",
		"etc/java-17-openjdk/security/java.security = s", "etc/python3.11/sitecustomize.py = p", "etc/fedora-release = Fedora",
		"etc/php/8.2/cli/conf.d/10-pdo.ini -> ../../mods-available/pdo.ini", "etc/php/8.2/mods-available/pdo.ini = p",
	)})
	for p, want := range map[string]string{
		"/etc/ld.so.cache":                            "= cache",
		"/etc/ld.so.conf.d/libc.conf":                 "= /x",
		"/etc/alternatives/cc":                        "-> /usr/bin/gcc",
		"/etc/localtime":                              "-> /usr/share/zoneinfo/UTC",
		"/etc/os-release":                             "-> ../usr/lib/os-release",
		"/etc/ssl/certs/a.pem":                        "-> /usr/share/ca-certificates/a.crt",
		"/etc/ssl/certs/java/cacerts":                 "= jks",
		"/etc/ssl/openssl.cnf":                        "= cnf",
		"/etc/java-17-openjdk/security":               "dir",
		"/etc/java-17-openjdk/security/java.security": "= s",
		"/etc/python3.11/sitecustomize.py":            "= p",
		"/etc/fedora-release":                         "= Fedora",
		"/etc/php/8.2/cli/conf.d/10-pdo.ini":          "-> ../../mods-available/pdo.ini",
		"/etc/php/8.2/mods-available/pdo.ini":         "= p",
	} {
		if got := describe(tree, p); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
	if len(tree.Skipped) != 0 {
		t.Errorf("skipped %+v", tree.Skipped)
	}
}

// TestUnlistedFilesAreNotCopied checks that files without a row are neither copied nor reported as skipped.
func TestUnlistedFilesAreNotCopied(t *testing.T) {
	names := []string{
		"shadow", "gshadow", "passwd-", "machine-id", "ssh/ssh_host_rsa_key", "ssl/private/key.pem", "npmrc", "pip.conf",
		"gitconfig", "environment", "apt/auth.conf", "sudoers", "maven/settings.xml", "R/Rprofile.site", "php/8.2/fpm/pool.d/www.conf",
		"profile", "bash.bashrc", "wgetrc", "ld.so.preload", "krb5.keytab",
	}
	var nodes []string
	for _, n := range names {
		nodes = append(nodes, "etc/"+n+" = secret")
	}
	tree := must(t, Options{Host: fakeHost(t, nodes...)})
	for _, e := range tree.Entries {
		if string(e.Data) == "secret" {
			t.Errorf("%s was copied", e.Path)
		}
	}
}

// TestRefusedFiles checks that each file is refused for a single reason, and that the rest of the directory is copied.
func TestRefusedFiles(t *testing.T) {
	const d = "etc/ssl/certs/"
	chmod := func(mode uint32) func(string) error {
		return func(p string) error { return unix.Chmod(p, mode) }
	}
	for _, tc := range []struct {
		name   string
		node   string
		change func(p string) error
		path   string // the path that is skipped
		reason string
	}{
		{"private file", d + "x = s", chmod(0o600), d + "x", "not readable by everybody"},
		{"group's file", d + "x = s", chmod(0o640), d + "x", "not readable by everybody"},
		{"anybody's file", d + "x = s", chmod(0o666), d + "x", "writable by everybody"},
		{"set-uid", d + "x = s", chmod(0o4755), d + "x", "set-id"},
		{"set-gid", d + "x = s", chmod(0o2755), d + "x", "set-id"},
		{"closed directory", d + "x/y = s", func(p string) error { return unix.Chmod(filepath.Dir(p), 0o700) }, d + "x", "not readable by everybody"},
		{"listed directory", d + "x/y = s", func(p string) error { return unix.Chmod(filepath.Dir(p), 0o744) }, d + "x", "not searchable by everybody"},
		{"anybody's directory", d + "x/y = s", func(p string) error { return unix.Chmod(filepath.Dir(p), 0o1777) }, d + "x", "writable by everybody"},
		{"private directory", d + "private/y = s", nil, d + "private", "a directory for keys"},
		{"huge", d + "x = s", func(p string) error { return os.Truncate(p, maxFile+1) }, d + "x", "larger than 4194304 bytes"},
		{"key", d + "x = cert\n-----BEGIN RSA PRIVATE KEY-----\nMII", nil, d + "x", "contains a private key"},
		{"newline", d + "x\nroot:x:0 = s", nil, d + "x\nroot:x:0", "its name has control characters"},
		{"link to newline", d + "x -> a\nb", nil, d + "x", "a link with an empty target or control characters in it"},
		{"FIFO", d + "y = s", func(p string) error { return unix.Mkfifo(filepath.Dir(p)+"/x", 0o644) }, d + "x", "not the expected file type"},
		{"directory for a file", "etc/services/x = s", nil, "etc/services", "not the expected file type"},
		{"file for a directory", "etc/fonts = s", nil, "etc/fonts", "not the expected file type"},
		{"deep", d + strings.Repeat("d/", 20) + "x = s", nil, "etc/ssl/certs" + strings.Repeat("/d", 15), "not the expected file type"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			host := fakeHost(t, tc.node, "etc/ssl/certs/good.pem = good")
			name, _, _ := strings.Cut(tc.node, " = ")
			if tc.change != nil {
				if err := tc.change(filepath.Join(host, name)); err != nil {
					t.Fatal(err)
				}
			}
			tree := must(t, Options{Host: host})
			if got := skipped(tree, "/"+tc.path); got != tc.reason {
				t.Errorf("skipped because %q, want %q: %+v", got, tc.reason, tree.Skipped)
			}
			if got := describe(tree, "/"+tc.path); got != "absent" {
				t.Errorf("entry: %s", got)
			}
			if got := describe(tree, "/etc/ssl/certs/good.pem"); got != "= good" {
				t.Errorf("neighboring file: %s", got)
			}
		})
	}
}

func TestForeignOwner(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root) // to change owners
	host := fakeHost(t, "etc/ssl/certs/file = s", "etc/ssl/certs/link -> /x", "etc/ssl/certs/dir/file = s", "etc/fonts/x = s")
	for _, p := range []string{"ssl/certs/file", "ssl/certs/link", "ssl/certs/dir", "fonts"} {
		if err := os.Lchown(filepath.Join(host, "etc", p), 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if tree := must(t, Options{Host: host}); skipped(tree, "/etc/"+p) != "not owned by root" || find(tree, "/etc/"+p) != nil {
			t.Errorf("%s: %s, skipped %+v", p, describe(tree, "/etc/"+p), tree.Skipped)
		}
	}
}

// TestLinksAreNotFollowed checks that no entry has the content of a link's target.
func TestLinksAreNotFollowed(t *testing.T) {
	host := fakeHost(t, "etc/shadow = secret", "etc/services -> shadow", "etc/ssl -> ../root/ssl", "root/ssl/certs/x = secret",
		"etc/fonts -> /root", "etc/alternatives/loop -> loop", "etc/alternatives/up -> ..", "etc/alternatives/a -> b",
		"etc/alternatives/b -> a", "etc/xml/d -> /root/ssl")
	tree := must(t, Options{Host: host})
	for p, want := range map[string]string{
		"/etc/services":          "-> shadow", // dangles in the jail
		"/etc/fonts":             "-> /root",
		"/etc/ssl":               "absent", // a link is not accepted for a row's directory
		"/etc/alternatives/loop": "-> loop",
		"/etc/alternatives/up":   "-> ..",
		"/etc/alternatives/a":    "-> b",
		"/etc/xml/d":             "-> /root/ssl",
	} {
		if got := describe(tree, p); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
	for _, e := range tree.Entries {
		if string(e.Data) == "secret" {
			t.Errorf("%s has the content of a link's target", e.Path)
		}
	}
}

// TestEtcIsALink checks that /etc itself may be a link, resolved within the host.
func TestEtcIsALink(t *testing.T) {
	host := fakeHost(t, "data/etc/services = s")
	if err := os.Remove(filepath.Join(host, "etc")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/data/etc", filepath.Join(host, "etc")); err != nil {
		t.Fatal(err)
	}
	if got := describe(must(t, Options{Host: host}), "/etc/services"); got != "= s" {
		t.Error(got)
	}
}

func TestNeededFile(t *testing.T) {
	host := fakeHost(t, "etc/ld.so.cache = c")
	if err := os.Chmod(filepath.Join(host, "etc/ld.so.cache"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Host(Options{Host: host})
	if !errors.Is(err, ErrHost) || !strings.Contains(err.Error(), "/etc/ld.so.cache: not readable") {
		t.Error(err)
	}
}

func TestCopyLimits(t *testing.T) {
	t.Run("count", func(t *testing.T) {
		host := fakeHost(t, "etc/alternatives/", "etc/ssl/certs/x = s")
		for i := range maxCount {
			if err := os.Symlink("x", filepath.Join(host, "etc/alternatives", strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
		tree := must(t, Options{Host: host})
		if len(tree.Entries) > maxCount+100 || skipped(tree, "/etc/ssl/certs") != "more than 4096 files" {
			t.Errorf("%d entries, skipped %+v", len(tree.Entries), tree.Skipped[:1])
		}
	})
	t.Run("names", func(t *testing.T) {
		host := fakeHost(t, "etc/fonts/", "etc/ssl/certs/x = s")
		for i := range maxCount + 1 {
			if err := os.Symlink("x", filepath.Join(host, "etc/fonts", strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
		tree := must(t, Options{Host: host})
		if skipped(tree, "/etc/fonts") != "more than 4096 names" || describe(tree, "/etc/ssl/certs/x") != "= s" {
			t.Errorf("skipped %+v", tree.Skipped)
		}
	})
	t.Run("total", func(t *testing.T) {
		host := fakeHost(t, "etc/fonts/x = x")
		for i := range maxTotal/maxFile + 2 {
			p := filepath.Join(host, "etc/fonts", fmt.Sprintf("f%02d", i))
			if err := os.WriteFile(p, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(p, maxFile); err != nil { // sparse
				t.Fatal(err)
			}
		}
		tree := must(t, Options{Host: host})
		var total int
		for _, e := range tree.Entries {
			total += len(e.Data)
		}
		if total > maxTotal+4096 || !strings.Contains(skipped(tree, fmt.Sprintf("/etc/fonts/f%02d", maxTotal/maxFile+1)), "together") {
			t.Errorf("%d bytes, skipped %+v", total, tree.Skipped)
		}
	})
}

// TestEtcFiles: what the operator names is copied, as far as jobs may read it; the tree says what is not.
func TestEtcFiles(t *testing.T) {
	host := fakeHost(t, "etc/acme/client.conf = c", "etc/acme/deep/x = x", "etc/acme/key = -----BEGIN PRIVATE KEY-----", "etc/one = 1", "etc/d/a.conf = a",
		"etc/d/b.txt = b", "etc/services = s", "etc/passwd = root", "etc/link -> one", "etc/other = o")
	files := []string{"/etc/acme", "/etc/one", "/etc/d/*.conf", "/etc/missing", "/etc/services", "/etc/passwd", "/etc/link"}
	e := &Etc{}
	defer e.Close()
	must(t, Options{Host: host, Etc: e})
	tree := must(t, Options{Host: host, Etc: e, EtcFiles: files})
	for p, want := range map[string]string{
		"/etc/acme/client.conf": "= c", "/etc/acme/deep/x": "= x", "/etc/acme/key": "absent", "/etc/one": "= 1", "/etc/d/a.conf": "= a",
		"/etc/d/b.txt": "absent", "/etc/link": "-> one", "/etc/other": "absent",
	} {
		if got := describe(tree, p); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
	if strings.Contains(describe(tree, "/etc/passwd"), "= root\n") && !strings.Contains(describe(tree, "/etc/passwd"), "nobody") {
		t.Error("the host's accounts are shown")
	}
	if want := []Skip{{"/etc/acme/key", "contains a private key"}, {"/etc/missing", "does not exist"}}; !slices.Equal(tree.Skipped, want) {
		t.Errorf("skipped: %v, want %v", tree.Skipped, want)
	}
	for _, bad := range []string{"/etc", "/usr/x", "etc/x", "/etc/../x"} {
		if _, err := Host(Options{Host: host, EtcFiles: []string{bad}}); !errors.Is(err, ErrPath) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
