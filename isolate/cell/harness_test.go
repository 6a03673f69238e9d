package cell

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/probe"
	"corral/job"
	"corral/seccomp"
)

// testJails are jails without a supervisor.
type testJails struct {
	*Jails
	served *admit.Served
}

var instanceNumber atomic.Int64

// newTestJails returns jails that change configured. They are closed with the test.
func newTestJails(t testing.TB, change func(*Config)) testJails {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Cgroups, sandboxtest.UserNamespaces)
	c := Config{
		Defaults: job.Defaults(), MaxJails: 9, Slots: 16, MaxSlots: 512, Idle: time.Hour,
		Log: slog.New(slog.NewTextHandler(logWriter(func(b []byte) { t.Errorf("log: %s", b) }), &slog.HandlerOptions{Level: slog.LevelError})),
	}
	ctx, end := context.WithCancel(context.Background())
	c.Context = ctx
	var u host.Cleanup
	t.Cleanup(u.Run)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	u.Push(end)
	var err error
	c.Programs, err = host.LoadPrograms(filepath.Dir(sandboxtest.Bin(t, "corral-init")))
	must(err)
	u.Push(c.Programs.Close)
	c.Userns = host.NewUsernsMaker(c.Programs.Stub)
	u.Push(c.Userns.Close)
	c.Instance, err = host.OpenInstance(fmt.Sprintf("cell-%d-%d", os.Getpid(), instanceNumber.Add(1)), host.DefaultUIDBase, host.DefaultUIDSize)
	must(err)
	u.Push(func() {
		if err := c.Instance.Close(); err != nil {
			t.Error(err)
		}
	})
	c.Probes, err = probe.New(ctx, probe.Config{
		Program: c.Programs.Stub, User: c.Instance.NobodyID() + 1, Payer: func(uid uint32) uint32 { return uid }, Log: c.Log,
	})
	must(err)
	u.Push(func() {
		end()
		c.Probes.Close()
	})
	c.Tools, err = host.HoldToolchains(c.Instance.Dir, nil, nil, nil, c.Log)
	must(err)
	served, err := admit.New(admit.Config{Own: true, Log: c.Log}, c.Probes)
	must(err)
	c.Served = admit.NewCurrent(served)
	if change != nil {
		change(&c)
	}
	s, err := New(c)
	must(err)
	u.Push(func() {
		s.End()
		end()
		s.Drop()
		s.Close()
	})
	return testJails{s, served}
}

type logWriter func([]byte)

func (w logWriter) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// enterNew returns the jail of a new repository, in use until the end of the test.
func (s testJails) enterNew(t testing.TB) *Jail { return s.enter(t, false) }

// enter is like enterNew for jobs that have doors or not.
func (s testJails) enter(t testing.TB, door bool) *Jail {
	t.Helper()
	peer, path := host.Peer{UID: sandboxtest.Owner}, sandboxtest.NewRepo(t)
	r, err := s.served.Serves(peer, path, sandboxtest.Opened(t, path))
	if err != nil {
		t.Fatal(err)
	}
	j, err := s.Enter(peer, r, seccomp.Profiles()[0], Network{Door: door})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Leave)
	return j
}

// burst takes n slots at once, as jobs do, and releases them.
func (j *Jail) burst(t testing.TB, n int) {
	t.Helper()
	var taken []*Slot
	for range n {
		sl, err := j.TakeSlot(false)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, sl)
	}
	for _, sl := range taken {
		sl.Release()
	}
}

// TestMain: the test binary is also libcontainer's init. The first thread must not be one that libcontainer moves into a
// jail's mount namespace: /proc/self refers to it.
func TestMain(m *testing.M) {
	runtime.LockOSThread()
	if len(os.Args) > 1 && os.Args[1] == "init" {
		JailInit()
	}
	runAhead()
	os.Exit(sandboxtest.PrivateMounts(m))
}

// runAhead gives the test's threads the priority of a supervisor (isolate.OwnMountNamespace). A jail cannot raise the priority
// of jobs to the default if the test runs with less, under nice(1).
func runAhead() {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, -10) // machine tests need root, which may
		}
	}
}
