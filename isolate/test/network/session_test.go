package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
	"corral/isolate/admit"
	"corral/job"
)

const fetch = "curl -sS https://web.example.org/"

// fetched is what fetch prints if it may reach the host, and unknown what it prints if it may not look it up.
const (
	fetched = "GET / to web.example.org over HTTP/2.0\n"
	unknown = "curl: (6) Could not resolve host: web.example.org\n"
)

// TestWords: a job reaches what it asks for of what the operator allows, and is refused if it asks for anything else.
func TestWords(t *testing.T) {
	w := newWorld(t)
	for words, want := range map[string]string{
		"": fetched, "web.example.org": fetched, "db.example.org:5432,web.example.org:443": fetched, "db.example.org": unknown,
	} {
		if got := w.sh(fetch, func(s *job.Spec) { s.Network = words }); got != want {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
	}
	got := w.sh("getent hosts web.example.org || echo $?; cat /etc/resolv.conf; ip -o addr 2>/dev/null | grep -c 198.18; cat /proc/net/fib_trie | grep -c 198.18",
		func(s *job.Spec) { s.Network = job.NoNetwork })
	if got != "2\n0\n" && !strings.HasPrefix(got, "2\n") || strings.Contains(got, "nameserver") {
		t.Errorf("without network access: %q", got)
	}
	for _, words := range []string{"npm", "denied.example.net", "secret.wild.example.org", "web.example.org:8443", "none web.example.org", "web.example.org;id", "*"} {
		spec := w.Spec("true")
		spec.Network = words
		_, err := w.Try(spec)
		sandboxtest.RefusedAt(t, words, err, "network", 0)
	}
}

// TestNetworkOfSession: the jobs of a session have the network that the session asked for, together if they share their files. One may ask
// for none, or for less than a session that asked for all.
func TestNetworkOfSession(t *testing.T) {
	w := newWorld(t)
	for _, spec := range []job.SessionSpec{
		{Workspace: job.Overlay}, {Workspace: job.Direct, Share: true}, {Workspace: job.Overlay, Share: true}, {Workspace: job.Overlay, Root: true},
	} {
		env := "CURL_CA_BUNDLE=" + w.Repo + "/roots.pem "
		if spec.Root {
			env = "CURL_CA_BUNDLE=$PWD/roots.pem "
		}
		for words, want := range map[string]string{"": fetched, job.NoNetwork: unknown, "db.example.org": unknown} {
			spec.Network = words
			ss := w.Session(spec)
			for range 2 {
				if d := w.In(ss, "exec 2>&1; "+env+fetch); d.Out != want {
					t.Errorf("%+v: %q, want %q", spec, d.Out, want)
				}
			}
			in := w.Spec("sh", "-c", "exec 2>&1; "+env+fetch)
			in.Session, in.Workspace = ss.ID, ss.Workspace
			for asked, want := range map[string]string{"web.example.org": fetched, "db.example.org": unknown, job.NoNetwork: unknown, "npm": ""} {
				in.Network = asked
				d, err := w.Try(in)
				switch narrows := words == "" || asked == job.NoNetwork; {
				case asked == words:
				case spec.Root || !narrows || want == "":
					sandboxtest.RefusedAt(t, fmt.Sprintf("%q in a session with %q", asked, words), err, "network", 0)
				case err != nil || d.Out != want:
					t.Errorf("%q in a session with %q: %q, want %q, %v", asked, words, d.Out, want, err)
				}
			}
			w.CloseSession(ss, false)
		}
	}
}

// TestNetworkOfKeptSession: a session that is resumed reaches no more than before.
func TestNetworkOfKeptSession(t *testing.T) {
	w := newWorld(t)
	ss := w.Session(job.SessionSpec{Workspace: job.Overlay, Lasting: true, Network: job.NoNetwork})
	w.Must(ss, "echo changed >new")
	if !w.CloseSession(ss, true) {
		t.Fatal("the session's changes were not kept")
	}
	if d := w.In(ss, "exec 2>&1; cat new; "+fetch); d.Out != "changed\n"+unknown {
		t.Errorf("the resumed session: %q", d.Out)
	}
}

// TestReload: changed rules apply to what runs: connections that they no longer allow end, and what they allow is reached.
func TestReload(t *testing.T) {
	var again isolate.Config
	w := newWorld(t, func(c *isolate.Config) {
		again = *c
		c.Again = func() (isolate.Config, error) { return again, nil }
	})
	const script = `use Socket; $| = 1; socket S, PF_INET, SOCK_STREAM, 0; connect S, sockaddr_in(5432, inet_aton("db.example.org")) or die $!;
		syswrite S, "hi\n"; sysread S, $x, 9; print "ready\n"; $n = sysread S, $x, 9; print "ended: ", $n ? $n : 0, "\n";
		print gethostbyname("db.example.org") ? "known" : "unknown", "\n"; print gethostbyname("denied.example.net") ? "known" : "unknown", "\n"`
	for name, rules := range map[string]string{
		"others":          `{"allow":[{"host":"denied.example.net"}],"private":["192.0.2.1/32"]}`,
		"none any more":   `{}`,
		"no rules at all": ``,
		"broken":          `{"allow":[{"hosts":"web.example.org"}]}`,
		"denied":          `{"allow":[{"host":"db.example.org","ports":[5432],"protocol":"tcp"}],"deny":["db.example.org"],"private":["192.0.2.2/32"]}`,
	} {
		again.Network = []byte(`{"allow":[{"host":"db.example.org","ports":[5432],"protocol":"tcp"}],"private":["192.0.2.2/32"]}`)
		if _, err := w.S.Reload(); err != nil {
			t.Fatal(err)
		}
		l := w.Launch(w.Spec("perl", "-e", script))
		again.Network = nil
		if rules != "" {
			again.Network = []byte(rules)
		}
		if _, err := w.S.Reload(); err != nil {
			t.Fatal(err)
		}
		d, err := l.End()
		want := "ready\nended: 0\nunknown\nunknown\n"
		if name == "others" {
			want = "ready\nended: 0\nunknown\nknown\n"
		}
		if err != nil || d.Out != want {
			t.Errorf("%s: %q, %v", name, d.Out, err)
		}
	}
}

// TestGranted: rules that are made while sessions are open apply to their next jobs, whatever ran in them before; the jobs that run go
// on, and a session that asked for nothing has nothing.
func TestGranted(t *testing.T) {
	var again isolate.Config
	w := newWorld(t, func(c *isolate.Config) {
		c.Network = nil
		again = *c
		c.Again = func() (isolate.Config, error) { return again, nil }
	})
	const look = `print gethostbyname("web.example.org") ? "known" : "unknown", "\n"`
	specs := map[string]job.SessionSpec{
		"direct": {Share: true}, "overlay": {Workspace: job.Overlay, Share: true}, "apart": {Workspace: job.Overlay}, "root": {Root: true},
		"none": {Share: true, Network: job.NoNetwork},
	}
	open := map[string]job.Session{}
	serving := map[string]*fronttest.Live{}
	in := func(name string, args ...string) job.Spec {
		spec := w.Spec(args...)
		spec.Session, spec.Workspace = open[name].ID, specs[name].Workspace
		return spec
	}
	for name, spec := range specs {
		open[name] = w.Session(spec)
		w.Must(open[name], "mkdir -p /home/job; echo kept >/home/job/file")
		if d := w.Run(in(name, "perl", "-e", look)); d.Out != "unknown\n" {
			t.Errorf("%s, before: %q %s", name, d.Out, d.Err)
		}
		serving[name] = w.Launch(in(name, "perl", "-e", `$| = 1; print "ready\n"; <STDIN>; print "went on\n"`))
	}
	again.Network = []byte(`{"allow":[{"host":"web.example.org"}],"private":["192.0.2.2/32"]}`)
	if _, err := w.S.Reload(); err != nil {
		t.Fatal(err)
	}
	for name := range specs {
		want := "known\n"
		if name == "none" || name == "root" { // a root of its own was made without a name server
			want = "unknown\n"
		}
		for n := range 3 { // of slots that were made before, and later
			if d := w.Run(in(name, "perl", "-e", look)); d.Out != want {
				t.Errorf("%s, job %d after the grant: %q, want %q: %s", name, n+1, d.Out, want, d.Err)
			}
		}
		if d, err := serving[name].End(); err != nil || d.Out != "ready\nwent on\n" {
			t.Errorf("%s: a job that ran: %q, %v", name, d.Out, err)
		}
		if name != "apart" {
			w.Must(open[name], "grep -q kept /home/job/file")
		}
	}
}

// TestReloadWithoutRepository: a job whose repository is not served any more reaches nothing, also if directories without an entry may.
func TestReloadWithoutRepository(t *testing.T) {
	var again isolate.Config
	w := newWorld(t, func(c *isolate.Config) {
		again = *c
		c.Again = func() (isolate.Config, error) { return again, nil }
	})
	again.Own = false
	reload := func(entries ...admit.Entry) {
		t.Helper()
		again.Repos = entries
		if _, err := w.S.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	reload(admit.Entry{Path: w.Repo, Network: []byte(`{"allow":[{"host":"other.example.org"}]}`)})
	l := w.Launch(w.Spec("perl", "-e", `$| = 1; sub known { print gethostbyname("$_.example.org") ? "known" : "unknown", "\n" for "web", "other" }
		known; print "ready\n"; <STDIN>; known`))
	reload()
	d, err := l.End()
	if err != nil || d.Out != "unknown\nknown\nready\nunknown\nunknown\n" {
		t.Errorf("%q, %v", d.Out, err)
	}
}

// serving6 is a program that listens at a port of ::1.
const serving6 = `use Socket qw(:DEFAULT inet_pton AF_INET6); $| = 1; socket(my $s, PF_INET6, SOCK_STREAM, 0);
	bind($s, Socket::pack_sockaddr_in6(PORT, inet_pton(AF_INET6, "::1"))) && listen($s, 1) or die $!; print "ready\n"; <STDIN>`

// TestPortsWithDoor: the door's name server, at port 53 of 127.0.0.1, is not a server of the session's jobs. A server of theirs is,
// whatever its port.
func TestPortsWithDoor(t *testing.T) {
	w := newWorld(t)
	ss := w.Session(job.SessionSpec{Share: true})
	says := func(want ...uint16) {
		t.Helper()
		if got, more, err := w.C.Ports(t.Context(), ss.ID); err != nil || more || !slices.Equal(got, want) {
			t.Errorf("%v, more %v, %v, want %v", got, more, err, want)
		}
	}
	if d := w.In(ss, "exec 2>&1; CURL_CA_BUNDLE="+w.Repo+"/roots.pem "+fetch); d.Out != fetched {
		t.Fatalf("%q", d.Out)
	}
	says()
	overTCP := `use Socket; socket(my $s, PF_INET, SOCK_STREAM, 0); connect($s, sockaddr_in(53, INADDR_LOOPBACK)) or die $!;
		syswrite $s, pack("n/a", pack("n6 (C/a)3 C n2", 7, 0x100, 1, 0, 0, 0, "web", "example", "org", 0, 1, 1));
		sysread $s, my $answer, 512; printf "%d %d\n", unpack "x2 n x4 n", $answer`
	if d := w.In(ss, "perl -e '"+overTCP+"'"); d.Out != "7 1\n" {
		t.Errorf("a name over TCP: %+v", d)
	}
	for _, port := range []uint16{53, 8000} {
		spec := w.Spec("perl", "-e", strings.ReplaceAll(serving6, "PORT", strconv.Itoa(int(port))))
		spec.Session, spec.Workspace = ss.ID, ss.Workspace
		l := w.Launch(spec)
		says(port)
		if _, err := l.End(); err != nil {
			t.Error(err)
		}
	}
	says()
}

// TestNamesChange: a session's jobs get names from the name servers and the table of names that the host has at present.
func TestNamesChange(t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	write := func(path, content string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(content), 0o644), os.Chmod(path, 0o644)); err != nil { //nolint:gosec // everybody reads it
			t.Fatal(err)
		}
	}
	write(hosts, "127.0.0.1 localhost\n")
	w := newWorld(t, func(c *isolate.Config) {
		c.Network = []byte(`{"allow":[{"host":"web.example.org","protocol":"http"},{"host":"late.example.org","protocol":"http"}],"private":["192.0.2.1/32"]}`)
	})
	if err := unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		write("/etc/resolv.conf", "nameserver 127.0.0.1\n")
		if err := unix.Unmount("/etc/hosts", 0); err != nil {
			t.Error(err)
		}
	})
	write("/etc/resolv.conf", "nameserver 192.0.2.250\n") // nobody answers there
	ss := w.Session(job.SessionSpec{Share: true})
	reaches := func(host string) bool {
		d := w.In(ss, "curl -sS -m 4 -o /dev/null -w '%{http_code}' http://"+host+"/")
		return d.Out == "200"
	}
	if reaches("web.example.org") || reaches("late.example.org") {
		t.Fatal("a name is known before the files have it")
	}
	write(hosts, "192.0.2.1 late.example.org\n")
	sandboxtest.Eventually(t, 10*time.Second, "the new name is not reached", func() bool { return reaches("late.example.org") })
	write("/etc/resolv.conf", "nameserver 127.0.0.1\n")
	sandboxtest.Eventually(t, 10*time.Second, "the new name server is not asked", func() bool { return reaches("web.example.org") })
}
