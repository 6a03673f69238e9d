package config

import (
	"time"

	"corral/job"
)

// Runtime governs the tools that run code.
type Runtime struct {
	// Whether code may be run at all.
	Enabled bool `yaml:"enabled" default:"true"`
	// Allowed runtimes: the 16 of `runtime_execute`, and `starlark`.
	Runtimes []string `yaml:"runtimes" form:"runtime" list:"some" without:"all of them"` // in the file's order; never empty
	// Names or absolute paths of allowed programs.
	Executables []string `yaml:"executables" form:"program" list:"some" without:"the programs of each runtime" example:"[python3, bash]"` // nil: see without
	// Variables of the front-end that a job may have.
	Env []string `yaml:"env.allow" form:"variable" without:"none"` // nil is none
	// Variables of one runtime's jobs, by runtime and name. `env` must allow their names, or calls of the runtime are denied.
	RuntimeEnv map[string]map[string]string `yaml:"runtime_env" names:"language variable" form:"value" without:"none"`
	// Maximum duration of one call.
	//
	// A call of `runtime_execute` without a timeout has that of `defaults` or, if that is unset, 1m.
	MaxDuration time.Duration `yaml:"max_duration" min:"100ms" max:"10m" default:"10m"`
	// Maximum number of calls that run at once.
	MaxConcurrentJobs int `yaml:"max_concurrent_jobs" min:"1" max:"65536" default:"8"`
	// How long a further call waits for a running one to end.
	QueueWait time.Duration `yaml:"queue_wait" form:"wait" min:"0" max:"10m" default:"30s"` // 0 does not wait
	// Maximum number of waiting calls.
	QueueLength int `yaml:"queue_length" min:"1" max:"10000" default:"64"`
	// File of rules in Starlark, which can deny requests and lower limits.
	Rules string `yaml:"rules" form:"path" without:"none" example:"/etc/corral/rules.star"`
	// Limits that take precedence over `defaults`.
	Defaults job.Limits `yaml:"defaults" without:"none" example:"{cpus: 2}"` // zero fields are unset
	// Maximum of what calls may reach, of the hosts that the operator's `network` allows: presets, `HOST` and `HOST:PORT` separated
	// by blanks, or `none`. A call that asks for more is denied.
	//
	// A word that the rules of a repository do not allow makes its calls fail.
	Network string `yaml:"network" form:"network" without:"all that the operator allows" example:"npm pypi"` // "": see without
	// Likewise, of the calls of one tool.
	ToolNetwork map[string]string `yaml:"tool_network" names:"tool" form:"network" without:"none"`
}

// Output is about what is stored of the output of jobs.
type Output struct {
	// Bytes to store of each stream, before compression: its head and its tail.
	Keep int64 `yaml:"keep" form:"size" min:"64KiB" max:"512MiB" default:"64MiB"`
	// Whether secrets are removed from output before it is returned or stored; patches are unchanged.
	Redact bool `yaml:"redact" default:"true"`
}

// Artifacts is about output that is stored.
type Artifacts struct {
	// How long output is stored.
	TTL time.Duration `yaml:"ttl" min:"1m" max:"8760h" default:"24h"`
	// Maximum number of one user.
	//
	// Above it, the oldest artifacts of the user or token that has most are evicted first; each keeps an equal share.
	MaxCount int `yaml:"max_count" min:"1" max:"1000000" default:"1000"`
	// Maximum bytes of one user, as stored; evicted as for `max_count`.
	MaxBytes int64 `yaml:"max_bytes" form:"size" min:"1MiB" max:"1024TiB" default:"1GiB"`
	// `group` or `each`, as for `audit`.
	Fsync Fsync `yaml:"fsync" words:"group each" default:"group"`
}

// A Principal is a client that calls over HTTP or a WebSocket, identified by a token.
type Principal struct {
	// 1 to 64 letters, digits, dots, dashes and underscores; unique.
	Name string `yaml:"name" form:"name" without:"required" example:"ci"`
	// SHA-256 of the token in 64 hex digits, in quotes.
	Hash [32]byte `yaml:"token_sha256" form:"hash" without:"required" example:"\"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\""`
	// When the token was made.
	Created Instant `yaml:"created" without:"unknown" example:"\"2026-11-23T10:00:00Z\""` // 0 is unknown
	// When the token stops being accepted.
	Expires Instant `yaml:"expires" without:"never" example:"\"2026-12-23T10:00:00Z\""` // 0 is never
	// SHA-256 of the token before the last `corral token rotate`.
	//
	// It is accepted until `previous_expires`.
	Previous [32]byte `yaml:"previous_sha256" form:"hash" without:"none" example:"\"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\""` // zero is none
	// When that token stops being accepted.
	PreviousExpires Instant `yaml:"previous_expires" without:"none" example:"\"2026-11-24T10:00:00Z\""` // 0 is none
	// Ids of the repositories that it may use.
	Repos []string `yaml:"repos" form:"repo-id" list:"some" without:"all" example:"[shared]"` // nil is all
	// Names of the tools that it may call, without dots. `agent` stands for the [tools for agents](../interfaces/agent.md). With
	// `metrics`, it may read [`/metrics`](../how-to/observe-calls.md#collect-metrics) of `corral serve`, which no principal may without. With
	// `page`, a person may log in to [the page](../how-to/watch-jobs-in-a-browser.md) as it and see its jobs; with `operator`, those of all
	// principals, and the audit log.
	Tools []string `yaml:"tools" form:"tool" list:"some" without:"all" example:"[runtime_execute, runtime_query_output]"` // nil is all
	// Maximum number of its jobs that run or wait at once. A further one is denied by the rule `concurrency`.
	MaxJobs int `yaml:"max_jobs" min:"1" max:"65536" without:"no bound but those of runtime" example:"4"` // 0 is unset
	// Bytes that its jobs may write in a day, and as much at once, stored or not. Beyond it, further jobs are denied by the rule `output`
	// until enough time has passed.
	OutputDaily int64 `yaml:"output_daily" form:"size" min:"1MiB" max:"1024TiB" without:"no bound" example:"10GiB"` // 0 is unset
	// Maximum of what its calls may reach, as `runtime.network`.
	Network string `yaml:"network" form:"network" without:"that of runtime.network" example:"none"` // "": see without
}

// Principals are those of the configuration.
type Principals []Principal

// HTTP is about the server of corral serve.
type HTTP struct {
	// `HOST:PORT`; `0.0.0.0` and `[::]` are all addresses.
	Listen string `yaml:"listen" form:"address" default:"127.0.0.1:7070"`
	// `HOST[:PORT]` that a request may name, in addition to the listening address.
	AllowedHosts []string `yaml:"allowed_hosts" form:"host" without:"none" example:"[corral.example.org]"`
	// `SCHEME://HOST[:PORT]` of web pages that may call.
	AllowedOrigins []string `yaml:"allowed_origins" form:"origin" without:"none" example:"[\"https://tools.example.org\"]"`
	// Maximum size of a request.
	MaxBody int64 `yaml:"max_body" form:"size" min:"1KiB" max:"10MiB" default:"10MiB"`
	// Time after which an unused session ends.
	SessionIdle time.Duration `yaml:"session_idle" min:"1s" max:"168h" default:"30m"`
	// `HOST:PORT` of [the page](../how-to/watch-jobs-in-a-browser.md), on which people watch jobs in a browser; HOST is `localhost`,
	// `127.0.0.1` or `[::1]`, each of which stands for both addresses.
	Page string `yaml:"page" form:"address" without:"not served" example:"localhost:7072"`
}

// ExecServer is about the server of corral exec-server.
type ExecServer struct {
	// Where clients reach it: `stdio`, `unix:///PATH` (for root, the server's user and `peers`), `ws://HOST:PORT` (for `principals`; a
	// host other than loopback must be one of `allowed_hosts`).
	Listen []Listen `yaml:"listen" list:"some" default:"stdio"` // never empty
	// `HOST[:PORT]` on which it may listen and that a request may name, in addition to loopback.
	AllowedHosts []string `yaml:"allowed_hosts" form:"host" without:"none" example:"[corral.example.org]"`
	// Users, by name or number, who may connect to a unix socket, in addition to root and the server's user.
	Peers []uint32 `yaml:"peers" form:"user" list:"some repeats" without:"none" example:"[root]"`
	// Maximum memory for output that is not streamed, for all connections together.
	//
	// One user or token can use half of what others leave.
	OutputBudget int64 `yaml:"output_budget" form:"size" min:"16MiB" max:"1TiB" default:"256MiB"`
	// The profile for requests for `dangerFullAccess`.
	FullAccess string `yaml:"full_access" form:"profile" without:"such requests are refused" example:"strict"`
}

// Sandbox is about sandbox_exec and the sessions of clients.
type Sandbox struct {
	// Whether [`sandbox_exec`](../interfaces/sandbox_exec.md) is served, in repositories where the runtime `shell` may be used.
	Enabled bool `yaml:"enabled" default:"true"`
	// Id of the repository that commands see if the call names none.
	Repo string `yaml:"repo" form:"repo-id" without:"the first that a client may use" example:"shared"`
	// What its commands may do to the repository: change a copy (`overlay`), the real files (`direct`), or nothing (`readonly`). The
	// `readonly` or `overlay` of a repository is never relaxed.
	Workspace *job.Workspace `yaml:"workspace" without:"overlay, unless the repository or its profile has workspace: direct" example:"overlay"` // see SandboxWorkspace
	// Timeout of a command that requests none.
	Timeout time.Duration `yaml:"timeout" min:"1s" max:"24h" default:"2m"`
	// Maximum timeout that can be requested, instead of `runtime.max_duration`; ceilings apply as well.
	MaxTimeout time.Duration `yaml:"max_timeout" min:"1s" max:"24h" default:"1h"`
	// Maximum of both streams together; if a command writes more, none of its output is shown.
	OutputLimit int64 `yaml:"output_limit" form:"size" min:"1KiB" max:"4MiB" default:"2MiB"`
	// Whether output from before a timeout is shown.
	PartialOutput bool `yaml:"partial_output" default:"false"`
	// Time without a command after which a session over HTTP ends; over standard input and output a session lasts as long as the
	// connection.
	SessionTimeout time.Duration `yaml:"session_timeout" min:"1s" max:"168h" default:"5m"`
	// Name of the root file system, see `corral rootfs`.
	Image string `yaml:"image" form:"image" without:"the host's system directories" example:"debian-12"`
	// Bytes that a session may add to the root file system.
	Disk int64 `yaml:"disk" form:"size" min:"16MiB" max:"1024TiB" without:"the supervisor's default" example:"4GiB"` // 0 is unset
	// Maximum number of sessions of one user or token, including those of `overlay` workspaces; a further one ends the one that was
	// unused for the longest time.
	//
	// A server has 128 in all; beyond that, the user or token with most sessions gives way.
	MaxSessions int `yaml:"max_sessions" min:"1" max:"128" default:"128"`
}

// Ctx is about the tools ctx_execute, ctx_search and their siblings.
type Ctx struct {
	// Whether `ctx_execute`, `ctx_search` and their siblings are served.
	Enabled bool `yaml:"enabled" default:"true"`
	// Id of the repository for calls that name none.
	Repo string `yaml:"repo" form:"repo-id" without:"the first that a client may use" example:"shared"`
	// Maximum duration of a job in the background, instead of `runtime.max_duration`.
	BackgroundLife time.Duration `yaml:"background_life" min:"1s" max:"168h" default:"1h"`
	// Maximum number of jobs in the background of one user or token.
	//
	// All together may take half of `runtime.max_concurrent_jobs` (rounded down, at least 1).
	MaxBackground int `yaml:"max_background" min:"1" max:"1024" default:"4"`
}

// Index is about the full-text index of output.
type Index struct {
	// Whether output is indexed, for `ctx_search` and match `fuzzy` of [`runtime_query_output`](../interfaces/runtime_query_output.md).
	Enabled bool `yaml:"enabled" default:"true"`
	// How long indexed text stays in the index.
	TTL time.Duration `yaml:"ttl" min:"1s" max:"8784h" default:"336h"`
	// Maximum size of the text in one knowledge base; the oldest text is evicted first.
	MaxBytes int64 `yaml:"max_bytes" form:"size" min:"1MiB" max:"1TiB" default:"1GiB"`
}

// Starlark is about starlark_run.
type Starlark struct {
	// Whether [`starlark_run`](../interfaces/code.sandbox.starlark.run.md) is served, in repositories where the runtime `starlark`
	// may be used.
	Enabled bool `yaml:"enabled" default:"true"`
	// Id of the repository to which its calls are attributed; the calls see nothing of it.
	Repo string `yaml:"repo" form:"repo-id" without:"the first that a client may use" example:"shared"`
	// Memory of one program, including the interpreter.
	Memory int64 `yaml:"memory" form:"size" min:"48MiB" max:"16GiB" default:"256MiB"`
	// Maximum duration that can be requested, instead of `runtime.max_duration`.
	//
	// Ceilings apply as well, to the requested time plus 150 ms.
	MaxWall time.Duration `yaml:"max_wall" min:"1ms" max:"1m" default:"1m"`
}

// Telemetry is about the spans of calls.
type Telemetry struct {
	// Where [spans of calls](../how-to/observe-calls.md) go: `off`, `stderr`, `file` (as JSON lines) or `otlp` (a collector, by OTLP over
	// HTTP).
	Traces string `yaml:"traces" form:"traces" default:"off"` // a Traces constant
	// The file of `traces: file`; at 64 MiB it is renamed to `FILE.1`, which replaces an older one.
	File string `yaml:"file" form:"path" without:"none" example:"/var/log/corral/spans.json"` // never "" with TracesFile
	// URL of the collector, to which `/v1/traces` is added.
	Endpoint string `yaml:"endpoint" form:"collector" without:"OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318" example:"http://localhost:4318"`
	// File of headers for the collector, one `NAME: VALUE` per line, which not everybody may read.
	HeadersFile string `yaml:"headers_file" form:"path" without:"OTEL_EXPORTER_OTLP_HEADERS, else none" example:"/etc/corral/otlp-headers"`
	// Name of the service in spans.
	Service string `yaml:"service" form:"service" default:"corral"`
}

// Where spans go.
const (
	TracesOff    = "off"
	TracesStderr = "stderr"
	TracesFile   = "file"
	TracesOTLP   = "otlp"
)
