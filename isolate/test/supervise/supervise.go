// Package supervise starts supervisors in the process of a test, for tests of what a supervisor does for its clients. Tests
// that change or look into the supervisor itself are in package isolate.
package supervise

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
	"corral/isolate/cell"
	"corral/isolate/client"
	"corral/isolate/host"
)

// Main runs the tests of a package and returns the exit code: the test binary is also libcontainer's init. It closes the
// supervisor of Shared, and fails if that logged an error or left something behind.
func Main(m *testing.M) int {
	sandboxtest.ServeFiles()
	if len(os.Args) > 1 && os.Args[1] == "init" {
		cell.JailInit()
	}
	if os.Geteuid() == 0 {
		if err := isolate.OwnMountNamespace(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Config returns the configuration of a new instance. Logged errors fail the test.
func Config(t testing.TB) isolate.Config {
	t.Helper()
	return config(t, fronttest.InstanceName(), filepath.Join(t.TempDir(), "state"), fronttest.ErrorsFail(t))
}

func config(t testing.TB, instance, state string, log *slog.Logger) isolate.Config {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Cgroups, sandboxtest.UserNamespaces)
	return isolate.Config{
		Own: true, Instance: instance, Programs: filepath.Dir(sandboxtest.Bin(t, "corral-init")), StateDir: state, Log: log,
	}
}

// A Front is a client of a supervisor with a repository of its own.
type Front struct {
	*fronttest.Front
	S     *isolate.Supervisor
	State string // state directory of the supervisor
}

// New starts a supervisor, with a configuration that change may change, and connects to it as the owner of a new repository.
// The supervisor is closed with the test and must leave nothing behind.
func New(t testing.TB, change ...func(*isolate.Config)) *Front {
	t.Helper()
	c := Config(t)
	for _, f := range change {
		f(&c)
	}
	s, err := isolate.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		fronttest.Gone(t, c.Instance)
	})
	return front(t, s, c.StateDir)
}

// Shared connects to the supervisor that tests of this process share, as the owner of a new repository. It has the
// configuration of Config. A test that counts sessions, or needs another configuration, takes New.
func Shared(t testing.TB) *Front {
	t.Helper()
	s, state := shared.Get(t, func(instance, state string, log *slog.Logger) (*isolate.Supervisor, error) {
		return isolate.New(config(t, instance, state, log))
	})
	return front(t, s, state)
}

func front(t testing.TB, s *isolate.Supervisor, state string) *Front {
	t.Helper()
	c := fronttest.Connect(t, s, host.Peer{UID: sandboxtest.Owner})
	return &Front{&fronttest.Front{T: t, C: c, Repo: sandboxtest.NewRepo(t)}, s, state}
}

// With returns a front of the same supervisor with another test, client and repository.
func (f *Front) With(t testing.TB, c *client.Client, repo string) *Front {
	return &Front{&fronttest.Front{T: t, C: c, Repo: repo}, f.S, f.State}
}

// Connect returns a client that the supervisor sees as peer.
func (f *Front) Connect(peer host.Peer) *client.Client {
	f.T.Helper()
	return fronttest.Connect(f.T, f.S, peer)
}

var shared fronttest.Shared[*isolate.Supervisor]
