package isolate

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestEtcFollowed: the next job of a living jail sees the host's /etc as it is now, and so does that of an open session, unless
// the session has a root of its own; a job that runs sees it, too.
func TestEtcFollowed(t *testing.T) {
	ownEtc(t)
	asRoot(t, "mkdir /etc/acme; echo named >/etc/acme/client.conf; echo secret >/etc/acme/key; chmod 640 /etc/acme/key; echo >/etc/unnamed")
	f := newFront(t, func(c *Config) { c.EtcFiles = []string{"/etc/acme", "/etc/missing"} })
	direct, rooted := f.Session(job.SessionSpec{}), f.Session(job.SessionSpec{Root: true})
	const look = "cat /etc/ssl/certs/new.pem /etc/alternatives/new/x 2>&1 | sort"
	const none = "cat: /etc/alternatives/new/x: No such file or directory\ncat: /etc/ssl/certs/new.pem: No such file or directory"
	const named = "ls -d /etc/acme/* /etc/unnamed 2>&1 | grep -v 'No such file'; cat /etc/acme/client.conf"
	for n, got := range []string{f.Sh(named), strings.TrimSpace(f.Must(direct, named)), strings.TrimSpace(f.Must(rooted, named))} {
		if got != "/etc/acme/client.conf\nnamed" {
			t.Errorf("%d: %q", n, got)
		}
	}
	running, err := f.Start(f.Spec("sh", "-c", "echo up; for i in $(seq 500); do [ -e /etc/ssl/certs/last.pem ] && exit; sleep 0.02; done; exit 1"))
	if err != nil {
		t.Fatal(err)
	}
	f.Sh("true")
	jails := jailNames(f)
	for _, tt := range []struct{ change, want string }{
		{"true", none},
		{"echo one >/etc/ssl/certs/new.pem; mkdir /etc/alternatives/new; echo two >/etc/alternatives/new/x", "one\ntwo"},
		{"echo three >/etc/ssl/certs/new.pem; rm -r /etc/alternatives/new; ln -s ../ssl /etc/alternatives/new; echo four >/etc/ssl/x", "cat: /etc/alternatives/new/x: No such file or directory\nthree"},
		{"rm /etc/ssl/certs/new.pem /etc/alternatives/new; touch /etc/unrelated", none},
	} {
		asRoot(t, tt.change)
		if got := f.Sh(look); got != tt.want {
			t.Errorf("after %s: %q, want %q", tt.change, got, tt.want)
		}
		if got := strings.TrimSpace(f.Must(direct, look)); got != tt.want {
			t.Errorf("in a session, after %s: %q, want %q", tt.change, got, tt.want)
		}
		if got := strings.TrimSpace(f.Must(rooted, look)); got != none {
			t.Errorf("in a session's own root, after %s: %q", tt.change, got)
		}
	}
	asRoot(t, "echo >/etc/ssl/certs/last.pem")
	f.Sh("true")
	if d, err := running.End(); err != nil || d.ExitCode != 0 {
		t.Errorf("%+v, %v", d.Result, err)
	}
	if now := jailNames(f); now != jails {
		t.Errorf("jails %s, before %s", now, jails)
	}
}

func jailNames(f *front) string {
	var names []string
	for _, j := range f.s.standing() {
		names = append(names, j.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// ownEtc gives the test's machine a copy of /etc that the test may change.
func ownEtc(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.OwnMachine)
	dir := t.TempDir()
	asRoot(t, "cp -a /etc "+dir+"/copy")
	if err := errors.Join(unix.Mount(dir+"/copy", "/etc", "", unix.MS_BIND, ""), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/etc", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

func asRoot(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-euc", "umask 022; "+script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}
