// Package fronttest has clients of a supervisor in the same process: they run jobs and sessions in a repository, and wait for
// what the jobs write. Tests of package isolate and tests of the supervisor's parts elsewhere have them in common.
package fronttest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/client"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// A Server is a supervisor that serves connections.
type Server interface {
	// ServeConn serves one client until it closes c.
	ServeConn(c *wire.Conn, peer host.Peer)
}

// A Front is a client of a supervisor with a repository of its own. Its methods fail the test T unless they return an error.
type Front struct {
	T    testing.TB
	C    *client.Client
	Repo string
}

// ErrorsFail returns a log: what is logged as an error fails the test.
func ErrorsFail(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(writer(func(b []byte) { t.Errorf("log: %s", b) }), &slog.HandlerOptions{Level: slog.LevelError}))
}

var instances atomic.Int64

// InstanceName returns the name of a new instance.
func InstanceName() string { return fmt.Sprintf("test-%d-%d", os.Getpid(), instances.Add(1)) }

// Gone checks that an instance has left nothing on the host.
func Gone(t testing.TB, instance string) {
	t.Helper()
	for _, left := range Traces(instance) {
		t.Errorf("left behind: %s", left)
	}
}

// Traces lists the state of an instance on the host: cgroups, its directory, user ids.
func Traces(instance string) []string {
	list := groups("/sys/fs/cgroup", instance, 3)
	if dir := filepath.Join(host.RunDir, "instances", instance); sandboxtest.Exists(dir) {
		list = append(list, dir)
	}
	return append(list, Blocks(instance)...)
}

// groups lists the cgroups of an instance in dir and in the directories up to depth levels below it.
func groups(dir, instance string, depth int) []string {
	var list []string
	if path := filepath.Join(dir, "corral", instance); sandboxtest.Exists(path) {
		list = append(list, path)
	}
	if depth == 0 {
		return list
	}
	entries, _ := os.ReadDir(dir) // a group that goes away meanwhile is as good as removed
	for _, e := range entries {
		if e.IsDir() {
			list = append(list, groups(filepath.Join(dir, e.Name()), instance, depth-1)...)
		}
	}
	return list
}

// Blocks lists the blocks of user ids allocated to an instance.
func Blocks(instance string) []string {
	var list []string
	files, _ := filepath.Glob(filepath.Join(host.RunDir, "uids", "[0-9]*"))
	for _, f := range files {
		if name, err := os.ReadFile(f); err == nil && string(name) == instance {
			list = append(list, f)
		}
	}
	return list
}

// Connect returns a client of s that the supervisor sees as peer.
func Connect(t testing.TB, s Server, peer host.Peer) *client.Client {
	t.Helper()
	conn := Dial(t, s, peer)
	c := client.New(conn)
	c.ByPath = peer.Embedded
	return c
}

// Dial returns the client's end of a connection.
func Dial(t testing.TB, s Server, peer host.Peer) *wire.Conn {
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

// Small is the size of a session's layer in tests, in bytes.
const Small = 64 << 20

// Environment is the environment of tests' jobs.
var Environment = []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}

// Spec returns a job that runs args in the front's repository.
func (f *Front) Spec(args ...string) job.Spec {
	return job.Spec{Repo: f.Repo, Args: args, Env: Environment}
}

// Session opens a session of the front's repository. The test fails if it cannot.
func (f *Front) Session(spec job.SessionSpec) job.Session {
	f.T.Helper()
	spec.Repo = f.Repo
	if spec.Disk == 0 {
		spec.Disk = Small
	}
	ss, err := f.C.OpenSession(context.Background(), spec)
	if err != nil {
		f.T.Fatal(err)
	}
	return ss
}

// In runs a shell script in a session.
func (f *Front) In(ss job.Session, script string) Did {
	f.T.Helper()
	spec := f.Spec("/bin/sh", "-c", script)
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	return f.Run(spec)
}

// Must runs a shell script in a session, which must succeed, and returns its output.
func (f *Front) Must(ss job.Session, script string) string {
	f.T.Helper()
	d := f.In(ss, script)
	if d.ExitCode != 0 {
		f.T.Fatalf("%s: exit code %d, limit %q: %s%s", script, d.ExitCode, d.Limit, d.Out, d.Err)
	}
	return d.Out
}

// CloseSession closes a session, and reports whether its changes were kept.
func (f *Front) CloseSession(ss job.Session, keep bool) bool {
	f.T.Helper()
	kept, err := f.C.CloseSession(context.Background(), ss.ID, keep)
	if err != nil {
		f.T.Fatal(err)
	}
	return kept
}

// Changes returns a job that lists the session's changes.
func (f *Front) Changes(ss job.Session) job.Spec {
	spec := f.Spec("changes", "list", ss.Repo)
	spec.Session, spec.Tool, spec.Workspace, spec.Repo = ss.ID, job.ToolChanges, job.ReadOnly, ""
	return spec
}

// Settle waits until the last job's changes are older than the next job by more than the clock's step.
func (f *Front) Settle() {
	done := time.Now()
	sandboxtest.Settled(f.T, func() string {
		if time.Since(done) < 5*host.ClockStep {
			return "too early"
		}
		return ""
	})
}

// Second returns the error of a call that has another result, too.
func Second[T any](_ T, err error) error { return err }

// Shell runs a script in a directory, gives all files there to the owner, and returns the output.
func Shell(t testing.TB, dir, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-euc", fmt.Sprintf("umask 022\n%s\nchown -hR %d:%d .", script, sandboxtest.Owner, sandboxtest.Owner))
	cmd.Dir, cmd.Env = dir, gitEnvironment
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// gitEnvironment makes git independent of the host's configuration.
var gitEnvironment = []string{
	"PATH=/usr/bin:/bin", "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a",
	"GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org", "LC_ALL=C",
	"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
}

// Exchange swaps two names repeatedly until the returned function is called, which returns how often that succeeded.
func Exchange(a, b string) (end func() (swaps int)) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	swaps := 0
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				if unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) == nil {
					swaps++
				}
			}
		}
	}()
	return func() int {
		close(stop)
		<-stopped
		return swaps
	}
}
