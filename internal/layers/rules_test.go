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
		[]string{"store/artifact"},
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
		[]string{"front/telemetry"},
		"metrics are made in one place, which bounds their labels",
	},
	{
		"golang.org/x/net",
		[]string{"front/ci"},
		"one package bounds connections with it; others count theirs by principal",
	},
	{
		"golang.org/x/net/dns",
		[]string{"egress/names", "internal/test/nettest"},
		"one package reads the DNS queries of jobs; tests send some",
	},
	{
		"golang.org/x/mod",
		[]string{"egress/packages"},
		"versions of packages are compared in one place",
	},
	{
		"golang.org/x/crypto",
		[]string{"egress/packages"},
		"one package knows the digests of registries; the standard library lacks BLAKE2b",
	},
	{
		"github.com/ulikunitz/xz",
		[]string{"egress/packages"},
		"what an archive compressed is read in one place, with bounds that the library does not have",
	},
	{
		"charm.land",
		[]string{"cmd/corral-top"},
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
		[]string{"store/index"},
		"one package stores searchable text, and no other depends on the database",
	},
	{
		"github.com/hinshun/vt10x",
		[]string{"internal/test/clitest"},
		"only tests look at a screen; programs pass a job's terminal output on uninterpreted",
	},
	{
		"github.com/rogpeppe/go-internal",
		[]string{"internal/test/clitest"},
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

// A room is a tree of packages of the module: a directory at its root. Its packages import each other and what may lists, each entry with
// all below it. Support for tests, wherever it is, is the room "test".
type room struct {
	name   string
	may    []string
	reason string
}

var rooms = []room{
	{"job", nil, "it defines the terms that all others share"},
	{"cgroup", []string{"internal"}, "it enforces limits on any process: a mechanism that is testable alone"},
	{"seccomp", nil, "it compiles a table of system calls: a mechanism that is testable alone"},
	{"rootfs", []string{"internal"}, "it describes a tree of files: a mechanism that is testable alone"},
	{"policy", []string{"internal", "job"}, "a decision is a function of rules and request"},
	{"egress", []string{"internal", "policy/network"}, "it reaches hosts for jobs, and knows neither jobs nor the supervisor"},
	{"store", []string{"egress/authority", "egress/control", "internal", "job"}, "it keeps what others give it, and runs nothing"},
	{"workspace", []string{"internal", "isolate/scan", "job"}, "it handles what jobs changed, whoever ran them"},
	{
		"isolate",
		[]string{"cgroup", "egress/control", "egress/store", "internal", "job", "rootfs", "seccomp", "store"},
		"the supervisor knows no protocol, policy or front-end: a front-end has decided before it asks",
	},
	{"mcp", []string{"internal", "job", "policy", "store", "workspace/edit"}, "the front-end of a protocol runs jobs through job.Runner"},
	{"rpc", []string{"internal", "job", "workspace/edit"}, "the front-end of a protocol runs jobs through job.Runner"},
	{
		"front",
		[]string{"egress/store", "internal", "isolate/client", "isolate/wire", "job", "mcp", "policy", "rpc", "store", "workspace"},
		"a front-end has no privileges: it requests from the supervisor what needs them",
	},
	{
		"internal",
		[]string{"job", "policy/ask", "policy/network"},
		"it is what several rooms share, and depends on the least of them",
	},
	{
		"cmd",
		[]string{"egress", "front", "internal", "isolate", "job", "policy", "store/artifact", "store/at", "workspace"},
		"programs connect packages, and nothing depends on them",
	},
	{"scripts", []string{"front/commands", "internal", "test"}, "what develops the programs is not linked with them, nor they with it"},
	{
		"test",
		[]string{"internal", "isolate", "job", "mcp", "store", "workspace"},
		"support for tests is not linked into programs, and needs no front-end",
	},
}

// A bound says what a package reaches by any chain of imports: with only, nothing else; with never, everything else. It has one of the
// two. Entries are names of packages or import paths of libraries; "std" stands for the standard library, and an entry that ends in /...
// for a tree. Rooms keep packages apart; a bound is about one program, or a package without which a program is not safe.
type bound struct {
	from   string
	only   []string
	never  []string
	reason string
}

const sys = "golang.org/x/sys/..."

// gitSettings reads a user's git configuration in every client of the supervisor.
const gitSettings = "github.com/go-git/gcfg/..."

var supervisor = []string{"isolate", "cgroup", "seccomp"}

var bounds = []bound{
	{
		from: "job", only: []string{"std"},
		reason: "it defines the terms that all others share, and depends neither on a library nor on the kernel",
	},
	{
		from: "cmd/corral",
		only: []string{
			"std", sys, gitSettings,
			"egress/control", "isolate/client/...", "isolate/wire", "job", "internal/directory", "internal/nearest", "internal/pipe", "internal/redact",
			"internal/text", "internal/usage", "internal/users", "internal/version", "policy/ask", "policy/network",
		},
		reason: "it is started for each job, and a Go program starts the later the more it is linked with",
	},
	{
		from:   "cmd/corral-init",
		only:   []string{"std", sys, "isolate/inside", "isolate/scan", "rootfs", "internal/version"},
		reason: "it runs inside the jail, as its first process: small, static, easy to audit",
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
	},
	{
		from: "cmd/corral-starlark", only: []string{"std", "go.starlark.net/...", "job", "policy/starlark"},
		reason: "it runs inside a jail, on an untrusted script: small, static, quick to start",
	},
	{
		from: "cmd/corral-front", never: supervisor,
		reason: "a front-end has no privileges: it requests from corrald what needs them",
	},
	{
		from: "policy", never: []string{"internal/config", "net/http"},
		reason: "a decision is a pure function of rules and request",
	},
	{
		from: "cmd/corrald", never: []string{"mcp/...", "rpc/...", "net/http", "crypto/tls"},
		reason: "no privileged program parses a client's protocol, or ends its connections",
	},
	{
		from: "store/at", only: []string{"std", sys},
		reason: "it opens files that other users may have put there, so it must be easy to audit",
	},
	{
		from: "internal/directory", only: []string{"std", sys},
		reason: "root opens paths with it that others may have prepared, so it must be easy to audit",
	},
	{
		from: "policy/starlark", only: []string{"std", "go.starlark.net/...", "job"},
		reason: "a script must not be able to use anything through its interpreter",
	},
}

// check returns one line for each violation of a rule, in a stable order, with the chain of imports and the reason.
func (g *graph) check() []string {
	return slices.Concat(g.checkOwners(), g.checkSingle(), g.checkRooms(), g.checkBounds())
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

// roomOf returns the name of a package's room.
func roomOf(pkg string) string {
	top, _, _ := strings.Cut(pkg, "/")
	if under(pkg, "internal/test") || under(pkg, "isolate/test") || strings.HasSuffix(pkg, "test") && pkg != "scripts/test" {
		return "test"
	}
	return top
}

func (g *graph) checkRooms() []string {
	var broken []string
	for _, name := range sorted(g.pkgs) {
		n := slices.IndexFunc(rooms, func(r room) bool { return r.name == roomOf(name) })
		if n < 0 {
			broken = append(broken, name+" is in no room: add a row to rooms")
			continue
		}
		r := rooms[n]
		for _, i := range sorted(g.pkgs[name].imports) {
			target, isLocal := local(i)
			if !isLocal || roomOf(target) == r.name {
				continue
			}
			allowed := func(entry string) bool {
				return entry == roomOf(target) || roomOf(target) != "test" && under(target, entry)
			}
			if !slices.ContainsFunc(r.may, allowed) {
				broken = append(broken, fmt.Sprintf("%s imports %s (%s): %s may import %s: %s",
					name, target, g.pkgs[name].imports[i], r.name, strings.Join(r.may, ", "), r.reason))
			}
		}
	}
	return broken
}

func (g *graph) checkBounds() []string {
	var broken []string
	for _, b := range bounds {
		for _, name := range sorted(g.pkgs) {
			if !matches(name, b.from) {
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
