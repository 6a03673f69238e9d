package isolate

import (
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/job"
)

// requests returns the number of requests that the only jail's scanner has received.
func (f *front) requests() uint64 {
	f.T.Helper()
	return f.s.standing()[0].ScannerRequests
}

// silent runs a job that changes nothing, and reports whether it caused no request to the scanner.
func (f *front) silent(spec job.Spec) bool {
	f.T.Helper()
	before := f.requests()
	if d := f.Run(spec); d.ExitCode != 0 || d.Sensitive != nil || d.SensitiveIncomplete {
		f.T.Errorf("%+v, %s", d.Result, d.Err)
	}
	return f.requests() == before
}

// calm runs jobs that change nothing until one causes no request to the scanner. That takes more than a few jobs when a
// descriptor was left in a socket that no process can reach: the kernel closes it in a work queue (net/unix/garbage.c).
func (f *front) calm() {
	f.T.Helper()
	sandboxtest.Eventually(f.T, 10*time.Second, "a job causes no request to the scanner", func() bool {
		return f.silent(f.Spec("true"))
	})
}

// sensitiveRepo creates the sensitive paths of the following tests.
func sensitiveRepo(t testing.TB, f *front) {
	t.Helper()
	shell(t, f.Repo, `mkdir -p .git/hooks .git/objects .git/refs; echo ref: refs/heads/main >.git/HEAD; echo '[core]' >.git/config; mkdir plain; echo a >plain/file; echo b >.envrc; echo c >.npmrc; ln .npmrc plain/hard
		echo d >plain/script; ln -s ../../plain/script .git/hooks/post-merge; ln -s plain/file CLAUDE.md`)
	f.Settle()
	f.Run(f.Spec("true"))
	f.calm()
}

// alone makes a supervisor believe that it is the only one on the machine, where others may be running.
func alone(c *Config) { c.switches.Only = func() bool { return true } }

// TestOnlyInstance: a supervisor that is not the only one makes a request to the scanner after each job.
func TestOnlyInstance(t *testing.T) {
	var only atomic.Bool
	f := newFront(t, func(c *Config) { c.switches.Only = only.Load })
	supervise(t)
	if host.OnlyInstance() {
		t.Error("onlyInstance is true with two supervisors")
	}
	f.Sh("true")
	asked := f.requests
	before := asked()
	f.Sh("true")
	if n := asked(); n != before+1 {
		t.Errorf("%d requests after one job", n-before)
	}
	only.Store(true)
	eventually(t, func() string {
		before = asked()
		if f.Sh("true"); asked() != before {
			return "every job causes a request to the scanner"
		}
		return ""
	})
}

// TestScanSkippedWhenUnchanged: no scan is made after a job that changed nothing the scanner watches.
func TestScanSkippedWhenUnchanged(t *testing.T) {
	f := newFront(t, alone)
	sensitiveRepo(t, f)
	for _, script := range []string{"true", "cat plain/hard plain/file >/dev/null; ls -lR . .git >/dev/null", "stat .envrc .git/config"} {
		// The target of a sensitive link, and another name of a sensitive file, count as the file itself.
		if got, want := f.silent(f.Spec("sh", "-c", script)), script != "cat plain/hard plain/file >/dev/null; ls -lR . .git >/dev/null"; got != want {
			t.Errorf("%s: silent %v", script, got)
		}
		f.calm()
	}
	put(t, f.Repo+"/ordinary", "x", 0o644, owner)
	f.calm()
	if !f.silent(f.Spec("sh", "-c", "echo y >>ordinary; cat ordinary")) {
		t.Error("a write to an ordinary file causes a scan")
	}
}

// TestProtectListReused: without changes the list of paths to protect is reused, and a path created meanwhile is
// protected.
func TestProtectListReused(t *testing.T) {
	f := newFront(t, alone)
	sensitiveRepo(t, f)
	for _, p := range []job.Protection{job.ProtectHooks, job.ProtectAll} {
		spec := f.Spec("true")
		spec.Protect = p
		f.Run(spec)
		f.calm()
		f.silent(spec)
		if !f.silent(spec) {
			t.Errorf("%v: a request to the scanner was made", p)
		}
		nested := filepath.Join(p.String(), "deep", ".git")
		shell(t, f.Repo, "mkdir -p "+filepath.Dir(nested)+"; cp -r .git "+nested)
		f.Settle()
		spec.Args = []string{"sh", "-c", "echo x >>" + nested + "/config"}
		if d := f.Run(spec); d.ExitCode == 0 || d.Sensitive != nil {
			t.Errorf("%v: a repository created meanwhile is not protected: %+v", p, d.Result)
		}
	}
}

// TestChangesDetected: however a job changes a sensitive file, the result reports it once.
func TestChangesDetected(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("pydoc3")) // of a complete Python installation
	f := newFront(t, alone)
	sensitiveRepo(t, f)
	for _, tt := range []struct{ name, code, want string }{
		{"write", `open(".envrc", "a").write("x")`, ".envrc"},
		{"mapped memory", `mmap.mmap(os.open(".envrc", os.O_RDWR), 1)[0] = 65; os.kill(os.getpid(), 9)`, ".envrc"},
		{"descriptor in a socket", `
a, b = socket.socketpair(); fd = os.open(".envrc", os.O_RDWR); m = mmap.mmap(fd, 1)
socket.send_fds(a, [b"x"], [fd, a.fileno(), b.fileno()]); os.close(fd); m[0] = 66; os.kill(os.getpid(), 9)`, ".envrc"},
		{"truncate", `os.truncate(".envrc", 1)`, ".envrc"},
		{"chmod", `os.chmod(".envrc", 0o755)`, ".envrc"},
		{"times", `os.utime(".envrc", (1, 1))`, ".envrc"},
		{"attribute", `os.setxattr(".envrc", "user.x", b"x")`, ".envrc"},
		{"allocate", `os.posix_fallocate(os.open(".envrc", os.O_RDWR), 0, 8192)`, ".envrc"},
		{"renamed over", `open("n", "w").write("x"); os.rename("n", ".envrc")`, ".envrc"},
		{"one more name", `os.link(".envrc", "plain/later")`, ".envrc"},
		{"by the name of an earlier job", `open("plain/later", "a").write("x")`, ".envrc"},
		{"by a name that was there", `open("plain/hard", "a").write("x")`, ".npmrc"},
		{"without a name, then with", `fd = os.open(".", os.O_TMPFILE | os.O_RDWR); ctypes.CDLL(None).linkat(-100, b"/proc/self/fd/%d" % fd, -100, b".profile", 0x400)`, ".profile"},
		{"script behind a hook", `open("plain/script", "a").write("x")`, ".git/hooks/post-merge"},
		{"the way to it", `os.rename("plain", "p"); os.mkdir("plain"); open("plain/script", "w").write("x")`, ".git/hooks/post-merge"},
		{"link", `os.unlink("CLAUDE.md"); os.symlink("p/script", "CLAUDE.md")`, "CLAUDE.md"},
		{"nested repository", `os.makedirs("x/y/z/.git/hooks"); open("x/y/z/.git/hooks/update", "w").write("x")`, "x/y/z/.git/hooks/update"},
		{"directory renamed", `os.rename("x", "w")`, "w/y/z/.git/hooks/update"},
		{"directory closed", `os.chmod(".git/hooks", 0)`, ".git/hooks"},
		{"directory opened, and a hook", `os.chmod(".git/hooks", 0o755); open(".git/hooks/update", "w").write("x")`, ".git/hooks/update"},
		{"removed", `os.unlink(".envrc")`, ".envrc"},
	} {
		f.Settle()
		if tt.name != "directory opened, and a hook" {
			f.calm()
		}
		f.Settle()
		d := f.Run(f.Spec("python3", "-c", python+tt.code))
		if !slices.Contains(d.Sensitive, tt.want) {
			t.Errorf("%s: %q, %+v, %s", tt.name, d.Sensitive, d.Result, d.Err)
		}
	}
	f.calm()
}

// TestConcurrentChangesReported: the first scan empties the event queue, but the other jobs that lived at the time
// are still told of the changes. Changes through a descriptor that another job opened are reported too.
func TestConcurrentChangesReported(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("pydoc3")) // of a complete Python installation
	f := newFront(t, alone)
	sensitiveRepo(t, f)
	idle := f.Spec("sh", "-c", "echo ready; read x; true")
	first, second := f.Launch(idle), f.Launch(idle)
	if f.silent(f.Spec("sh", "-c", "echo x >new")) {
		t.Error("a new file caused no scan")
	}
	asked := f.requests()
	for _, l := range []*live{first, second} {
		if d, err := l.End(); err != nil || d.ExitCode != 0 {
			t.Errorf("%+v, %v", d.Result, err)
		}
	}
	if got := f.requests() - asked; got != 2 {
		t.Errorf("%d requests for two jobs that lived when another changed something", got)
	}
	f.calm()

	f.Settle()
	holder := f.Launch(f.Spec("python3", "-c", python+`
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind("s"); s.listen(); fd = os.open(".npmrc", os.O_RDWR)
print("ready", flush=True); c, _ = s.accept(); socket.send_fds(c, [b"x"], [fd]); sys.stdin.read()`))
	f.Run(f.Spec("true")) // its scan empties the queue of the open event
	d := f.Run(f.Spec("python3", "-c", python+`
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect("s"); _, fds, _, _ = socket.recv_fds(s, 1, 1); mmap.mmap(fds[0], 1)[0] = 67`))
	if !slices.Equal(d.Sensitive, []string{".npmrc"}) {
		t.Errorf("with another's descriptor: %+v, %s", d.Result, d.Err)
	}
	if d, err := holder.End(); err != nil || d.ExitCode != 0 {
		t.Errorf("%+v, %v, %s", d.Result, err, d.Err)
	}
	f.calm()
}

// TestMappedStoresDetected: a store through mmap to a sensitive file is reported, whichever job opened the
// descriptor, and also if the descriptor is left in a socket that no process can reach.
func TestMappedStoresDetected(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("pydoc3"), sandboxtest.Program("git")) // of a complete Python installation
	f := newFront(t, alone)
	sensitiveRepo(t, f)
	shell(t, f.Repo, "cp .git/config config")
	f.Settle()
	f.Run(f.Spec("true"))
	f.calm()
	const (
		store = "m = mmap.mmap(fd, 0); m[0] = ord('#')\n"
		gone  = "a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [fd, a.fileno(), b.fileno()])\n"
		give  = "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind('s'); s.listen()\nprint('ready', flush=True); c, _ = s.accept(); socket.send_fds(c, [b'x'], [fd]); sys.stdin.read()\n"
		take  = "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect('s'); _, (fd,), _, _ = socket.recv_fds(s, 1, 1)\n"
		open  = "fd = os.open('.git/config', os.O_RDWR)\n"
	)
	config := []string{".git/config"}
	if d := f.Run(f.Spec("python3", "-c", python+open+gone+store+"os.kill(os.getpid(), 9)")); !slices.Equal(d.Sensitive, config) {
		t.Errorf("left in a socket: %+v, %s", d.Result, d.Err)
	}
	shell(t, f.Repo, "cp config .git/config")
	f.Settle()
	f.Run(f.Spec("true"))
	f.calm()

	holder := f.Launch(f.Spec("python3", "-c", python+open+give))
	f.Run(f.Spec("true")) // its scan empties the queue of the open event
	if d := f.Run(f.Spec("python3", "-c", python+take+gone+store)); !slices.Equal(d.Sensitive, config) {
		t.Errorf("with another's descriptor: %+v, %s", d.Result, d.Err)
	}
	if d, err := holder.End(); err != nil || !slices.Equal(d.Sensitive, config) { // it lived at the time of the change
		t.Errorf("%+v, %v, %s", d.Result, err, d.Err)
	}
	f.calm()
}
