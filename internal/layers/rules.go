package layers

import (
	"fmt"
	"slices"
	"strings"
)

// An owner names the packages that may import a tree of libraries. If several rows match an import, the longest tree
// applies.
type owner struct {
	tree   string
	pkgs   []string
	reason string
}

var owners = []owner{
	{
		"github.com/opencontainers/runc",
		[]string{"isolate/cell"},
		"jails are built in one place, and libcontainer's types do not leave it",
	},
	{
		"github.com/opencontainers/runc/libcontainer/nsenter",
		[]string{"isolate/cell", "cmd/corrald"},
		"its C constructor runs at the start of any program linked with it, and only corrald is started as a container's init",
	},
	{
		"github.com/coreos/go-systemd",
		[]string{"cmd/corrald"},
		"a service manager passes a socket to the one program that is a service, which reports to it",
	},
	{
		"github.com/opencontainers/cgroups",
		[]string{"isolate/cell"},
		"libcontainer takes its configuration in these types; the limits of a job are package cgroup's",
	},
	{
		"software.sslmate.com/src/go-pkcs12",
		[]string{"isolate/trust"},
		"a trust store for Java is written in one place, from certificates that the host trusts",
	},
	{
		"github.com/containerd/cgroups",
		[]string{"cgroup"},
		"one package hides the differences between v1, hybrid and v2",
	},
	{
		"github.com/seccomp/libseccomp-golang",
		[]string{"seccomp"},
		"filters are compiled in one place, and the compiled program is compared with the table there",
	},
	{
		"github.com/klauspost/compress",
		[]string{"store/artifact/spool"},
		"its gzip is about twice as fast as the standard library's, and every byte of every job passes through it; any gzip reads the result",
	},
	{
		"github.com/klauspost/compress/zstd",
		[]string{"workspace/image"},
		"layers of images are compressed with zstd, which the standard library lacks",
	},
	{
		"github.com/google/go-containerregistry",
		[]string{"workspace/image"},
		"manifests of container images are read in one place, which takes nothing but files from them",
	},
	{
		"github.com/go-json-experiment/json",
		[]string{"internal/strictjson"},
		"texts of clients are checked in one place, with bounds that the library does not have",
	},
	{
		"github.com/mark3labs/mcp-go",
		[]string{"mcp/server"},
		"one package speaks the protocol, and tools do not depend on its types",
	},
	{
		"github.com/coder/websocket",
		[]string{"rpc/transport"},
		"frames of unauthenticated clients are read, and bounded, in one place",
	},
	{
		"github.com/aymanbagabas/go-udiff",
		[]string{"workspace/changes"},
		"differences between two texts are found in one place, which writes the patch itself",
	},
	{
		"go.opentelemetry.io",
		[]string{"front/telemetry"},
		"spans are made in one place; internal/calls defines what spans may say of a call",
	},
	{
		"github.com/prometheus",
		[]string{"front/metrics"},
		"metrics are made in one place, which bounds their labels",
	},
	{
		"golang.org/x/net",
		[]string{"front/cli/ci"},
		"one package bounds connections with it; others count theirs by principal",
	},
	{
		"golang.org/x/net/dns",
		[]string{"egress/names", "internal/test/nettest"},
		"one package reads the DNS queries of jobs; tests send some",
	},
	{
		"golang.org/x/mod",
		[]string{"egress/registry"},
		"versions of packages are compared in one place",
	},
	{
		"golang.org/x/crypto",
		[]string{"egress/registry"},
		"one package knows the digests of registries; the standard library lacks BLAKE2b",
	},
	{
		"github.com/ulikunitz/xz",
		[]string{"egress/registry"},
		"what an archive compressed is read in one place, with bounds that the library does not have",
	},
	{
		"charm.land",
		[]string{"front/cli/top"},
		"one command draws on the terminal, and no other depends on how",
	},
	{
		"google.golang.org/protobuf",
		[]string{"front/telemetry"},
		"only the protocol of a collector of spans needs it",
	},
	{
		"go.starlark.net",
		[]string{"policy/starlark"},
		"one package runs the interpreter, and bounds it",
	},
	{
		"modernc.org/sqlite",
		[]string{"store/index/db"},
		"one package stores searchable text, and no other depends on the database",
	},
	{
		"github.com/hinshun/vt10x",
		[]string{"internal/test/screentest"},
		"only tests look at a screen; programs pass a job's terminal output on uninterpreted",
	},
	{
		"github.com/rogpeppe/go-internal",
		[]string{"internal/test/sandboxtest/scripttest"},
		"scripts of command lines are run in one place; without it, we would parse txtar and command lines ourselves",
	},
	{
		"go.yaml.in/yaml",
		[]string{"internal/config/strict"},
		"one strict parser reads every configuration file, with positions for errors",
	},
}

// shared are the libraries that any package may import, with the reason.
var shared = map[string]string{
	"golang.org/x/sys": "it is the interface of system calls, which the standard library has frozen",
}

// A bound says what the packages that match from may reach: with only, nothing else; with never, everything else. It has
// one of the two. Entries are names of packages or import paths of libraries; "std" stands for the standard library, and
// an entry that ends in /... for a tree, in from, only and never alike.
type bound struct {
	from   string
	but    []string // packages that match from and are exempt
	only   []string
	never  []string
	reason string
	shown  bool // in ARCHITECTURE.md, as a rule that a reader should know first
}

const sys = "golang.org/x/sys/..."

// gitSettings reads a user's git configuration in every client of the supervisor.
const gitSettings = "github.com/go-git/gcfg/..."

var supervisor = []string{"isolate", "cgroup", "seccomp"}

var bounds = []bound{
	{
		from: "job", only: []string{"std"},
		reason: "it defines the terms that all others share, and depends neither on a library nor on the kernel",
		shown:  true,
	},
	{
		from: "internal/fault", only: []string{"std"}, reason: "what decides whether the supervisor ends depends on nothing of it",
	},
	{
		from: "internal/ratelimit", only: []string{"std"},
		reason: "whatever bounds how often something happens imports it",
	},
	{
		from: "store/artifact",
		only: []string{
			"std", sys, "github.com/klauspost/compress/...", "internal/flock", "internal/lazyregexp", "internal/peer", "internal/sockdiag",
			"internal/redact", "internal/text", "job", "store/artifact/...", "store/at",
		},
		reason: "it stores output for any front-end: it starts no process and connects to nobody",
	},
	{
		from: "store/artifact/live", only: []string{"std", sys, "internal/peer", "internal/sockdiag"},
		reason: "it shows output to the user who owns it, whatever wrote it",
	},
	{
		from: "store/artifact/disk",
		only: []string{
			"std", sys, "github.com/klauspost/compress/...", "internal/flock", "internal/lazyregexp", "store/artifact/manifest",
			"store/artifact/spool", "store/at",
		},
		reason: "it keeps artifacts, whatever is in them and whoever may read them",
	},
	{
		from: "store/artifact/spool", only: []string{"std", "github.com/klauspost/compress/..."},
		reason: "it writes to what it is given, and knows neither stores nor jobs",
	},
	{
		from:   "store/artifact/manifest",
		only:   []string{"std", "github.com/klauspost/compress/...", "internal/lazyregexp", "store/artifact/spool"},
		reason: "it is the form of an artifact, whoever reads or writes the files",
	},
	{
		from: "store/artifact/lines", only: []string{"std"},
		reason: "it is a function of a stream of bytes that anybody wrote, so it must be easy to audit",
	},
	{
		from:   "store/index",
		only:   []string{"std", sys, "modernc.org/sqlite/...", "internal/flock", "store/at", "store/index/...", "internal/text"},
		reason: "it searches output for any front-end: it starts no process and opens no connection",
	},
	{
		from: "store/at", only: []string{"std", sys},
		reason: "it opens files that other users may have put there, so it must be easy to audit",
	},
	{
		from: "store/volume", only: []string{"std", sys},
		reason: "it mounts file systems as root, for the supervisor and for `corral cache`, so it must be easy to audit",
	},
	{
		from: "store/index/db", only: []string{"std", sys, "modernc.org/sqlite/...", "internal/flock", "store/at", "store/index/chunk"},
		reason: "it opens files that other users may have put there, so it must be easy to audit",
	},
	{
		from: "store/index/search", never: []string{"store/index/batch", "store/index/reclaim"},
		reason: "a query changes nothing",
	},
	{
		from: "store/index/chunk", only: []string{"std"},
		reason: "it reads untrusted input of any size, so it must be easy to audit",
	},
	{
		from: "store/index/word", only: []string{"std"},
		reason: "texts must be split into words in the same way when they are stored and when they are shown",
	},
	{
		from: "workspace/session", only: []string{"std", "job"},
		reason: "it only keeps account of sessions; the supervisor makes them",
	},
	{
		from: "workspace/changes", only: []string{"std", "github.com/aymanbagabas/go-udiff/...", "workspace/changes/stream", "job"},
		reason: "it reads the report that a job makes of a session's layer, and never the layer",
	},
	{
		from: "workspace/edit", only: []string{"std", sys, "internal/flock", "internal/text"},
		reason: "it runs inside a jail, on files of jobs, in a program that must be small and easy to audit",
	},
	{
		from: "workspace/changes/stream", only: []string{"std", "job"},
		reason: "outside a jail it reads what was written inside, so it must be easy to audit",
	},
	{
		from: "policy/runtimes", only: []string{"std", sys, "internal/lazyregexp", "job"},
		reason: "it is a table and a search in directories: it starts no process and opens no connection",
	},
	{
		from: "store/audit",
		only: []string{
			"std", sys, "internal/fault", "internal/flock", "internal/ratelimit", "internal/text", "job", "store/audit/files", "store/audit/record",
		},
		reason: "root writes this log and others verify it, so it must be easy to audit",
	},
	{
		from: "store/audit/record", only: []string{"std", "internal/text", "job"},
		reason: "it is the form of the audit log, which writers and readers share: it writes nothing",
	},
	{
		from: "store/audit/files", only: []string{"std", sys, "internal/fault", "internal/flock", "internal/text", "job", "store/audit/record"},
		reason: "it opens, locks and reads files of root's, so it must be easy to audit",
	},
	{
		from:   "store/audit/reader",
		only:   []string{"std", sys, "internal/fault", "internal/flock", "internal/text", "job", "store/audit/files", "store/audit/record"},
		reason: "it only reads, and cannot reach what writes records",
	},
	{
		from:   "store/audit/search",
		only:   []string{"std", sys, "egress/control", "internal/text", "internal/users", "job", "store/audit/record"},
		reason: "it selects and shows records, wherever they were read",
	},
	{
		from: "cgroup", never: []string{"job", "isolate/..."},
		reason: "it enforces limits on any process: a mechanism that is testable alone",
		shown:  true,
	},
	{
		from: "cgroup/group", only: []string{"std", sys},
		reason: "it handles directories and processes, on any layout of hierarchies",
	},
	{
		from: "seccomp", never: []string{"job", "isolate/..."},
		reason: "it compiles a table of system calls: a mechanism that is testable alone",
		shown:  true,
	},
	{
		from: "rootfs", never: []string{"job", "isolate/..."},
		reason: "it describes a tree of files: a mechanism that is testable alone",
		shown:  true,
	},
	{
		from: "isolate/trust", only: []string{"std", sys, "internal/fault", "rootfs", "software.sslmate.com/src/go-pkcs12"},
		reason: "it is a function of a tree of files and a certificate: who gets the files is decided elsewhere",
	},
	{
		from: "isolate/operate", only: []string{"std", "internal/fault"},
		reason: "it decides when an operator's request is carried out, and knows nothing of jobs",
	},
	{
		from: "isolate/serve", never: []string{"isolate", "store/audit"},
		reason: "it reads what clients send: which of it runs is decided elsewhere",
	},
	{
		from: "isolate/sessions", never: []string{"isolate", "isolate/serve", "store/audit"},
		reason: "sessions are opened and ended for whoever connected: what is recorded about their jobs is decided elsewhere",
	},
	{
		from: "isolate/cell", never: []string{"isolate", "isolate/sessions", "isolate/serve", "store/audit"},
		reason: "jails are made for whoever was admitted: nothing is decided about clients there",
	},
	{
		from: "isolate/admit", never: []string{"isolate", "isolate/cell", "isolate/sessions", "isolate/serve"},
		reason: "whether a client may have jobs in a directory depends on no jail",
	},
	{
		from: "isolate/door", never: []string{"isolate", "isolate/cell", "isolate/admit", "isolate/sessions", "isolate/serve", "store/audit"},
		reason: "it runs the program that answers for hosts, and decides nothing about clients or jails",
	},
	{
		from: "isolate/probe", never: []string{"isolate", "isolate/admit", "isolate/cell", "isolate/sessions", "isolate/serve"},
		reason: "it opens what clients name before anything is decided about it",
	},
	{
		from: "isolate/meter", never: []string{"isolate", "isolate/admit", "isolate/cell", "isolate/sessions", "isolate/serve"},
		reason: "it knows processes and limits, and neither jails nor repositories",
	},
	{
		from: "internal/peer", only: []string{"std", sys, "internal/sockdiag"},
		reason: "who may connect depends on its answer, so it must be easy to audit",
	},
	{
		from: "internal/users", only: []string{"std"},
		reason: "it is linked with the program that is started for each job",
	},
	{
		from: "isolate/host", never: []string{"isolate", "isolate/probe", "isolate/admit", "isolate/cell", "isolate/sessions", "isolate/serve"},
		reason: "what the supervisor has of the machine depends on no jail, repository or request",
	},
	{
		from: "cmd/corral",
		only: []string{
			"std", sys, gitSettings,
			"egress/control", "isolate/client/...", "isolate/wire", "job", "internal/directory", "internal/nearest", "internal/redact",
			"internal/terminal", "internal/text/...", "internal/usage", "internal/users", "internal/version", "policy/ask", "policy/network",
		},
		reason: "it is started for each job, and a Go program starts the later the more it is linked with",
		shown:  true,
	},
	{
		from:   "cmd/corral-init",
		only:   []string{"std", sys, "isolate/inside", "isolate/scan", "rootfs", "internal/version"},
		reason: "it runs inside the jail, as its first process: small, static, easy to audit",
		shown:  true,
	},
	{
		from: "cmd/corral-layer",
		only: []string{
			"std", sys, "workspace/changes/layer", "workspace/changes/stream", "workspace/edit", "workspace/image/unpack",
			"isolate/scan", "internal/flock", "internal/text", "job", "internal/version",
		},
		reason: "it runs inside a session's jail, on files of jobs and archives of others: small, static, easy to audit",
	},
	{
		from: "cmd/corral-top", never: append([]string{"mcp/...", "rpc/...", "net/http"}, supervisor...),
		reason: "it draws what the supervisor lists, and serves nobody",
	},
	{
		from: "cmd/corral-egress",
		only: []string{
			"std", sys, "egress/...", "golang.org/x/net/dns/dnsmessage", "golang.org/x/crypto/blake2b", "golang.org/x/mod/...",
			"github.com/ulikunitz/xz/...",
			"internal/lazyregexp", "internal/log", "internal/ratelimit", "internal/text", "policy/network",
		},
		reason: "it reads what jobs and servers send, on the network of the host, so it must be easy to audit",
		shown:  true,
	},
	{
		from: "cmd/corral-starlark", only: []string{"std", "go.starlark.net/...", "job", "policy/starlark"},
		reason: "it runs inside a jail, on an untrusted script: small, static, quick to start",
	},
	{
		from: "front/...", but: []string{"front/doctor"}, never: append([]string{"isolate/inside", "isolate/scan"}, supervisor...),
		reason: "a front-end has no privileges: it requests from corrald what needs them",
	},
	{
		from: "front/privilege",
		only: []string{
			"std", sys, gitSettings,
			"egress/control", "internal/directory", "internal/redact", "internal/text", "isolate/client", "isolate/client/embed",
			"isolate/wire", "job",
		},
		reason: "it runs as root, so it must be easy to audit",
	},
	{
		from: "front/cli", never: []string{"internal/config", "mcp/...", "rpc/...", "store/...", "workspace/...", "net/http"},
		reason: "it serves all commands and knows none of them",
	},
	{
		from: "front/state", never: []string{"internal/config", "mcp/...", "rpc/...", "store/...", "workspace/...", "net/http"},
		reason: "it opens directories as root; the stores in them are opened as another user",
	},
	{
		from: "front/supervisor", never: []string{"mcp/...", "rpc/...", "store/...", "net/http"},
		reason: "it connects to the supervisor, whatever the connection is used for",
	},
	{
		from: "front/login", only: []string{"std", sys, "internal/gate", "internal/peer", "internal/sockdiag"},
		reason: "who may log in depends on tokens, clocks and the user who connects alone, and what is served is a handler",
	},
	{
		from:   "front/page",
		never:  []string{"front/supervisor", "front/cli/...", "internal/config", "mcp/...", "rpc/...", "workspace/..."},
		reason: "it shows what it is given: it reaches the supervisor, stores and tokens through functions alone",
	},
	{
		from: "front/preview",
		only: []string{
			"std", sys, "front/login", "internal/gate", "internal/peer", "internal/sockdiag", "internal/text", "job",
		},
		reason: "it passes on what browsers and servers in sessions send, and reaches nothing but ports of sessions",
	},
	{
		from: "front/samples", only: []string{"std", sys, "isolate/wire", "job"},
		reason: "it asks the supervisor through a function, and stores nothing",
	},
	{
		from: "front/settings", never: []string{"mcp/...", "rpc/...", "store/...", "net/http"},
		reason: "a configuration means the same for every protocol and command",
	},
	{
		from: "front/toolchains", never: []string{"internal/config", "mcp/...", "rpc/...", "store/...", "workspace/...", "net/http"},
		reason: "it runs as root, and looks at directories of users",
	},
	{
		from: "front/store", never: []string{"front/supervisor", "rpc/...", "workspace/..."},
		reason: "it opens stores on first use, and runs no jobs",
	},
	{
		from: "front/patches", never: []string{"front/supervisor", "rpc/..."},
		reason: "it runs jobs through job.Runner",
	},
	{
		from: "front", never: []string{"front/cli/...", "front/server", "rpc/..."},
		reason: "a back-end does not depend on the protocol or the command line in front of it",
	},
	{
		from: "front/cli/...", but: []string{"front/cli"}, never: []string{"front", "front/server", "front/telemetry", "rpc/..."},
		reason: "a command for operators serves no clients",
	},
	{
		from: "front/cli/ci", never: []string{"front/settings", "mcp/...", "store/...", "workspace/..."},
		reason: "it runs what a CI system describes, by the supervisor alone",
	},
	{
		from: "front/cli/edit", never: []string{"front/settings", "mcp/...", "store/...", "workspace/...", "net/http"},
		reason: "it writes as root what a helper process parsed",
	},
	{
		from: "internal/usage", only: []string{}, reason: "it is linked into cmd/corral, and only has texts",
	},
	{
		from: "internal/commandline", only: []string{"std", "internal/lazyregexp"}, reason: "it reads help texts and writes text",
	},
	{
		from: "cmd/corral-front", never: supervisor,
		reason: "a front-end has no privileges: it requests from corrald what needs them",
		shown:  true,
	},
	{
		from: "workspace/image",
		only: []string{
			"std", sys, "internal/lazyregexp", "workspace/image/unpack", "github.com/google/go-containerregistry/...",
			"github.com/klauspost/compress/...",
		},
		reason: "it reads untrusted archives with the rights of the user who imports them: it starts no process, opens no " +
			"connection, and writes only a stream",
	},
	{
		from: "workspace/image/unpack", only: []string{"std", sys},
		reason: "it runs inside a jail, in a program that must be small and easy to audit",
	},
	{
		from: "internal/config/strict", only: []string{"std", "go.yaml.in/yaml/v3", "internal/nearest", "internal/text"},
		reason: "it decodes any table of keys: what a key means is its caller's knowledge",
	},
	{
		from: "internal/config",
		only: []string{
			"std", sys, "internal/config/strict", "go.yaml.in/yaml/v3", "job", "internal/directory", "internal/flock",
			"internal/nearest", "internal/text", "policy/ask", "policy/network",
		},
		reason: "it reads and validates files; the programs apply the values",
	},
	{
		from: "front/doctor",
		only: []string{
			"std", sys, gitSettings,
			"egress/control", "internal/directory", "internal/lazyregexp", "internal/redact", "internal/text/...",
			"isolate/client", "isolate/wire", "job", "policy/runtimes",
		},
		reason: "it runs jobs as any client does, and trusts no claim of the supervisor's code",
	},
	{
		from: "mcp/...", never: supervisor,
		reason: "the front-end of a protocol runs jobs through job.Runner",
		shown:  true,
	},
	{
		from: "mcp/tool",
		only: []string{
			"std", "github.com/go-json-experiment/json/...", "internal/nearest", "internal/strictjson",
			"internal/text",
		},
		reason: "it defines tools, whatever they do and whoever serves them",
	},
	{
		from:   "mcp/server",
		never:  append([]string{"mcp/run", "mcp/execute", "mcp/ctxtools", "mcp/agent", "policy/...", "store/..."}, supervisor...),
		reason: "it speaks the protocol for any tool",
	},
	{
		from: "mcp/run", never: append([]string{"mcp/server", "mcp/execute", "mcp/ctxtools", "mcp/agent", "store/index/..."}, supervisor...),
		reason: "it describes jobs for any tool that runs one",
	},
	{
		from: "mcp/execute", never: append([]string{"mcp/server", "mcp/ctxtools", "mcp/agent"}, supervisor...),
		reason: "tools know neither the protocol nor the tools that build on them",
	},
	{
		from: "mcp/ctxtools", never: append([]string{"mcp/server", "mcp/agent"}, supervisor...),
		reason: "tools know nothing of the protocol",
	},
	{
		from: "mcp/agent", never: append([]string{"mcp/server"}, supervisor...),
		reason: "tools know nothing of the protocol",
	},
	{
		from: "mcp/ctxtools/language", only: []string{"std", "internal/lazyregexp", "job"},
		reason: "it edits texts, and runs nothing: of job it has the names of runtimes",
	},
	{
		from: "mcp/ctxtools/backlog", never: []string{"mcp", "mcp/ctxtools", "mcp/execute", "mcp/run", "mcp/server", "mcp/tool"},
		reason: "it counts work, whatever the work is",
	},
	{
		from: "mcp/ctxtools/answer", never: []string{"mcp/ctxtools", "mcp/execute", "mcp/run", "mcp/server"},
		reason: "it renders what was found, and searches nothing",
	},
	{
		from: "rpc/...", never: supervisor,
		reason: "the front-end of a protocol runs jobs through job.Runner",
		shown:  true,
	},
	{
		from: "rpc/transport",
		only: []string{
			"std", sys, "github.com/coder/websocket", "github.com/go-json-experiment/json/...", "internal/calls",
			"internal/flock", "internal/gate", "internal/jsonrpc", "internal/peer", "internal/sockdiag", "internal/strictjson",
			"internal/text", "job", "rpc",
		},
		reason: "it carries messages and identifies their senders; package rpc interprets them",
	},
	{
		from: "internal/calls", only: []string{"std", "internal/text", "job"},
		reason: "it records words and ids of a call; another package exports them",
	},
	{
		from: "front/telemetry",
		only: []string{
			"std", "go.opentelemetry.io/...", "google.golang.org/protobuf/...", "internal/calls", "internal/text", "job",
		},
		reason: "it sends data to other machines, so it must not reach more than it may send",
	},
	{
		from:   "front/metrics",
		never:  append([]string{"internal/config", "mcp/server", "policy/...", "rpc/...", "store/...", "workspace/..."}, supervisor...),
		reason: "it shows other machines what it counts, so it must not reach more than it may show",
	},
	{
		from: "internal/jsonrpc", only: []string{"std", "github.com/go-json-experiment/json/...", "internal/strictjson", "internal/text"},
		reason: "it reads untrusted input for several protocols, and knows none of them",
	},
	{
		from: "internal/strictjson", only: []string{"std", "github.com/go-json-experiment/json/...", "internal/text"},
		reason: "it reads untrusted input, so it must be easy to audit",
	},
	{
		from: "internal/text/jsontext", only: []string{"std", "internal/text"},
		reason: "programs that show no JSON are not linked with a package for it",
	},
	{
		from: "internal/text", only: []string{"std"},
		reason: "text of jobs and clients passes through it in all programs, those of root included, so it must be easy to audit",
	},
	{
		from: "internal/redact", only: []string{"std"},
		reason: "every byte that a job writes passes through it, so it must be easy to audit",
	},
	{
		from: "internal/log", only: []string{"std", sys, "internal/text"},
		reason: "programs of root log values that clients control, so it must be easy to audit",
	},
	{
		from: "internal/flock", only: []string{"std", sys},
		reason: "programs of root lock files with it that others can open, so it must be easy to audit",
	},
	{
		from: "internal/lazyregexp", only: []string{"std"},
		reason: "it is linked into programs of root and into those that face the Internet, and only delays a call",
	},
	{
		from: "internal/directory", only: []string{"std", sys},
		reason: "root opens paths with it that others may have prepared, so it must be easy to audit",
	},
	{
		from: "internal/gate", only: []string{"std"},
		reason: "it decides which requests reach a server, so it must be easy to audit",
	},
	{
		from: "policy", never: append([]string{"internal/config", "isolate/...", "mcp/...", "net/http"}, supervisor...),
		reason: "a decision is a pure function of rules and request",
		shown:  true,
	},
	{
		from: "policy/ask", only: []string{"std", "internal/nearest", "job", "policy/network"},
		reason: "it reads words, and is linked into cmd/corral",
	},
	{
		from: "policy/network", only: []string{"std"},
		reason: "the program that faces the Internet obeys its rules, and has as little else in it as possible",
	},
	{
		from: "policy/starlark", only: []string{"std", "go.starlark.net/...", "job"},
		reason: "a script must not be able to use anything through its interpreter",
	},
	{
		from: "egress/names", only: []string{"std", "golang.org/x/net/dns/dnsmessage"},
		reason: "it reads what jobs send, and sends nothing to anybody else, so it must be easy to audit",
	},
	{
		from: "egress/relay", only: []string{"std", "internal/text", "egress/splice", sys},
		reason: "it reads what jobs and servers send, and decides nothing about addresses",
	},
	{
		from: "egress/authority", only: []string{"std"},
		reason: "the supervisor and an unprivileged program have it: it makes and reads authorities, and is neither",
	},
	{
		from: "egress/leaf", only: []string{"std", "egress/authority"},
		reason: "it issues certificates, and connects to nobody",
	},
	{
		from: "internal/secret", only: []string{"std", sys, "internal/directory", "store/at"},
		reason: "it opens as root what the operator names, so it must be easy to audit",
	},
	{
		from: "store/authority", only: []string{"std", sys, "egress/authority", "egress/control", "internal/fault", "store/at"},
		reason: "it has the keys that every jail with rules about requests depends on",
	},
	{
		from: "egress/registry",
		only: []string{
			"std", "golang.org/x/crypto/blake2b", "golang.org/x/mod/...", "github.com/ulikunitz/xz/...", "internal/lazyregexp",
			"policy/network",
		},
		reason: "it reads what registries send, and opens and requests nothing",
	},
	{
		from: "egress/store", only: []string{"std", sys},
		reason: "it keeps files for corral-egress, and `corral cache` lists them",
	},
	{
		from: "egress/pull",
		only: []string{
			"std", sys, "egress/registry", "egress/store", "golang.org/x/crypto/blake2b", "golang.org/x/mod/...", "github.com/ulikunitz/xz/...",
			"internal/lazyregexp", "policy/network",
		},
		reason: "it requests nothing but through what it is given",
	},
	{
		from: "egress/dial", only: []string{"std", sys},
		reason: "it decides which machines jobs can reach, so it must be easy to audit",
	},
	{
		from: "egress/sockets", only: []string{"std", sys},
		reason: "it makes sockets in namespaces of jobs, whatever they are used for",
	},
	{
		from: "egress/control", only: []string{"std"},
		reason: "the supervisor, its clients and an unprivileged program speak it: none must be linked with the other",
	},
	{
		from: "cmd/corrald", never: []string{"mcp/...", "rpc/...", "net/http", "crypto/tls"},
		reason: "no privileged program parses a client's protocol, or ends its connections",
		shown:  true,
	},
	{
		from: "...", never: []string{"cmd/..."},
		reason: "programs only connect packages, and nothing depends on them",
	},
	{
		from: "...",
		but: []string{
			"internal/calls/callstest", "internal/test/fronttest", "internal/test/isolatetest", "internal/test/sandboxtest/scripttest",
			"internal/test/nettest", "internal/test/screentest", "internal/text/texttest", "isolate/test/supervise",
			"scripts/follow", // is itself a test, of pages in a guest
		},
		never: []string{
			"internal/calls/callstest", "internal/test/example", "internal/test/fronttest", "internal/test/isolatetest", "isolate/test/...",
			"internal/test/sandboxtest/...", "internal/test/storetest", "internal/layers", "internal/test/nettest",
			"internal/test/screentest", "internal/text/texttest", "policy/runtimes/runtimestest",
		},
		reason: "support for tests is not linked into programs",
	},
}

// initFuncs are the files that may have an init function, with the reason. No other file has one: it has no caller, no
// error and no visible order, and here it would run in each child that is forked.
var initFuncs = map[string]string{}

// check returns one line for each violation of a rule, in a stable order, with the chain of imports and the reason.
func (g *graph) check() []string {
	return slices.Concat(g.checkOwners(), g.checkSingle(), g.checkBounds(), g.checkInits(), g.checkRegexps())
}

func (g *graph) checkOwners() []string {
	var broken []string
	for _, name := range sorted(g.pkgs) {
		p := g.pkgs[name]
		for _, i := range sorted(p.imports) {
			o := ownerOf(i)
			if o != nil && !slices.Contains(o.pkgs, name) {
				broken = append(broken, fmt.Sprintf("%s imports %s (%s), which belongs to %s: %s",
					name, i, p.imports[i], strings.Join(o.pkgs, " and "), o.reason))
			}
		}
	}
	return broken
}

// ownerOf returns the row for an import path, or nil if there is none.
func ownerOf(importPath string) *owner {
	var best *owner
	for n := range owners {
		o := &owners[n]
		if under(importPath, o.tree) && (best == nil || len(o.tree) > len(best.tree)) {
			best = o
		}
	}
	return best
}

// checkSingle requires one importing package for each library, so that it can be replaced and its types do not spread.
// Libraries with a row in owners are left to checkOwners.
func (g *graph) checkSingle() []string {
	importers := map[string][]string{}
	for _, name := range sorted(g.pkgs) {
		for i := range g.pkgs[name].imports {
			if _, isLocal := local(i); isLocal || std(i) || ownerOf(i) != nil {
				continue
			}
			l := g.library(i)
			if shared[l] == "" && !slices.Contains(importers[l], name) {
				importers[l] = append(importers[l], name)
			}
		}
	}
	var broken []string
	for _, l := range sorted(importers) {
		if len(importers[l]) > 1 {
			broken = append(broken, fmt.Sprintf("%s is imported by %s: a library has one importing package",
				l, strings.Join(importers[l], " and ")))
		}
	}
	return broken
}

func (g *graph) checkBounds() []string {
	var broken []string
	for _, b := range bounds {
		for _, name := range sorted(g.pkgs) {
			if !matches(name, b.from) || slices.Contains(b.but, name) {
				continue
			}
			for _, s := range g.reach(name) {
				if !b.allows(s) {
					broken = append(broken, fmt.Sprintf("%s must not reach %s: %s: %s", name, s.target, s.way, b.reason))
				}
			}
		}
	}
	return broken
}

// allows reports whether s may be reached.
func (b bound) allows(s step) bool {
	match := func(pattern string) bool {
		return pattern == "std" && s.std || matches(s.target, pattern)
	}
	if b.only != nil {
		return slices.ContainsFunc(b.only, match)
	}
	return !slices.ContainsFunc(b.never, match)
}

// matches reports whether name, the name of a package or an import path, matches pattern.
func matches(name, pattern string) bool {
	switch tree, isTree := strings.CutSuffix(pattern, "..."); {
	case pattern == "...":
		return true
	case isTree:
		return under(name, strings.TrimSuffix(tree, "/"))
	default:
		return name == pattern
	}
}

func (g *graph) checkInits() []string {
	var broken []string
	for _, name := range sorted(g.pkgs) {
		for _, file := range g.pkgs[name].inits {
			if initFuncs[file] == "" {
				broken = append(broken, file+" has an init function: it has no caller, no error and no visible order: "+
					"call a function from main")
			}
		}
	}
	return broken
}
