// Package config reads the files that say what corral may do.
//
// The operator's, /etc/corral/config.yaml, is root's: which directories are served, to whom and within which limits. The
// supervisor obeys it and reads no other. Front-ends read it too, then a file of the user's, then one that the command
// line names (see FrontSources): what a later one says holds instead, key by key in mappings, as a whole else. So a
// user's file cannot widen what the supervisor allows, and has no keys of the supervisor's own.
//
// A file is read strictly. A key that is not known, one that is there twice, a value of another type or out of its range
// is an error that says where (file:line:column) and what is wanted; all of them are reported together, and nothing of the
// files is used then. What is in none of them has the value that Default returns.
//
// Keys are rows of tables (see Config.keys), one per mapping of the file. A JSON Schema (Schema) with the same keys is
// for editors; it knows less than Load does.
//
// The package also changes files: an Edit adds or removes one entry and leaves every other byte as it is (see Rewrite).
//
// The package knows the words of package job, and nothing of what the supervisor does with them.
package config

import (
	_ "embed" // for Schema and Example
	"time"

	"corral/job"
)

// DefaultPath is where the operator's file lies.
const DefaultPath = "/etc/corral/config.yaml"

// Schema is the JSON Schema of the file, draft 2020-12.
//
//go:embed schema.json
var Schema string

// Example is a file with every key commented out and explained: it says what is so without it.
//
//go:embed example.yaml
var Example string

// Config is what the file says.
type Config struct {
	// What the supervisor obeys. A front-end reads it too, to refuse early and in words of its own.

	UIDs       UIDs
	Repos      []Repo   // directories to serve
	Toolchains []string // further host directories, read-only at their own path in every jail; absolute and clean
	// OwnDirectories also serves each user the directories that belong to them. nil leaves it to ServesOwn.
	OwnDirectories *bool
	Defaults       job.Limits    // for a job that names none; no field is zero
	Ceilings       job.Limits    // the most that a job may ask for; a zero field bounds nothing
	JailIdle       time.Duration // an unused jail is dropped after it
	MaxJobs        int           // at once
	MaxJobsPerUser int           // jobs at once, and connections, of one user who is not root
	MaxJails       int           // standing at once
	WarmSlots      int           // places for jobs that wait in one jail at most; 0 is none
	MaxWarmSlots   int           // that wait in all jails together; 0 is none
	Audit          Audit
	Layers         Layers
	Profiles       map[string]Profile // by name; nil is none but those of seccomp, "default" and "strict"

	// What front-ends obey. The supervisor refuses a file in which it is wrong, and uses nothing of it.

	Runtime    Runtime
	Output     Output
	Artifacts  Artifacts
	Principals Principals
	HTTP       HTTP
	ExecServer ExecServer
	Sandbox    Sandbox
	Ctx        Ctx
	Index      Index
	Starlark   Starlark
	Telemetry  Telemetry
}

// UIDs is the range of host user and group ids that jails are made of.
type UIDs struct{ Base, Size uint32 }

// A Repo is a directory to serve. What it leaves unsaid is said by its profile, then by the rest of the file: see
// Config.For.
type Repo struct {
	ID        string         // what clients call it: 1 to 128 characters, unique; the base name of Path if the file has none
	Path      string         // absolute and clean; whether it is there is not looked at
	Users     []uint32       // user ids that may have jobs in it; nil is everybody who reaches the socket
	Owner     *uint32        // user id that the directory must belong to; nil is any
	Profile   string         // "default", "strict" or a key of Config.Profiles; "" is default
	Workspace *job.Workspace // nil leaves it unsaid
	Protect   job.Protection // of sensitive paths: the least that jobs have which write here
	Defaults  job.Limits     // zero fields are unsaid
	Ceilings  job.Limits     // zero fields are unsaid
	Env       []string       // names of variables that are passed on, instead of Runtime.Env; nil is unsaid
	Runtimes  []string       // those of Runtime.Runtimes that may be used here; nil is all of them
}

// A Profile is a named set of what holds for jobs in a repository.
type Profile struct {
	Syscalls  string         // a profile of seccomp: "default" or "strict"; "" is default
	Workspace *job.Workspace // nil leaves it unsaid
	Defaults  job.Limits     // zero fields are unsaid
	Ceilings  job.Limits     // zero fields are unsaid
}

// Default returns what holds without a file.
func Default() Config {
	return Config{
		UIDs:           UIDs{Base: 0x70000000, Size: 0x0f000000},
		Defaults:       job.Defaults(),
		JailIdle:       5 * time.Minute,
		MaxJobs:        1024,
		MaxJobsPerUser: 256,
		MaxJails:       256,
		WarmSlots:      16,
		MaxWarmSlots:   512,
		Audit:          Audit{Fsync: Group, MaxSize: 64 << 20, KeepFor: 7 * 24 * time.Hour, UserDaily: 2 << 30},
		Layers:         defaultLayers(),
		Runtime: Runtime{
			Enabled: true, Runtimes: job.AllRuntimes(), MaxDuration: time.Minute, MaxConcurrentJobs: 8, QueueLength: 64,
		},
		Output:     Output{Keep: 64 << 20, Redact: true},
		Artifacts:  Artifacts{TTL: 24 * time.Hour, MaxCount: 1000, MaxBytes: 1 << 30, Fsync: Group},
		HTTP:       HTTP{Listen: "127.0.0.1:7070", MaxBody: 10 << 20, SessionIdle: 30 * time.Minute},
		ExecServer: ExecServer{Listen: []Listen{{Kind: ListenStdio}}, OutputBudget: 256 << 20},
		Sandbox: Sandbox{
			Enabled: true, Timeout: 2 * time.Minute, MaxTimeout: time.Hour, OutputLimit: 2 << 20, SessionTimeout: 5 * time.Minute,
			MaxSessions: 16,
		},
		Ctx:       defaultCtx(),
		Index:     defaultIndex(),
		Starlark:  defaultStarlark(),
		Telemetry: defaultTelemetry(),
	}
}

// ServesOwn says whether each user is also served the directories that belong to them: as the file says, else if no
// repository is listed, in it or elsewhere.
func (c Config) ServesOwn(listed int) bool {
	if c.OwnDirectories != nil {
		return *c.OwnDirectories
	}
	return listed == 0
}
