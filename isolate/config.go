package isolate

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/job"
)

// RunDir holds the state of every supervisor of the machine while it runs. It is one place, for user ids are handed out
// and killed instances are cleared machine-wide.
const RunDir = "/run/corral"

// instancesDir has a directory for each supervisor.
const instancesDir = RunDir + "/instances"

// Config is what the operator decided. It comes from root: a root-owned file, or root's command line.
type Config struct {
	Instance   string   // this supervisor's name, [a-z0-9-]{1,32}
	Programs   string   // directory with corral-init and the others that run inside jails; only root may write there
	UIDBase    uint32   // first host user id for jails; 0 is DefaultUIDBase
	UIDSize    uint32   // number of them; 0 is DefaultUIDSize
	Repos      []Repo   // directories served
	Kept       string   // id of a kept layer, whose repository is served too; "" is none
	Commons    []string // git directories that repositories are worktrees of, for an embedded supervisor's
	Toolchains []string // further host directories, read-only at their own path in every jail; one that cannot be is left out
	Shown      []string // toolchains that the command line of an embedded supervisor names; New fails if one cannot be shown
	// Account is whom an embedded supervisor opens the directories for that its command line names: with that user's rights.
	// nil is root's rights: the directories are the operator's choice.
	Account    *directory.Account
	Own        bool          // also serve to each client the directories it owns
	Defaults   job.Limits    // for fields a request leaves 0; zero fields are job.Defaults
	Ceilings   job.Limits    // the most a request may ask for; zero fields bound nothing
	StateDir   string        // of what outlives the supervisor, absolute; "" is DefaultStateDir
	Audit      Audit         // how the audit log is kept
	Layers     Layers        // what sessions may have
	JailIdle   time.Duration // an unused jail is dropped after it; 0 is five minutes
	MaxJobs    int           // at once; 0 is 1,024
	MaxPerUser int           // jobs and connections of one user who is not root; 0 is 256
	MaxJails   int           // standing at once; 0 is 256
	Slots      int           // that wait in one jail at most; 0 is 16, negative none
	MaxSlots   int           // that wait in all jails together; 0 is 512, negative none
	Log        *slog.Logger  // nil discards

	patience time.Duration // in place of sendPatience, for tests
	probing  time.Duration // in place of probePatience, likewise
	ending   time.Duration // in place of slotPatience for the end of a slot's processes, likewise
	reclaim  time.Duration // in place of reclaimRest, likewise
	trim     time.Duration // in place of trimInterval, likewise
	only     func() bool   // in place of onlyInstance, likewise
	subuid   string        // in place of /etc/subuid, likewise

	skip uint64 // steps of the confinement left out: for tests that show what a step is good for

	pinned  map[string]inode // of those Repos that are served, when the supervisor was made
	bad     map[string]error // of the others: why not
	commons map[string]inode // of Commons, likewise
}

// A Repo is a directory that the operator serves.
type Repo struct {
	Path string
	// UIDs are the users that may have jobs in it; nil is everybody who reaches the supervisor's socket.
	UIDs []uint32
	// Owner is the user whom the directory must belong to; nil is any.
	Owner *uint32
	// Whatever a front-end asks for:
	Ceilings job.Limits     // the most for its jobs, below those of the Config; zero fields bound nothing
	ReadOnly bool           // no job writes to it
	Overlay  bool           // no job does but to its session's layer; what was changed there can be applied
	Profile  string         // of system calls, that its jobs have; "" leaves it to them
	Protect  job.Protection // of sensitive paths, the least that jobs which write to it have
}

type inode struct{ dev, ino uint64 }

// A Peer is who is at the other end of a connection.
type Peer struct {
	UID uint32 // as the kernel says (SO_PEERCRED)
	// holder is the user on whom it counts what this one has and does, if that is another: see subordinates. 0 is none.
	holder uint32
	// Account is the peer with its groups (SO_PEERGROUPS), or whom root's own front-end asks for. nil is a user in no group
	// but the one with its own number, and for an embedded supervisor root itself.
	Account *directory.Account
	// Embedded is the front-end of root itself, which started this supervisor for the repositories it named.
	Embedded bool
	// Images says that an embedded one may make and remove root file systems: root started it for that.
	Images bool
}

// payer is the user on whom it counts what the peer has and does. What the peer may do goes by UID.
func (p Peer) payer() uint32 {
	if p.holder != 0 {
		return p.holder
	}
	return p.UID
}

// reservedNames are files and groups of ours in a cgroup directory.
var reservedNames = []string{"init", "supervisor", "tasks"}

var instanceName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// complete fills in defaults, pins the repositories and refuses what cannot be.
func (c *Config) complete() error {
	if c.UIDBase == 0 {
		c.UIDBase = DefaultUIDBase
	}
	if c.UIDSize == 0 {
		c.UIDSize = DefaultUIDSize
	}
	if c.StateDir == "" {
		c.StateDir = DefaultStateDir
	}
	if !filepath.IsAbs(c.StateDir) || filepath.Clean(c.StateDir) != c.StateDir {
		return fmt.Errorf("state directory %q: an absolute path, without .. and the like", c.StateDir)
	}
	// It is refused as a repository by its real path.
	if real, err := filepath.EvalSymlinks(filepath.Dir(c.StateDir)); err == nil {
		c.StateDir = filepath.Join(real, filepath.Base(c.StateDir))
	}
	if c.patience == 0 {
		c.patience = sendPatience
	}
	if c.probing == 0 {
		c.probing = probePatience
	}
	if c.ending == 0 {
		c.ending = slotPatience
	}
	if c.reclaim == 0 {
		c.reclaim = reclaimRest
	}
	if c.trim == 0 {
		c.trim = trimInterval
	}
	if c.only == nil {
		c.only = onlyInstance
	}
	if c.subuid == "" {
		c.subuid = "/etc/subuid"
	}
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
	if !instanceName.MatchString(c.Instance) || slices.Contains(reservedNames, c.Instance) {
		return fmt.Errorf("instance name %q: lower-case letters, digits and dashes, at most 32", c.Instance)
	}
	if c.UIDBase < 1<<16 || c.UIDSize < 2*uidBlock || uint64(c.UIDBase)+uint64(c.UIDSize) > 1<<32-2 {
		return fmt.Errorf("user ids %d+%d: a range of at least %d above 65535", c.UIDBase, c.UIDSize, 2*uidBlock)
	}
	if err := c.Layers.complete(); err != nil {
		return err
	}
	c.capCeilings()
	c.Defaults = c.Defaults.Or(job.Defaults()).AtMost(c.Ceilings) // who asks for nothing asks for nothing that is refused
	c.pinCommons()
	c.pinRepos()
	return nil
}

// capCeilings bounds what a request may ask for by what the host has, where the operator set no ceiling.
func (c *Config) capCeilings() {
	var info unix.Sysinfo_t
	if c.Ceilings.Memory == 0 && unix.Sysinfo(&info) == nil {
		c.Ceilings.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	if c.Ceilings.PIDs == 0 {
		c.Ceilings.PIDs = maxJobPIDs
	}
}

// How many open files of the host one of these takes, both ends and all processes of ours counted: half as many again as were
// counted, for a session's jail has more.
const (
	filesOfConnection = 4
	filesOfJail       = 96
	filesOfJob        = 16
)

// openFiles is how many files the host must let be open (fs.file-max), that everything that is allowed at once can be, and one job
// beside can have all that it may by default.
func (c *Config) openFiles() int64 {
	return maxConnections*filesOfConnection + int64(c.MaxJails)*filesOfJail + int64(c.MaxJobs+max(c.MaxSlots, 0))*filesOfJob +
		c.Defaults.PIDs*c.Defaults.OpenFiles
}

// maxJobPIDs is an eighth of the process ids a 64-bit kernel has by default at most (pid_max, proc_sys_kernel(5)).
const maxJobPIDs = 1 << 19

// servesTo says whether the operator serves path to peer.
func (c *Config) servesTo(peer Peer, path string) bool {
	return slices.ContainsFunc(c.Repos, func(r Repo) bool {
		return r.Path == path && (r.UIDs == nil || peer.Embedded || slices.Contains(r.UIDs, peer.UID))
	})
}

// unwrapErrno returns the kernel's error number in err, or err.
func unwrapErrno(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
