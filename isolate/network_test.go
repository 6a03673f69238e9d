package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// serving is a Perl program that answers one connection to port 7007 with a word, and greet one that writes what it is answered.
const (
	serving = `use Socket; $| = 1; socket(my $s, PF_INET, SOCK_STREAM, 0); setsockopt($s, SOL_SOCKET, SO_REUSEADDR, 1);
bind($s, sockaddr_in(7007, INADDR_LOOPBACK)) && listen($s, 5) or die "bind: $!"; print "ready\n";
if (!fork) { while (accept(my $c, $s)) { syswrite($c, "canary"); close $c } } <STDIN>; kill 9, -$$`
	greet = `use Socket; socket(my $c, PF_INET, SOCK_STREAM, 0); connect($c, sockaddr_in(7007, INADDR_LOOPBACK)) ? print <$c> : print "refused"`
)

// inSession returns a job that runs a Perl program in a session; the zero Session is none.
func (f *front) inSession(ss job.Session, script string) job.Spec {
	spec := f.Spec("perl", "-e", script)
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	return spec
}

// TestSharedNetwork: a job reaches the servers of other jobs in its session, if they share their files. It reaches no other job of the
// same user and repository, and not the host.
func TestSharedNetwork(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	f := newFront(t)
	for name, spec := range map[string]job.SessionSpec{
		"direct": {Share: true}, "overlay": {Workspace: job.Overlay, Share: true}, "root": {Root: true},
	} {
		t.Run(name, func(t *testing.T) {
			ss := f.Session(spec)
			server := f.Launch(f.inSession(ss, serving))
			want := map[string]job.Session{
				"canary": ss, "refused, in another session": f.Session(spec),
				"refused, in a session that shares nothing": f.Session(job.SessionSpec{Workspace: spec.Workspace}), "refused, in none": {},
			}
			for text, in := range want {
				text, _, _ = strings.Cut(text, ",")
				if d := f.Run(f.inSession(in, greet)); d.Out != text {
					t.Errorf("%q in %+v: %q %s", text, in, d.Out, d.Err)
				}
			}
			if d, err := server.End(); err != nil || d.Limit != "" {
				t.Errorf("%+v %v", d.Result, err)
			}
			// The port is free when the job has ended, and the namespace lasts.
			again := f.Launch(f.inSession(ss, serving))
			if d := f.Run(f.inSession(ss, greet)); d.Out != "canary" {
				t.Errorf("the second server: %q %s", d.Out, d.Err)
			}
			if _, err := again.End(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOwnNetwork: jobs of a session that does not share files have network namespaces of their own, and so has the scanner of one
// that does.
func TestOwnNetwork(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	f := newFront(t)
	alone := f.Session(job.SessionSpec{Workspace: job.Overlay})
	server := f.Launch(f.inSession(alone, serving))
	if d := f.Run(f.inSession(alone, greet)); d.Out != "refused" {
		t.Errorf("%q", d.Out)
	}
	if _, err := server.End(); err != nil {
		t.Error(err)
	}
	ss := f.Session(job.SessionSpec{Share: true})
	server = f.Launch(f.inSession(ss, serving))
	defer server.End() //nolint:errcheck // it only keeps a slot in use
	names := networksOf(t, f.jailOf(ss).InitPID)
	if host, err := os.Readlink("/proc/self/ns/net"); err != nil || names[host] > 0 {
		t.Errorf("%d processes have the host's, %v", names[host], err)
	}
	if len(names) != 2 { // the scanner has its own
		t.Errorf("%v", names)
	}
}

// networksOf returns how many descendants of a process are in each network namespace.
func networksOf(t *testing.T, root int) map[string]int {
	t.Helper()
	parents := map[int]int{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		b, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		parents[pid], _ = strconv.Atoi(fields[1])
	}
	names := map[string]int{}
	for pid := range parents {
		for at := pid; at > 1; at = parents[at] {
			if at != root {
				continue
			}
			if name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil {
				names[name]++
			}
			break
		}
	}
	return names
}
