package rootfs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// realOptions returns the options of a jail on this machine.
func realOptions() Options {
	return Options{Repo: "/work/repository", JobUIDs: IDRange{200001, 256}}
}

// TestRealHost checks the promises of the package comment with the written tree of this machine.
func TestRealHost(t *testing.T) {
	start := time.Now()
	tree := must(t, realOptions())
	read := time.Since(start)
	p, fd := openTarget(t)
	start = time.Now()
	if err := tree.Write(fd); err != nil {
		t.Fatal(err)
	}
	var size int
	for _, e := range tree.Entries {
		size += len(e.Data)
	}
	t.Logf("%d entries, %d bytes, %d binds, read in %v, written in %v", len(tree.Entries), size, len(tree.Binds), read, time.Since(start))
	for _, s := range tree.Skipped {
		t.Logf("skipped %s: %s", s.Path, s.Reason)
	}
	for _, b := range tree.Binds {
		t.Logf("bind %s at %s", b.Source, b.Target)
	}
	for _, absent := range []string{
		"etc/shadow", "etc/gshadow", "etc/machine-id", "etc/ssl/private", "etc/ssh/ssh_host_rsa_key", "etc/ssh/ssh_host_ed25519_key.pub", "etc/npmrc", "etc/pip.conf", "etc/gitconfig",
		"root", "boot", "srv", "mnt", "var/lib/dpkg", "home/job",
	} {
		if _, err := os.Lstat(filepath.Join(p, absent)); err == nil {
			t.Errorf("/%s exists", absent)
		}
	}
	for _, empty := range []string{"usr", "home", "tmp", "proc", "sys", "dev", "var/tmp", "work/repository"} {
		if names, err := os.ReadDir(filepath.Join(p, empty)); err != nil || len(names) != 0 {
			t.Errorf("/%s: %v %v", empty, names, err)
		}
	}
	accounts(t, filepath.Join(p, "etc/passwd"))
	noHostName(t, tree)
}

// accounts checks that passwd(5) names only jobs, root and nobody.
func accounts(t *testing.T, file string) {
	t.Helper()
	passwd, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(passwd), "\n"), "\n")
	for _, line := range lines {
		f := strings.Split(line, ":")
		if len(f) != 7 || f[1] != "x" || f[2] != f[3] || !slices.Contains([]string{"root", User, "nobody"}, f[0]) {
			t.Errorf("passwd: %q", line)
		}
	}
	if want := 256 + 2; len(lines) != want {
		t.Errorf("%d accounts, want %d", len(lines), want)
	}
}

// noHostName checks that no file contains the machine's name or ID.
func noHostName(t *testing.T, tree Tree) {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := os.ReadFile("/etc/machine-id")
	for _, e := range tree.Entries {
		// A short name ("host", "a1") may be part of other words.
		if len(name) > 7 && name != "localhost" && strings.Contains(string(e.Data), name) {
			t.Errorf("%s contains the host's name", e.Path)
		}
		if key := strings.TrimSpace(string(id)); key != "" && strings.Contains(string(e.Data), key) {
			t.Errorf("%s contains the machine ID", e.Path)
		}
	}
}

// TestLinksResolve checks that links of this machine's /usr/bin into /etc (cc, java, awk) have their targets in the
// copy.
func TestLinksResolve(t *testing.T) {
	tree := must(t, Options{})
	bins, err := os.ReadDir("/usr/bin")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, e := range bins {
		target, err := os.Readlink("/usr/bin/" + e.Name())
		if err != nil || !below(target, "/etc") {
			continue
		}
		checked++
		if find(tree, target) == nil {
			t.Errorf("/usr/bin/%s -> %s, which jobs do not see", e.Name(), target)
		}
	}
	t.Logf("%d links", checked)
}
