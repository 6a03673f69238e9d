package isolate

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate/cell"
	frontend "corral/isolate/client"
	"corral/isolate/host"
)

// Helpers of all of the supervisor's tests.
const (
	owner  = sandboxtest.Owner
	python = sandboxtest.Python
)

var (
	newRepo, mkdir, put = sandboxtest.NewRepo, sandboxtest.Mkdir, sandboxtest.Put
	exists, eventually  = sandboxtest.Exists, sandboxtest.Settled
	refusedAt, opened   = sandboxtest.RefusedAt, sandboxtest.Opened
	openDescriptors     = sandboxtest.OpenDescriptors
	waits               = sandboxtest.Waits
	give, handle        = sandboxtest.Give, sandboxtest.Handle
	inMountNamespace    = sandboxtest.InMountNamespace
	endLeader, ownTable = sandboxtest.EndLeader, sandboxtest.OwnTable

	connect, dial   = fronttest.Connect, fronttest.Dial
	traces, blocks  = fronttest.Traces, fronttest.Blocks
	shell, exchange = fronttest.Shell, fronttest.Exchange
	environment     = fronttest.Environment
)

type (
	live = fronttest.Live
	did  = fronttest.Did
)

// A front is a client of a supervisor with a repository of its own.
type front struct {
	*fronttest.Front
	s *Supervisor
}

// frontOf returns a front that uses a client and a repository.
func frontOf(t testing.TB, s *Supervisor, c *frontend.Client, repo string) *front {
	return &front{&fronttest.Front{T: t, C: c, Repo: repo}, s}
}

// sharedFront connects to the supervisor that tests of this process share, as the owner of a new repository. Tests take newFront that open
// sessions, read the audit log, count jails, leave thousands of files to a jail's watches, or change the supervisor or its configuration.
func sharedFront(t testing.TB) *front {
	t.Helper()
	s, _ := shared.Get(t, func(instance, state string, log *slog.Logger) (*Supervisor, error) {
		c := configOf(t, instance, state, log)
		c.MaxJails = 4 * sharedJails // a user may have a quarter of them in any case
		return New(c)
	})
	return frontOf(t, s, connect(t, s, host.Peer{UID: owner}), newRepo(t))
}

var shared fronttest.Shared[*Supervisor]

// sharedJails is the maximum number of jails of the shared supervisor: the jail of a new repository takes the place of one of another test
// that has ended. Otherwise the processes of all of them would stay until the last test.
const sharedJails = 4

// newFront starts a supervisor and connects to it as the owner of a new repository.
func newFront(t testing.TB, change ...func(*Config)) *front {
	t.Helper()
	s := supervise(t, change...)
	return frontOf(t, s, connect(t, s, host.Peer{UID: owner}), newRepo(t))
}

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
	code := m.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
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
	does, ok := map[string]func(*Supervisor) error{
		victim: beVictim, victimWithRoot: beVictimWithRoot, "contained": (*Supervisor).Close,
	}[name]
	if !ok {
		return errors.New("no such child")
	}
	s, err := New(Config{Instance: os.Getenv(childInstance), Programs: os.Getenv(childPrograms), StateDir: os.Getenv(childState), Own: true})
	if err != nil {
		return err
	}
	return does(s)
}

// config returns the configuration of a new instance. Logged errors fail the test.
func config(t testing.TB) Config {
	t.Helper()
	return configOf(t, fronttest.InstanceName(), filepath.Join(t.TempDir(), "state"), fronttest.ErrorsFail(t))
}

func configOf(t testing.TB, instance, state string, log *slog.Logger) Config {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Cgroups, sandboxtest.UserNamespaces)
	return Config{
		Own:      true,
		Instance: instance,
		Programs: filepath.Dir(sandboxtest.Bin(t, "corral-init")),
		StateDir: state,
		Log:      log,
		switches: switches{Switches: cell.Switches{Survey: &survey}},
	}
}

// survey is shared by all supervisors of the process: each would read all of /etc for its first jail, and all of /usr for its first session
// with a root of its own.
var survey cell.Survey

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
		fronttest.Gone(t, c.Instance)
	})
	return s
}
