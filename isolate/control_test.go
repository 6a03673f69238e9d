package isolate

import (
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	frontend "corral/isolate/client"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

func TestSignal(t *testing.T) {
	f := sharedFront(t)
	l := f.Waiting()
	send := func(number unix.Signal, everyone bool) {
		t.Helper()
		if err := l.Signal(int(number), everyone); err != nil {
			t.Fatal(err)
		}
	}
	send(unix.SIGUSR1, false)
	l.Until("first USR1")
	send(unix.SIGUSR2, true)
	l.Until("first USR2")
	l.Until("second USR2")
	send(unix.SIGTERM, false)
	d, err := l.End()
	if err != nil || d.ExitCode != 5 || strings.Contains(d.Out, "second USR1") || strings.Contains(d.Out, "second TERM") {
		t.Errorf("%+v, %v: %q", d.Result, err, d.Out)
	}
}

func TestKill(t *testing.T) {
	f := sharedFront(t)
	l := f.Waiting()
	if err := l.Kill(); err != nil {
		t.Fatal(err)
	}
	if d, err := l.End(); err != nil || d.Status != job.Cancelled || d.Signal != int(unix.SIGKILL) {
		t.Errorf("%+v, %v", d.Result, err)
	}
	// A job that is killed right after its request ends too.
	for range 20 {
		l, err := f.Start(f.Spec("sleep", "1000"))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Kill(); err != nil {
			t.Fatal(err)
		}
		if d, err := l.End(); err != nil || d.Status != job.Cancelled {
			t.Errorf("at once: %+v, %v", d.Result, err)
		}
	}
}

// TestDisconnect: closing a connection ends its jobs, and no others.
func TestDisconnect(t *testing.T) {
	f := sharedFront(t)
	kept := f.Waiting()
	gone := frontOf(t, f.s, connect(t, f.s, host.Peer{UID: owner}), f.Repo)
	l := gone.Waiting()
	if err := gone.C.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err := l.End(); !errors.Is(err, job.ErrUnavailable) || d.Status != job.Lost {
		t.Errorf("%+v, %v", d.Result, err)
	}
	eventually(t, func() string {
		if list := f.list(f.C); len(list) != 1 {
			return strings.Join(list, ", ")
		}
		return ""
	})
	if err := kept.Signal(int(unix.SIGTERM), false); err != nil {
		t.Fatal(err)
	}
	if d, err := kept.End(); err != nil || d.ExitCode != 5 {
		t.Errorf("%+v, %v", d.Result, err)
	}
}

// list returns the repositories of the jobs that a client sees.
func (f *front) list(c *frontend.Client) []string {
	f.T.Helper()
	entries, err := c.List()
	if err != nil {
		f.T.Fatal(err)
	}
	var repos []string
	for _, e := range entries {
		if e.Job == "" || e.Started < time.Now().Add(-time.Hour).UnixNano() {
			f.T.Errorf("%+v", e)
		}
		repos = append(repos, e.Repo)
	}
	return repos
}

// TestList: users see their own jobs, root sees all.
func TestList(t *testing.T) {
	f := sharedFront(t)
	const stranger = 1002
	other := frontOf(t, f.s, connect(t, f.s, host.Peer{UID: stranger}), newRepo(t))
	if err := os.Chown(other.Repo, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	jobs := []*live{f.Waiting(), other.Waiting()}
	root := connect(t, f.s, host.Peer{UID: 0})
	for _, tt := range []struct {
		who  string
		c    *frontend.Client
		want string
	}{{"owner", f.C, f.Repo}, {"stranger", other.C, other.Repo}, {"root", root, f.Repo + " " + other.Repo}} {
		if got := strings.Join(f.list(tt.c), " "); got != tt.want {
			t.Errorf("%s sees %s, want %s", tt.who, got, tt.want)
		}
	}
	for _, l := range jobs {
		if err := l.Kill(); err != nil {
			t.Error(err)
		}
		if _, err := l.End(); err != nil {
			t.Error(err)
		}
	}
	if got := f.list(root); len(got) != 0 {
		t.Errorf("afterwards %q", got)
	}
}

// TestForeignTag: tags are local to a connection, so a connection can signal only its own jobs.
func TestForeignTag(t *testing.T) {
	f := sharedFront(t)
	l := f.Waiting()
	other := frontOf(t, f.s, connect(t, f.s, host.Peer{UID: owner}), f.Repo)
	o := other.Waiting() // with the same tag
	if err := o.Signal(int(unix.SIGTERM), true); err != nil {
		t.Fatal(err)
	}
	if d, err := o.End(); err != nil || d.ExitCode != 5 {
		t.Errorf("%+v, %v", d.Result, err)
	}
	if out := l.Out.String(); strings.Contains(out, "TERM") {
		t.Errorf("%q", out)
	}
	if err := l.Kill(); err != nil {
		t.Fatal(err)
	}
	if d, err := l.End(); err != nil || d.Status != job.Cancelled {
		t.Errorf("%+v, %v", d.Result, err)
	}
}

func TestFacts(t *testing.T) {
	f := sharedFront(t)
	facts, err := f.C.Facts()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, fact := range facts {
		names[fact.Name] = fact.Detail
		if len(fact.Name) >= wire.MaxName {
			t.Errorf("%q is as long as a name can be: it may have been cut", fact.Name)
		}
	}
	// All connections, and the configured maximums.
	c := f.s.config
	if want := 2560*4 + c.MaxJails*96 + (c.MaxJobs+c.MaxSlots)*16 + int(c.Defaults.PIDs*c.Defaults.OpenFiles); names["open files"] != strconv.Itoa(want) {
		t.Errorf("%s open files, want %d", names["open files"], want)
	}
	if names["cgroup layout"] == "" || names["profiles"] != "default strict" {
		t.Errorf("%q", names)
	}
	if w, err := f.C.Hello(); err != nil || w.Instance != f.s.InstanceName() || w.FrontUID != 0 {
		t.Errorf("%+v, %v", w, err)
	}
}

// TestExposed: the supervisor reports what the configuration lets jobs reach, and sockets in toolchains, to which they can connect.
func TestExposed(t *testing.T) {
	tool := sandboxtest.OpenDir(t)
	socket := filepath.Join(tool, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := newFront(t, func(c *Config) { c.Toolchains, c.Exposed = []string{tool}, []string{"a rule"} })
	facts, err := f.C.Facts()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(facts, func(f wire.Fact) bool { return f.Name == "exposed" })
	if at < 0 || !strings.HasPrefix(facts[at].Detail, "a rule; ") || !strings.Contains(facts[at].Detail, socket) {
		t.Errorf("%+v", facts)
	}
}

// TestJobNotServed: a job that sees the supervisor's socket is not served, which the log says.
func TestJobNotServed(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("python3"))
	var log sandboxtest.Output
	f := newFront(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	path := filepath.Join(f.Repo, "socket")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, owner, owner); err != nil { // nobody may write to a file of root's through the repository's mount
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- f.s.Serve(l) }()
	const ask = `import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect("socket")
try: s.send(bytes.fromhex(sys.argv[1])); print(len(s.recv(65536)) > 0)
except (ConnectionError, BrokenPipeError): print(False)
`
	hello := hex.EncodeToString(wire.Encode(wire.Empty(wire.OpHello), 1))
	if d := f.Run(f.Spec("python3", "-c", ask, hello)); d.Out != "False\n" {
		t.Errorf("a job: %q, %q", d.Out, d.Err)
	}
	outside := exec.Command("python3", "-c", ask, hello)
	outside.Dir = f.Repo
	if out, err := outside.CombinedOutput(); err != nil || string(out) != "True\n" {
		t.Errorf("outside: %v, %q", err, out)
	}
	if said := log.String(); !strings.Contains(said, "is in the range of jobs") {
		t.Errorf("the log: %q", said)
	}
	l.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestTerminal: a job with a terminal has its own as controlling terminal.
func TestTerminal(t *testing.T) {
	f := sharedFront(t)
	spec := f.Spec("sh", "-c", "tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo all; read x </dev/tty && echo got $x")
	spec.Terminal = job.Size{Rows: 31, Cols: 97}
	var said fronttest.Output
	run, err := f.C.Start(spec, job.Stdio{}, func(master *os.File) {
		if _, err := master.WriteString("word\n"); err != nil {
			t.Error(err)
		}
		said.Read(master)
	})
	if err != nil {
		t.Fatal(err)
	}
	result, err := run.Wait()
	if err != nil || result.Status != job.Success {
		t.Fatalf("%+v, %v", result, err)
	}
	<-said.Done
	for _, want := range []string{"/dev/pts/0\r\n", "31 97\r\n", "all\r\n", "got word\r\n"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q lacks %q", said.String(), want)
		}
	}
}
