package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"corral/audit"
	"corral/isolate/layer"
	"corral/job"
	"corral/rootfs"
	"corral/seccomp"
)

// A Supervisor runs jobs. Make it with New, and Close it.
type Supervisor struct {
	config   Config
	instance *instance
	tools    *toolchains
	programs *programs
	userns   userMaker
	probes   prober
	audit    *audit.Log
	users    *os.File // the directory of users' state directories
	layers   *layer.Store
	images   *images
	expiring sync.WaitGroup // what removes kept layers
	hidden   hidden
	roots    roots
	pipes    uint64            // device number of every anonymous pipe
	refused  []rootfs.Place    // beside rootfs.Places
	homes    []string          // home directories of users
	filters  map[string]filter // by profile

	sequence atomic.Uint64 // of names
	live     atomic.Int64  // jobs
	began    time.Time     // this supervisor
	left     atomic.Int64  // when the last job ended, in nanoseconds since began
	slots    atomic.Int64  // that wait, or are made to
	denials  denials
	subuids  subordinates
	windows  liveWindows
	locks    lockWatch

	mu                   sync.Mutex
	jails                map[jailKey]*jail   // guarded by mu
	jobs                 map[string]*run     // guarded by mu: live jobs by id
	sessions             map[string]*session // guarded by mu: open ones, by id
	perUser, connections map[uint32]int      // guarded by mu: of each user, jobs and connections
	connected            int                 // guarded by mu: all connections
	hostile              map[uint32]int      // guarded by mu: of each user, messages that count for maxHostile
	opening              map[uint32]int      // guarded by mu: of each user, sessions that are being opened
	openingAll           int                 // guarded by mu: of all users
	ended                bool                // guarded by mu: no more jobs
	work                 sync.WaitGroup      // jobs, jails and whatever else has something on the host
	clients              sync.WaitGroup      // connections
	ctx                  context.Context     // ends with the supervisor
	stop                 context.CancelFunc  //
}

// New makes the instance's directories and cgroups, clears what a killed supervisor left, compiles the system call
// filters, and is then ready to serve. It must be root, in a mount namespace of its own (OwnMountNamespace).
func New(c Config) (*Supervisor, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("corrald must be root: it makes namespaces, mounts and cgroups\nhint: start it with sudo, or use the running one as a member of group corral")
	}
	// Nobody may look into this process (/proc/PID/mem, ptrace), even one with the same user id.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("prctl: %w", err)
	}
	// No core of this process, nor of those it starts.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return nil, fmt.Errorf("setrlimit: %w", err)
	}
	unix.Umask(0o077)
	s := &Supervisor{config: c, jails: map[jailKey]*jail{}, jobs: map[string]*run{}, sessions: map[string]*session{}, perUser: map[uint32]int{}, connections: map[uint32]int{}, hostile: map[uint32]int{}, opening: map[uint32]int{}, filters: map[string]filter{}, began: time.Now()}
	s.subuids = subordinates{subuid: s.config.subuid, passwd: "/etc/passwd", log: s.config.Log}
	s.ctx, s.stop = context.WithCancel(context.Background())
	var u undo
	defer u.run()
	var err error
	if s.programs, err = loadPrograms(c.Programs); err != nil {
		return nil, err
	}
	u.push(s.programs.close)
	s.userns.stub = s.programs.stub
	u.push(s.userns.close)
	if err := s.compileFilters(); err != nil {
		return nil, err
	}
	if s.pipes, err = pipeDevice(); err != nil {
		return nil, err
	}
	if s.instance, err = openInstance(c); err != nil {
		return nil, err
	}
	u.push(func() { _ = s.instance.close() })
	// Not before the instance has its cgroups: in a container they are made only for who is alone in its own.
	if err := s.userns.begin(); err != nil {
		return nil, err
	}
	s.probes = prober{stub: s.programs.stub, user: s.instance.uids.base + 1, patience: c.probing, ctx: s.ctx, log: c.Log, payer: s.payerOf}
	u.push(s.probes.close)
	if err := s.probes.begin(); err != nil {
		return nil, err
	}
	if s.tools, err = s.config.holdToolchains(s.instance.dir); err != nil {
		return nil, err
	}
	u.push(func() { _ = s.tools.close() })
	s.refused = homes()
	for _, home := range s.refused {
		s.homes = append(s.homes, home.Path)
	}
	s.refused = append(s.refused, stateDirs(RunDir, DefaultStateDir, s.config.StateDir)...)
	for _, r := range s.config.Repos {
		if err := s.checkPath(r.Path); err != nil {
			s.config.reject(r.Path, err)
		}
	}
	if err := s.openState(); err != nil {
		return nil, err
	}
	u.push(func() { s.users.Close() })
	if err := s.openLayers(); err != nil {
		return nil, err
	}
	u.push(func() { _ = s.closeLayers() })
	if err := s.serveKept(c.Kept); err != nil {
		return nil, err
	}
	if err := s.openAudit(); err != nil {
		return nil, err
	}
	s.config.logRejected()
	u.keep()
	s.rootAhead()
	return s, nil
}

// A filter is a profile's seccomp programs.
type filter struct {
	file *os.File // sealed
	last int      // how many bytes at its end are the program that is loaded last
}

func (s *Supervisor) compileFilters() error {
	for _, profile := range append(seccomp.Profiles(), seccomp.Scanner) {
		ahead, last, err := seccomp.Split(profile, goarch)
		if err != nil {
			return err
		}
		file, err := sealFilter(profile, slices.Concat(ahead, last))
		if err != nil {
			return err
		}
		s.filters[profile] = filter{file, len(last)}
	}
	return nil
}

func mountTmpfs(path string, flags uintptr) error {
	if err := os.Mkdir(path, 0o711); err != nil {
		return err
	}
	if err := unix.Chmod(path, 0o711); err != nil {
		return &os.PathError{Op: "chmod", Path: path, Err: err}
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", flags, "mode=0755"); err != nil {
		return &os.PathError{Op: "mount tmpfs", Path: path, Err: err}
	}
	return nil
}

// name returns a name that this instance has not used.
func (s *Supervisor) name(prefix string) string {
	return prefix + strconv.FormatUint(s.sequence.Add(1), 10)
}

// InstanceName is the supervisor's name, complete.
func (s *Supervisor) InstanceName() string { return s.instance.name }

// NobodyID returns a host user and group id that is nobody's: no job ever has it.
func (s *Supervisor) NobodyID() uint32 { return s.instance.uids.base }

// Close ends every job and jail and removes what the instance has on the host. Jobs report as lost to clients that are
// still connected.
func (s *Supervisor) Close() error {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.stop()
	s.mu.Lock()
	jails := make([]*jail, 0, len(s.jails))
	for _, j := range s.jails {
		jails = append(jails, j)
		if j.session != nil {
			j.session.condemn(j.session.keptWithSupervisor(), false)
		}
	}
	s.mu.Unlock()
	for _, j := range jails {
		j.drop()
	}
	s.work.Wait()
	s.waitForClients()
	s.roots.close()
	for _, f := range s.filters {
		f.file.Close()
	}
	s.userns.close()
	s.probes.close()
	s.programs.close()
	s.users.Close()
	// The log comes before the lock: who holds that takes what is open in this instance's name for lost.
	return errors.Join(s.closeAudit(), s.closeLayers(), s.tools.close(), s.instance.close())
}

// closePatience is how long Close waits for clients to be told what became of their jobs, once nothing is left of these.
const closePatience = 2 * time.Second

// waitForClients waits until all connections are closed, but not for a client that takes no answer, or for the kernel to
// close what a client has sent.
func (s *Supervisor) waitForClients() {
	done := make(chan struct{})
	go func() {
		s.clients.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closePatience):
		s.config.Log.Warn("clients left waiting")
	}
}

// begin counts a piece of work that Close waits for, or says that it is too late.
func (s *Supervisor) begin() bool { return s.beginIn(&s.work) }

func (s *Supervisor) beginIn(group *sync.WaitGroup) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	group.Add(1)
	return true
}

var errEnding = &job.Refusal{Step: "request", Message: "the supervisor is ending"}
