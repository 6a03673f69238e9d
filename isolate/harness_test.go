package isolate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/isolatetest"
	"corral/internal/test/sandboxtest"
	"corral/isolate/cell"
	frontend "corral/isolate/client"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// Helpers of all of the supervisor's tests.
const (
	owner  = isolatetest.Owner
	python = isolatetest.Python
)

var (
	newRepo, mkdir, put = isolatetest.NewRepo, isolatetest.Mkdir, isolatetest.Put
	exists, eventually  = isolatetest.Exists, isolatetest.Eventually
	refusedAt, opened   = isolatetest.RefusedAt, isolatetest.Opened
	openDescriptors     = isolatetest.OpenDescriptors
	waits               = isolatetest.Waits
	give, handle        = isolatetest.Give, isolatetest.Handle
	inMountNamespace    = isolatetest.InMountNamespace
	endLeader, ownTable = isolatetest.EndLeader, isolatetest.OwnTable
)

// TestMain: the test binary is also libcontainer's init, and a supervisor for tests that kill or contain one.
func TestMain(m *testing.M) {
	sandboxtest.ServeFiles()
	if len(os.Args) > 1 && os.Args[1] == "init" {
		cell.JailInit()
	}
	if os.Geteuid() == 0 {
		if err := OwnMountNamespace(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if name := os.Getenv(childVar); name != "" {
		if err := beChild(name); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Environment variables of a child supervisor: its role, instance and directories.
const (
	childVar      = "CORRAL_TEST_CHILD"
	childInstance = "CORRAL_TEST_CHILD_INSTANCE"
	childPrograms = "CORRAL_TEST_CHILD_PROGRAMS"
	childState    = "CORRAL_TEST_CHILD_STATE"
)

func childEnv(name string, c Config) []string {
	return append(os.Environ(), childVar+"="+name, childInstance+"="+c.Instance, childPrograms+"="+c.Programs, childState+"="+c.StateDir)
}

// beChild runs a supervisor in the role name.
func beChild(name string) error {
	does, ok := map[string]func(*Supervisor) error{"victim": beVictim, "contained": (*Supervisor).Close}[name]
	if !ok {
		return errors.New("no such child")
	}
	s, err := New(Config{Instance: os.Getenv(childInstance), Programs: os.Getenv(childPrograms), StateDir: os.Getenv(childState), Own: true})
	if err != nil {
		return err
	}
	return does(s)
}

var instances atomic.Int64

// config returns the configuration of a new instance. Logged errors fail the test.
func config(t testing.TB) Config {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Cgroups, sandboxtest.UserNamespaces)
	return Config{
		Own:      true,
		Instance: fmt.Sprintf("test-%d-%d", os.Getpid(), instances.Add(1)),
		Programs: filepath.Dir(sandboxtest.Bin(t, "corral-init")),
		StateDir: filepath.Join(t.TempDir(), "state"),
		Log:      slog.New(slog.NewTextHandler(writer(func(b []byte) { t.Errorf("log: %s", b) }), &slog.HandlerOptions{Level: slog.LevelError})),
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(bytes.TrimSpace(b))
	return len(b), nil
}

// supervise starts a supervisor, which is closed with the test and must leave nothing behind.
func supervise(t testing.TB, change ...func(*Config)) *Supervisor {
	t.Helper()
	c := config(t)
	for _, f := range change {
		f(&c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		for _, left := range traces(c.Instance) {
			t.Errorf("left behind: %s", left)
		}
	})
	return s
}

// traces lists the state of an instance on the host: cgroups, its directory, user ids.
func traces(instance string) []string {
	var list []string
	for _, pattern := range []string{"", "*/", "*/*/", "*/*/*/"} {
		found, _ := filepath.Glob("/sys/fs/cgroup/" + pattern + "corral/" + instance) // the pattern is valid
		list = append(list, found...)
	}
	if dir := filepath.Join(host.RunDir, "instances", instance); exists(dir) {
		list = append(list, dir)
	}
	return append(list, blocks(instance)...)
}

// blocks lists the blocks of user ids allocated to an instance.
func blocks(instance string) []string {
	var list []string
	files, _ := filepath.Glob(filepath.Join(host.RunDir, "uids", "[0-9]*"))
	for _, f := range files {
		if name, err := os.ReadFile(f); err == nil && string(name) == instance {
			list = append(list, f)
		}
	}
	return list
}

// A front is a client of a supervisor with a repository of its own.
type front struct {
	t    testing.TB
	s    *Supervisor
	c    *frontend.Client
	repo string
}

// newFront starts a supervisor and connects to it as the owner of a new repository.
func newFront(t testing.TB, change ...func(*Config)) *front {
	t.Helper()
	s := supervise(t, change...)
	return &front{t, s, connect(t, s, host.Peer{UID: owner}), newRepo(t)}
}

// connect returns a client of s that the supervisor sees as peer.
func connect(t testing.TB, s *Supervisor, peer host.Peer) *frontend.Client {
	t.Helper()
	conn := dial(t, s, peer)
	c := frontend.New(conn)
	c.ByPath = peer.Embedded
	return c
}

// dial returns the client's end of a connection.
func dial(t testing.TB, s *Supervisor, peer host.Peer) *wire.Conn {
	t.Helper()
	ours, file, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := wire.NewConn(file)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		s.ServeConn(theirs, peer)
		close(served)
	}()
	t.Cleanup(func() {
		ours.Close()
		<-served
	})
	return ours
}

// environment is the environment of tests' jobs.
var environment = []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}

// spec returns a job that runs args in the front's repository.
func (f *front) spec(args ...string) job.Spec {
	return job.Spec{Repo: f.repo, Args: args, Env: environment}
}

// A live is a running job.
type live struct {
	*frontend.Run
	t        testing.TB
	in       *os.File
	out, err output
}

// An output collects what a job writes to one of its streams.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	seen chan struct{} // signals new text, or the end
	done chan struct{}
}

func (o *output) read(r *os.File) {
	o.seen, o.done = make(chan struct{}, 1), make(chan struct{})
	go func() {
		_, _ = io.Copy(writer(func([]byte) {}), io.TeeReader(r, o))
		r.Close()
		close(o.done)
		o.notify()
	}()
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.notify()
	return o.b.Write(b)
}

func (o *output) notify() {
	select {
	case o.seen <- struct{}{}:
	default:
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start starts a job whose standard input stays open until l.in is closed.
func (f *front) start(spec job.Spec) (*live, error) {
	f.t.Helper()
	l := &live{t: f.t}
	var ends [3][2]*os.File
	for i := range ends {
		r, w := f.pipe()
		ends[i] = [2]*os.File{r, w}
	}
	l.in = ends[0][1]
	l.out.read(ends[1][0])
	l.err.read(ends[2][0])
	var err error
	l.Run, err = f.c.Start(spec, job.Stdio{Stdin: ends[0][0], Stdout: ends[1][1], Stderr: ends[2][1]}, nil)
	if err != nil {
		l.in.Close()
	}
	return l, err
}

// pipe returns a pipe that belongs to the owner of the repository, as if they had made it.
func (f *front) pipe() (r, w *os.File) {
	f.t.Helper()
	var st unix.Stat_t
	r, w, err := os.Pipe()
	if err := errors.Join(err, unix.Stat(f.repo, &st), w.Chown(int(st.Uid), int(st.Gid))); err != nil {
		f.t.Fatal(err)
	}
	return r, w
}

// until waits until the job has written text.
func (l *live) until(text string) {
	l.t.Helper()
	limit := time.After(time.Minute)
	for !strings.Contains(l.out.String(), text) {
		select {
		case <-l.out.seen:
		case <-l.out.done:
			if !strings.Contains(l.out.String(), text) {
				l.t.Fatalf("the job ended without %q: %q, %q", text, l.out.String(), l.err.String())
			}
		case <-limit:
			l.t.Fatalf("the job did not write %q but %q, %q", text, l.out.String(), l.err.String())
		}
	}
}

// A did is the result of a job and its output.
type did struct {
	job.Result
	out, err string
}

// end closes the job's input and waits for its end.
func (l *live) end() (did, error) {
	l.in.Close()
	result, err := l.Wait()
	<-l.out.done
	<-l.err.done
	return did{result, l.out.String(), l.err.String()}, err
}

// try runs a job with empty input.
func (f *front) try(spec job.Spec) (did, error) {
	f.t.Helper()
	l, err := f.start(spec)
	if err != nil {
		return did{}, err
	}
	return l.end()
}

// run runs a job that must start.
func (f *front) run(spec job.Spec) did {
	f.t.Helper()
	d, err := f.try(spec)
	if err != nil {
		f.t.Fatalf("%.80q: %v", spec.Args, err)
	}
	return d
}

// sh runs a shell script, which must succeed, and returns its trimmed output.
func (f *front) sh(script string) string {
	f.t.Helper()
	d := f.run(f.spec("sh", "-c", script))
	if d.Status != job.Success {
		f.t.Errorf("%s: %+v %s", script, d.Result, d.err)
	}
	return strings.TrimSpace(d.out)
}
