package isolate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/admit"
	"corral/isolate/cell"
	"corral/isolate/door"
	"corral/isolate/host"
	"corral/isolate/sessions"
	"corral/job"
)

// Config is the operator's configuration. It comes from root: a root-owned file, or root's command line.
type Config struct {
	Instance   string        // name of this supervisor, [a-z0-9-]{1,32}
	Programs   string        // directory of corral-init and the other programs that run inside jails; must be writable only by root
	UIDBase    uint32        // first host user id for jails; 0 is DefaultUIDBase
	UIDSize    uint32        // number of host user ids; 0 is DefaultUIDSize
	Repos      []admit.Entry // directories that are served
	Kept       string        // id of a kept layer whose repository is served too; "" is none
	Commons    []string      // git directories of served worktrees; only for embedded supervisors
	Toolchains []string      // further host directories, read-only at their own path in every jail; unusable ones are left out
	EtcFiles   []string      // further files and directories of the host's /etc that jobs see
	Shown      []string      // toolchains named on an embedded supervisor's command line; New fails if one is unusable
	// Account is the user with whose rights an embedded supervisor opens the directories named on its command line.
	// nil means root's rights: the directories are the operator's choice.
	Account  *directory.Account
	Own      bool            // also serve each client the directories it owns
	Network  json.RawMessage // what jobs may reach, see admit.Config.Network; nil: nothing
	Requests *admit.Requests // likewise
	Exposed  []string        // what Network and Repos let jobs reach that an operator may not mean, a sentence each
	// How many connections jobs may have to hosts; zero fields are the defaults.
	Connections door.Connections
	Defaults    job.Limits      // for fields that a request leaves 0; zero fields are job.Defaults
	Ceilings    job.Limits      // maximum per request; zero fields are unlimited
	StateDir    string          // directory of state that outlives the supervisor, absolute; "" is DefaultStateDir
	Audit       Audit           // how the audit log is kept
	Layers      sessions.Layers // defaults and maximums of session layers
	JailIdle    time.Duration   // how long an unused jail is kept; 0 is five minutes
	MaxJobs     int             // maximum of concurrent jobs; 0 is 1,024
	MaxPerUser  int             // maximum of jobs, and of connections, per user other than root; 0 is 256
	UserMemory  int64           // maximum memory in bytes of a user's jobs, except root's; 0 is three quarters of the machine's, negative none
	MaxJails    int             // maximum of concurrent jails; 0 is 256
	Slots       int             // maximum of waiting slots per jail; 0 is 16, negative none
	MaxSlots    int             // maximum of waiting slots in all jails; 0 is 512, negative none
	Log         *slog.Logger    // nil discards
	// Again reads the configuration again for Reload, from the same places. It must not return fields of another supervisor:
	// instance, state directory, programs. nil: this supervisor cannot reload.
	Again func() (Config, error)

	switches switches
}

// switches replace what is constant, for the tests of this package alone: no other package can set them. A supervisor that is not
// tested has the zero value.
type switches struct {
	cell.Switches
	patience time.Duration // replaces sendPatience
	probing  time.Duration // replaces probe.DefaultPatience
	locked   time.Duration // replaces files.LockPatience of the audit log
	subuid   string        // replaces /etc/subuid
}

// complete fills in defaults and rejects invalid values.
func (c *Config) complete() error {
	if c.UIDBase == 0 {
		c.UIDBase = host.DefaultUIDBase
	}
	if c.UIDSize == 0 {
		c.UIDSize = host.DefaultUIDSize
	}
	if c.StateDir == "" {
		c.StateDir = host.DefaultStateDir
	}
	if !filepath.IsAbs(c.StateDir) || filepath.Clean(c.StateDir) != c.StateDir {
		return fmt.Errorf("state directory %q must be an absolute, clean path (without .., . or repeated slashes)", c.StateDir)
	}
	// checkPath compares real paths, and the state directory must never be served as a repository.
	if real, err := filepath.EvalSymlinks(filepath.Dir(c.StateDir)); err == nil {
		c.StateDir = filepath.Join(real, filepath.Base(c.StateDir))
	}
	c.switches.subuid = cmp.Or(c.switches.subuid, "/etc/subuid")
	c.Connections.Complete()
	if c.JailIdle == 0 {
		c.JailIdle = 5 * time.Minute
	}
	for field, value := range map[*int]int{&c.MaxJobs: 1024, &c.MaxPerUser: 256, &c.MaxJails: 256, &c.Slots: 16, &c.MaxSlots: 512} {
		if *field == 0 {
			*field = value
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := host.CheckInstance(c.Instance); err != nil {
		return err
	}
	if err := host.CheckUIDs(c.UIDBase, c.UIDSize); err != nil {
		return err
	}
	if err := c.Layers.Complete(); err != nil {
		return err
	}
	if err := c.bound(); err != nil {
		return err
	}
	// A request that leaves a limit open must not be refused for the default.
	c.Defaults = c.Defaults.Or(job.Defaults()).AtMost(c.Ceilings)
	return nil
}

// served returns the part of the configuration that says which directories are served, and with which limits.
func (c *Config) served() admit.Config {
	return admit.Config{
		Entries: c.Repos, Commons: c.Commons, Own: c.Own, Account: c.Account, Network: c.Network, Requests: c.Requests, Defaults: c.Defaults,
		Ceilings: c.Ceilings,
		Private:  []string{host.RunDir, host.DefaultStateDir, c.StateDir}, Log: c.Log,
	}
}

// bound sets ceilings, and the maximum memory of a user, that the operator left open to what the host has.
func (c *Config) bound() error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return os.NewSyscallError("sysinfo", err)
	}
	total := int64(info.Totalram) * int64(info.Unit)
	c.Ceilings.Memory = cmp.Or(c.Ceilings.Memory, total)
	c.Ceilings.PIDs = cmp.Or(c.Ceilings.PIDs, maxJobPIDs)
	c.UserMemory = cmp.Or(c.UserMemory, total/4*3) // the rest is for the host's own programs, the supervisor, and what no group is charged for
	return nil
}

// Open files of the host that one connection, jail or job takes, counting both ends and all of our processes. The
// numbers are one and a half times the measured ones, because a session's jail has more.
const (
	filesOfConnection = 4
	filesOfJail       = 96
	filesOfJob        = 16
)

// openFiles returns how many open files the host must allow (fs.file-max) so that everything permitted at once fits,
// plus one job that opens as many files as the default limits allow it.
func (c *Config) openFiles() int64 {
	return maxConnections*filesOfConnection + int64(c.MaxJails)*filesOfJail + int64(c.MaxJobs+max(c.MaxSlots, 0))*filesOfJob +
		c.Defaults.PIDs*c.Defaults.OpenFiles
}

// maxJobPIDs is an eighth of the largest default pid_max of a 64-bit kernel (proc_sys_kernel(5)).
const maxJobPIDs = 1 << 19
