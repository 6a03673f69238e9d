package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/admit"
	"corral/isolate/cell"
	"corral/isolate/door"
	"corral/isolate/host"
	"corral/isolate/meter"
	"corral/isolate/probe"
	"corral/isolate/sessions"
	"corral/store/audit"
)

// A Supervisor runs jobs in jails. Create it with New and release it with Close.
type Supervisor struct {
	config   Config
	instance *host.Instance
	tools    *host.Toolchains
	programs *host.Programs
	userns   *host.UsernsMaker
	probes   *probe.Prober
	cells    *cell.Jails
	network  *network
	served   *admit.Current
	audit    *audit.Log
	state    *host.State
	jobs     *jobTable
	sessions *sessions.Manager
	server   *server
	reloads  *reloader

	denials denialLimiter
	recent  recentDenials
	// refusals bounds the lines of the diagnostic log about refused jobs.
	refusals host.LogLimit
	subuids  *host.Subordinates
	locks    meter.LockWatch

	work host.Work          // jobs, and everything else that has state on the host
	ctx  context.Context    // canceled when the supervisor ends
	stop context.CancelFunc // cancels ctx
}

// New creates the instance's directories and cgroups, clears what killed supervisors left, compiles the system call
// filters, and returns a supervisor that is ready to serve. The caller must be root and in a mount namespace of its
// own (OwnMountNamespace).
func New(c Config) (*Supervisor, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	if err := protectProcess(); err != nil {
		return nil, err
	}
	s := &Supervisor{config: c}
	s.subuids = host.NewSubordinates(c.switches.subuid, c.Log)
	s.ctx, s.stop = context.WithCancel(context.Background())
	var u host.Cleanup
	defer u.Run()
	// Each uses what those before it opened.
	for _, open := range []func(*Supervisor, *host.Cleanup) error{openInstance, openServed, openCells, openNetwork, openSessions} {
		if err := open(s, &u); err != nil {
			return nil, err
		}
	}
	if err := s.openAudit(); err != nil {
		return nil, err
	}
	s.expose(&s.config)
	s.reloads = newReloader(s)
	s.server = newServer(c.MaxPerUser)
	s.served.Now().LogRejected()
	u.Cancel()
	s.cells.RootAhead()
	return s, nil
}

// protectProcess makes sure that this process is root, and that no other process can read its memory or files.
func protectProcess() error {
	if os.Geteuid() != 0 {
		return errors.New("corrald must be root: it makes namespaces, mounts and cgroups\nhint: start it with sudo, or join group corral and use the supervisor that is running")
	}
	// No other process may read this one's memory (/proc/PID/mem, ptrace), not even with the same user id.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	// Neither this process nor any process it starts dumps core.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("setrlimit: %w", err)
	}
	unix.Umask(0o077)
	return nil
}

// openInstance loads the programs that run in jails, opens the instance, and starts the processes that help the
// supervisor.
func openInstance(s *Supervisor, u *host.Cleanup) (err error) {
	c := &s.config
	if s.programs, err = host.LoadPrograms(c.Programs); err != nil {
		return err
	}
	u.Push(s.programs.Close)
	s.userns = host.NewUsernsMaker(s.programs.Stub)
	u.Push(s.userns.Close)
	if s.instance, err = host.OpenInstance(c.Instance, c.UIDBase, c.UIDSize); err != nil {
		return err
	}
	u.Push(func() { _ = s.instance.Close() })
	// Only after the instance has its cgroups: in a container they are set up only if this process is alone in its
	// cgroup, and this starts another process.
	if err := s.userns.Begin(); err != nil {
		return err
	}
	s.probes, err = probe.New(s.ctx, probe.Config{
		Program: s.programs.Stub, User: s.instance.NobodyID() + 1, Patience: c.switches.probing, Payer: s.subuids.PayerOf, Log: c.Log,
	})
	if err != nil {
		return err
	}
	u.Push(s.probes.Close)
	return nil
}

// openServed opens the directories that the configuration names: those that are served, and toolchains.
func openServed(s *Supervisor, u *host.Cleanup) error {
	c := &s.config
	served, err := admit.New(c.served(), s.probes)
	if err != nil {
		return err
	}
	s.served = admit.NewCurrent(served)
	if s.tools, err = host.HoldToolchains(s.instance.Dir, c.Toolchains, c.Shown, c.Account, c.Log); err != nil {
		return err
	}
	u.Push(func() { _ = s.tools.Close() })
	return nil
}

// openCells prepares the making of jails, and the table of their jobs.
func openCells(s *Supervisor, u *host.Cleanup) (err error) {
	c := &s.config
	if err := s.instance.Groups.LimitUsers(max(0, c.UserMemory)); err != nil {
		return err
	}
	s.cells, err = cell.New(cell.Config{
		Context: s.ctx, Instance: s.instance, Programs: s.programs, Tools: s.tools, Userns: s.userns, Probes: s.probes, Served: s.served,
		Log: c.Log, Defaults: c.Defaults, MaxJails: c.MaxJails, Slots: c.Slots, MaxSlots: c.MaxSlots, Idle: c.JailIdle,
		EtcFiles: c.EtcFiles, Switches: c.switches.Switches,
	})
	if err != nil {
		return err
	}
	u.Push(s.cells.Close)
	s.jobs = newJobTable(c.MaxJobs, c.MaxPerUser, s.cells)
	return nil
}

// openNetwork opens the supervisor's own directory on the host, and prepares the doors of jobs.
func openNetwork(s *Supervisor, u *host.Cleanup) (err error) {
	c := &s.config
	if s.state, err = host.OpenState(c.StateDir); err != nil {
		return err
	}
	u.Push(s.state.Close)
	doors := door.Config{Instance: s.instance, Log: c.Log, Store: s.state.Cache, Connections: c.Connections}
	s.network = newNetwork(doors, s.served, c.Programs, c.StateDir)
	u.Push(func() { _ = s.network.doors.Close() })
	return nil
}

// openSessions prepares sessions. If root named a kept layer on the command line, its repository is served, too.
func openSessions(s *Supervisor, u *host.Cleanup) (err error) {
	c := &s.config
	s.sessions, err = sessions.New(sessions.Config{
		Context: s.ctx, Work: &s.work, Dir: s.instance.Dir, StateDir: c.StateDir, Layers: c.Layers,
		Admitting: s.jobs.admitting, Jails: s.cells, Served: s.served, Userns: s.userns, Subuids: s.subuids, Log: c.Log,
		Network: s.network.jail,
	})
	if err != nil {
		return err
	}
	u.Push(func() { _ = s.sessions.Close() })
	return s.sessions.ServeKept(c.Kept)
}

// InstanceName returns the supervisor's instance name with defaults applied.
func (s *Supervisor) InstanceName() string { return s.instance.Name }

// NobodyID returns a host user and group id that no job ever has. Front-ends of plain root become it.
func (s *Supervisor) NobodyID() uint32 { return s.instance.NobodyID() }

// Close ends every job and jail and removes everything the instance has on the host. Clients that are still connected
// receive the result "lost" for their jobs.
func (s *Supervisor) Close() error {
	s.work.End()
	s.server.clients.End()
	s.cells.End()
	s.stop()
	s.sessions.EndSessions()
	s.cells.Drop()
	s.work.Wait()
	s.cells.Close()
	doorsErr := s.network.doors.Close() // the jails have closed their doors
	s.waitForClients()
	s.userns.Close()
	s.probes.Close()
	s.programs.Close()
	s.state.Close()
	// The audit log is closed before the instance lock is released: once another supervisor gets that lock, it records
	// every job still open in this instance's name as lost.
	return errors.Join(doorsErr, s.closeAudit(), s.sessions.Close(), s.tools.Close(), s.instance.Close())
}

// closePatience is how long Close waits for clients to receive the results of their jobs after the jobs themselves
// are gone.
const closePatience = 2 * time.Second

// waitForClients waits, at most closePatience, until all connections are closed. It does not wait longer for a client
// that does not read its results, or for the kernel to close descriptors that a client sent.
func (s *Supervisor) waitForClients() {
	done := make(chan struct{})
	go func() {
		s.server.clients.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closePatience):
		s.config.Log.Warn("clients did not close their connections in time")
	}
}
