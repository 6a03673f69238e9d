package config

import (
	"time"

	"corral/job"
	"corral/policy/network"
)

// The structs of this package are the tables of the configuration. Each field with a yaml tag is the row of one key: its comment
// and its tags (see strict.Row) are all that there is to say about it. The parser, `corral config show`, schema.json,
// example.yaml and the tables of docs/reference/configuration.md, with the first paragraph of each comment, are made from them. A comment
// at the end of a line is for readers of the code alone.

// Config is what the files say, with defaults for the rest.
type Config struct {
	// Range of host user and group ids for jails, which nothing else may use. All supervisors of the machine must have the same
	// range. The default lies above the ranges that shadow and systemd allocate from.
	UIDs UIDs `yaml:"uids" scope:"supervisor"`
	// Directories to serve. Jobs write to a directory as its owner would.
	//
	// Clients call it by its id.
	Repos []Repo `yaml:"repos" without:"none"`
	// Host directories that every jail shows read-only, at the same path, without file systems mounted below them.
	//
	// A path has no symbolic links. A directory that is replaced is refused until the supervisor is restarted.
	Toolchains []string `yaml:"toolchains" form:"path" list:"repeats" scope:"supervisor" without:"none" example:"[/usr/local/go]"`
	// Files and directories below /etc that jobs see, too, for programs that need what the [rule for
	// /etc](../explanation/isolation.md#what-a-job-can-see) leaves out.
	//
	// A component may be a pattern, such as `*.conf`. Files that are not root's, that not everybody may read, or that hold a
	// private key are still left out, and logged.
	EtcFiles []string `yaml:"etc_files" form:"etc-path" list:"repeats" scope:"supervisor" without:"none" example:"[/etc/acme/client.conf]"`
	// Whether to serve each user also the directories that the user owns.
	OwnDirectories *bool `yaml:"own_directories" scope:"supervisor" without:"true if no repository is listed in the configuration or with --repo, else false" example:"true"` // nil: see ServesOwn
	// Limits of a job that requests none, see below.
	Defaults job.Limits `yaml:"defaults" without:"see [limits](limits.md)"` // no field is zero
	// The maximum of what a job may request, with the keys of `defaults`.
	//
	// A built-in default above a ceiling is lowered to it.
	Ceilings job.Limits `yaml:"ceilings" without:"no bound" example:"{memory: 16GiB, pids: 4096}"` // a zero field bounds nothing
	// Named sets of settings for repositories. `default` and `strict` always exist and have only system calls.
	Profiles map[string]Profile `yaml:"profiles" names:"new-profile" without:"none but default and strict"`
	// Hosts that the jobs of all repositories may reach, except those of repositories with a `network` of their own, and of
	// embedded supervisors.
	Network network.Rules `yaml:"network" scope:"supervisor"`
	// Credentials that requests of jobs carry to hosts and that jobs do not see, for `secret` of a rule.
	Secrets map[string]Secret `yaml:"secrets" names:"secret" scope:"supervisor" without:"none" example:"{acme-api: {file: /etc/corral/secrets/acme, env: [ACME_TOKEN]}}"`
	// What is kept of [registries](#registries).
	NetworkCache NetworkCache `yaml:"network_cache" scope:"supervisor"`
	// How many connections jobs may have to hosts at once.
	NetworkConnections NetworkConnections `yaml:"network_connections" scope:"supervisor"`
	// Time after which an unused jail is dropped.
	//
	// The next job in its repository takes some milliseconds longer.
	JailIdle time.Duration `yaml:"jail_idle" min:"1s" max:"720h" default:"5m" scope:"supervisor"`
	// Maximum number of jobs at once, of all users.
	MaxJobs int `yaml:"max_jobs" min:"1" max:"65536" default:"1024" scope:"supervisor"`
	// Maximum number of jobs at once of one user who is not root; also of connections.
	MaxJobsPerUser int `yaml:"max_jobs_per_user" min:"1" max:"65536" default:"256" scope:"supervisor"`
	// Maximum [memory of all jobs of one user](../explanation/isolation.md#memory-of-a-user) who is not root.
	UserMemory int64 `yaml:"user_memory" form:"size" min:"64MiB" max:"1024TiB" unlimited:"-1" scope:"supervisor" without:"three quarters of the machine's memory" example:"48GiB"` // 0 is unset
	// Maximum number of jails at once.
	MaxJails int `yaml:"max_jails" min:"1" max:"65536" default:"256" scope:"supervisor"`
	// Maximum number of waiting slots in one jail.
	//
	// The actual number follows the demand.
	WarmSlots int `yaml:"warm_slots" form:"natural" min:"0" max:"256" default:"16" scope:"supervisor"`
	// The same for all jails together.
	//
	// Beyond it, slots are made as jobs come.
	MaxWarmSlots int `yaml:"max_warm_slots" form:"natural" min:"0" max:"65536" default:"512" scope:"supervisor"`
	// The supervisor's audit log.
	Audit Audit `yaml:"audit" scope:"supervisor"`
	// Sessions and the layers to which their jobs write. Each layer is a file system of its own, in the state directory.
	Layers Layers `yaml:"layers" scope:"supervisor"`

	// The tools that run code.
	Runtime Runtime `yaml:"runtime"`
	// What is stored of the output of jobs.
	Output Output `yaml:"output"`
	// Output that is stored, for each user.
	Artifacts Artifacts `yaml:"artifacts"`
	// Clients that may call `corral serve` and the WebSocket of `corral exec-server`. `corral config token NAME` makes a token and
	// its entry.
	Principals Principals `yaml:"principals" without:"none"`
	// The server of `corral serve`. The Host of a request must be the listening address or one of `allowed_hosts`. The Origin of
	// a request from a web page must be one of `allowed_origins`.
	HTTP HTTP `yaml:"http"`
	// The server of `corral exec-server`.
	ExecServer ExecServer `yaml:"exec_server"`
	// The tool `sandbox_exec` and the sessions of clients.
	Sandbox Sandbox `yaml:"sandbox"`
	// The tools `ctx_execute`, `ctx_search` and their siblings.
	Ctx Ctx `yaml:"ctx"`
	// The full-text index of output, which `ctx_search` and the match `fuzzy` of `runtime_query_output` search. It has a knowledge
	// base for each user or token and repository.
	Index Index `yaml:"index"`
	// The tool `starlark_run`.
	Starlark Starlark `yaml:"starlark"`
	// Spans of calls (OpenTelemetry).
	Telemetry Telemetry `yaml:"telemetry"`
}

// UIDs is the range of host user and group ids of jails.
type UIDs struct {
	// The first id.
	Base uint32 `yaml:"base" form:"id" min:"0x10000" max:"0xfffffffe" default:"0x70000000"`
	// The number of ids.
	Size uint32 `yaml:"size" form:"id" min:"0x800" max:"0xfffffffe" default:"0x0f000000"`
}

// A Repo is a directory to serve. Its profile and then the rest of the configuration say what it leaves unset: see Config.For.
type Repo struct {
	// The directory: absolute, without `..`.
	Path string `yaml:"path" form:"path" without:"required" example:"/srv/projects/app"` // it need not exist
	// Name for clients: 1 to 128 characters, unique.
	ID string `yaml:"id" form:"repo-id" without:"the path's base name" example:"app"`
	// User names or numbers.
	Users []uint32 `yaml:"users" form:"user" list:"some repeats" without:"everybody who can connect to the socket" example:"[root, 1001]"` // nil is everybody
	// Name or number of the user to whom the directory must belong, or the entry is not served.
	//
	// `corral repo add` writes it.
	Owner *uint32 `yaml:"owner" form:"user" without:"any" example:"1001"` // nil is any
	// `default`, `strict` or one of `profiles`.
	Profile string `yaml:"profile" form:"profile" implied:"default" example:"untrusted"`
	// How jobs may write. `direct`: to the repository; `readonly`: not at all (EROFS); `overlay`: to a layer of the client's session,
	// see `corral changes`.
	Workspace *job.Workspace `yaml:"workspace" without:"the profile's, else direct" example:"direct"` // nil is unset
	// Paths that are read-only for jobs that may write to the repository. `hooks`:
	// [sensitive paths](../explanation/isolation.md#what-a-job-leaves) that exist when the job starts; `all`: also git
	// directories as a whole, so that nothing can be committed.
	Protect job.Protection `yaml:"protect" implied:"none"`
	// Limits of a job here that requests none.
	Defaults job.Limits `yaml:"defaults" without:"the profile's, else the file's" example:"{memory: 1GiB}"` // zero fields are unset
	// The maximum of what a job here may request.
	//
	// Of several ceilings, the lowest applies.
	Ceilings job.Limits `yaml:"ceilings" without:"the profile's and the file's" example:"{timeout: 5m}"` // zero fields are unset
	// Hosts that jobs here may reach, in place of the file's `network`. Without `allow` in it, they reach none.
	Network *network.Rules `yaml:"network" scope:"supervisor" without:"the file's" example:"{allow: [{preset: npm}]}"` // nil is unset
	// Variables of the front-end that a job may have.
	Env []string `yaml:"env.allow" form:"variable" without:"runtime.env" example:"[LANG]"` // nil is unset
	// Allowed runtimes, from those of `runtime.runtimes`.
	Runtimes []string `yaml:"runtimes" form:"runtime" list:"some" without:"all of them" example:"[python, shell]"` // nil is all
}

// A Secret is a credential of requests. One of file, credential and command says where it is.
type Secret struct {
	// File that has the secret alone. It and the directories above it must be root's, and nobody else may read it.
	File string `yaml:"file" form:"path" without:"required unless there is another source" example:"/etc/corral/secrets/acme"`
	// Name of a systemd credential of the supervisor's service (`LoadCredential=`) that has it.
	Credential string `yaml:"credential" form:"name" without:"none" example:"acme"`
	// Program of root's, with arguments, that prints it within ten seconds when the configuration is read. It runs as root, with no
	// environment but PATH.
	Command []string `yaml:"command" form:"value" list:"some repeats" without:"none" example:"[/usr/bin/pass, show, acme]"`
	// Header of requests in which the placeholder stands for it.
	Header string `yaml:"header" form:"header" implied:"Authorization"`
	// Value of that header, with `{}` in the secret's place. Of `Basic` credentials, which git sends, the password is replaced and the
	// user's name stays.
	Format string `yaml:"format" form:"secret-format" implied:"Bearer {}"`
	// How a request is treated that has the placeholder in its body: an agent sends what its commands print. `deny`: the request is
	// denied; `allow`: it is passed on unchanged, because the placeholder is no secret and a body never gets the secret.
	Body string `yaml:"body" words:"deny allow" implied:"deny"`
	// Variables in which jobs find the placeholder, unless the request sets them.
	Env []string `yaml:"env" form:"variable" list:"some" without:"only CORRAL_SECRET" example:"[NPM_TOKEN]"`
}

// NetworkCache is about what is kept of registries of packages.
type NetworkCache struct {
	// Bytes of packages that are kept for the jobs of one user. What was used least recently is removed.
	Size int64 `yaml:"size" form:"size" min:"16MiB" max:"1TiB" default:"10GiB"`
}

// NetworkConnections bounds connections to hosts.
type NetworkConnections struct {
	// Maximum number of connections to hosts at once, of one job or of all jobs of a session that share a network.
	Job int `yaml:"job" min:"1" max:"16384" default:"256"`
	// The same for all jobs of one user.
	//
	// Where the supervisor may open fewer files than two for each, that is the bound.
	User int `yaml:"user" min:"64" max:"16384" default:"1792"`
}

// A Profile is a named set of settings for repositories.
type Profile struct {
	// Which [system calls](seccomp.md) jobs may make: `default` or `strict`.
	Syscalls string `yaml:"syscalls" words:"default strict" implied:"default"`
	// As in an entry of `repos`.
	Workspace *job.Workspace `yaml:"workspace" without:"direct" example:"readonly"` // nil is unset
	// Limits of a job that requests none.
	Defaults job.Limits `yaml:"defaults" without:"the file's" example:"{memory: 512MiB}"` // zero fields are unset
	// The maximum of what a job may request.
	Ceilings job.Limits `yaml:"ceilings" without:"the file's" example:"{timeout: 30s}"` // zero fields are unset
}

// A Fsync says when a record reaches the disk.
type Fsync string

const (
	// Group syncs the records of 20 ms together.
	Group Fsync = "group"
	// Each syncs each record; its writer waits.
	Each Fsync = "each"
)

// Audit is about the supervisor's audit log.
type Audit struct {
	// When a record is on the disk. `group`: within 20 ms; `each`: before its job starts.
	Fsync Fsync `yaml:"fsync" words:"group each" default:"group"`
	// Size of a file after which the next one is begun.
	MaxSize int64 `yaml:"max_size" form:"size" min:"1MiB" max:"1TiB" default:"64MiB"`
	// Number of files besides the current one; older ones are removed.
	Keep int `yaml:"keep" min:"1" max:"1000000" unlimited:"0" default:"16"` // 0 removes none
	// Minimum time for which each file is kept, from its last record on.
	KeepFor time.Duration `yaml:"keep_for" min:"1m" max:"87600h" default:"168h"`
	// Bytes that one user's records may take in a day, an eighth of it at once.
	UserDaily int64 `yaml:"user_daily" form:"size" min:"16MiB" max:"1024TiB" default:"2GiB"`
	// What records have of the program that a job runs. `hash`: hashes of its arguments and code; `argv`: its arguments, too;
	// `code`: its code, too.
	//
	// Secrets are hidden as in output.
	Record job.Recording `yaml:"record" default:"hash"`
}

// Layers is about sessions and the layers to which they write.
type Layers struct {
	// Bytes of the layer of a session that requests no other size.
	Disk int64 `yaml:"disk" form:"size" min:"16MiB" max:"1TiB" default:"4GiB"`
	// Files in the layer of a session that requests no other number.
	Inodes int64 `yaml:"inodes" form:"count" min:"64" max:"2147483648" default:"500000"`
	// Bytes that the jobs of each open session can write for certain.
	//
	// Beyond that, they share what is free on the file system of the state directory. With less, more sessions can be open.
	Reserve int64 `yaml:"reserve" form:"size" min:"1MiB" max:"1TiB" default:"32MiB"`
	// Maximum of `disk` that a session may request.
	MaxDisk int64 `yaml:"max_disk" form:"size" min:"16MiB" max:"1TiB" default:"64GiB"`
	// Maximum of `inodes` that a session may request.
	MaxInodes int64 `yaml:"max_inodes" form:"count" min:"64" max:"2147483648" default:"10000000"`
	// Time without a job after which a session ends.
	Idle time.Duration `yaml:"idle" min:"1s" max:"720h" default:"30m"`
	// Maximum of `idle` that a session may request.
	MaxIdle time.Duration `yaml:"max_idle" min:"1s" max:"720h" default:"24h"`
	// How long changes are kept that nobody applied or discarded.
	Keep time.Duration `yaml:"keep" min:"1m" max:"8784h" default:"168h"`
}
