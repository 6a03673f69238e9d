package layers

import (
	"fmt"
	"slices"
	"strings"
)

// An owner says which packages alone may import a tree of libraries. Of the rows that fit an import, the longest holds.
type owner struct {
	tree   string
	pkgs   []string
	reason string
}

var owners = []owner{
	{
		"github.com/opencontainers/runc",
		[]string{"isolate"},
		"jails are made in one place, and libcontainer's types end there",
	},
	{
		"github.com/opencontainers/runc/libcontainer/nsenter",
		[]string{"isolate", "cmd/corrald"},
		"its C constructor runs at the start of any program linked with it, and only corrald is started as a container's init",
	},
	{
		"github.com/opencontainers/cgroups",
		[]string{"isolate"},
		"libcontainer wants its configuration in these types; a job's envelope is package cgroup's",
	},
	{
		"github.com/containerd/cgroups",
		[]string{"cgroup"},
		"one package knows that there are v1, hybrid and v2",
	},
	{
		"github.com/seccomp/libseccomp-golang",
		[]string{"seccomp"},
		"filters are compiled in one place, where the compiled program is checked against the table",
	},
	{
		"github.com/klauspost/compress",
		[]string{"store/artifact"},
		"gzip at about twice the speed of the standard library's, which every byte of every job pays for; any gzip reads what is written",
	},
	{
		"github.com/klauspost/compress/zstd",
		[]string{"workspace/image"},
		"the standard library has no zstd, which layers of images are compressed with; of what it opens little is kept",
	},
	{
		"github.com/google/go-containerregistry",
		[]string{"workspace/image"},
		"manifests of container images are read in one place, and what is imported is files and nothing else of them",
	},
	{
		"github.com/mark3labs/mcp-go",
		[]string{"mcp"},
		"the protocol is one package's, and its types are not the words of tools",
	},
	{
		"github.com/coder/websocket",
		[]string{"rpc/transport"},
		"the frames of clients who may be anybody are read in one place, and bounded there",
	},
	{
		"github.com/aymanbagabas/go-udiff",
		[]string{"workspace/changes"},
		"what differs between two texts is found in one place, which writes it as a patch itself",
	},
	{
		"go.opentelemetry.io",
		[]string{"front/telemetry"},
		"spans are made in one place; what is told of a call is internal/calls's to say",
	},
	{
		"google.golang.org/protobuf",
		[]string{"front/telemetry"},
		"the one protocol that needs it is a collector's",
	},
	{
		"go.starlark.net",
		[]string{"policy/starlark"},
		"one package knows the interpreter, and puts bounds around it",
	},
	{
		"modernc.org/sqlite",
		[]string{"store/index"},
		"what is kept to be searched is one package's, and no other knows that there is a database",
	},
	{
		"github.com/hinshun/vt10x",
		[]string{"internal/test/screentest"},
		"only tests look at a screen; what a job writes to a terminal is nothing that a program of ours understands",
	},
	{
		"github.com/rogpeppe/go-internal",
		[]string{"internal/test/sandboxtest/scripttest"},
		"scripts of command lines are played in one place; without it, a reader of txtar and of lines would be ours to write",
	},
	{
		"go.yaml.in/yaml",
		[]string{"internal/config"},
		"what is root's to write is parsed strictly, by one parser",
	},
}

// shared are the libraries that any package may import.
var shared = map[string]string{
	"golang.org/x/sys": "it is the system call interface, which the standard library has frozen",
}

// A bound says what the packages that from matches may reach. With only, nothing else; with never, all but that.
// "std" stands for the standard library; an entry that ends in /... for a tree, in from, only and never alike. Entries
// are names of packages or import paths of libraries.
type bound struct {
	from   string
	but    []string // packages that from does not stand for
	only   []string
	never  []string
	reason string
}

const sys = "golang.org/x/sys/..."

var supervisor = []string{"isolate", "cgroup", "seccomp"}

var bounds = []bound{
	{
		from: "job", only: []string{"std"},
		reason: "job is the middle: words and the life of a job, with no library and no kernel in it",
	},
	{
		from: "store/artifact", only: []string{"std", sys, "github.com/klauspost/compress/...", "job"},
		reason: "it keeps what jobs wrote, for whichever front-end: it starts nothing and asks nobody",
	},
	{
		from: "store/index", only: []string{"std", sys, "modernc.org/sqlite/...", "store/index/chunk", "store/index/word", "internal/text"},
		reason: "it finds again what jobs wrote, for whichever front-end: it starts nothing and asks nobody",
	},
	{
		from: "store/index/chunk", only: []string{"std"},
		reason: "it reads what anybody wrote, of any size: it is to be easy to audit",
	},
	{
		from: "store/index/word", only: []string{"std"},
		reason: "what a word is is the same where texts are kept and where they are shown",
	},
	{
		from: "workspace/session", only: []string{"std", "job"},
		reason: "whose session is whose is bookkeeping: what a session is made of is the supervisor's",
	},
	{
		from: "workspace/changes", only: []string{"std", "github.com/aymanbagabas/go-udiff/...", "workspace/changes/stream", "job"},
		reason: "it reads what a job tells of a session's layer, and never the layer",
	},
	{
		from: "workspace/changes/stream", only: []string{"std", "job"},
		reason: "it is read outside of what was written inside a jail: it is to be easy to audit",
	},
	{
		from: "policy/runtimes", only: []string{"std", sys, "job"},
		reason: "what runs a language is a table and a look at directories: it starts nothing and asks nobody",
	},
	{
		from: "store/audit", only: []string{"std", sys, "job"},
		reason: "a log that root writes and that others verify: it is to be easy to audit itself",
	},
	{
		from: "cgroup", never: []string{"job", "isolate/..."},
		reason: "an envelope of limits knows neither jobs nor jails",
	},
	{
		from: "seccomp", never: []string{"job", "isolate/..."},
		reason: "a table of system calls knows neither jobs nor jails",
	},
	{
		from: "rootfs", never: []string{"job", "isolate/..."},
		reason: "a tree of files knows neither jobs nor jails",
	},
	{
		from: "cmd/corral",
		only: []string{
			"std", sys, "isolate/client/...", "isolate/wire", "job", "internal/directory", "internal/nearest", "internal/terminal",
			"internal/text", "internal/version",
		},
		reason: "it is started for each job: linked with everything, a Go program starts in 4.9 ms, which is more than " +
			"all of bubblewrap's run",
	},
	{
		from:   "cmd/corral-init",
		only:   []string{"std", sys, "isolate/inside", "isolate/scan", "rootfs", "internal/version"},
		reason: "it runs inside the jail, static, as its first process: it is to be small, quick and easy to audit",
	},
	{
		from: "cmd/corral-layer", only: []string{"std", sys, "workspace/changes/layer", "workspace/changes/stream", "workspace/image/unpack", "isolate/scan", "job", "internal/version"},
		reason: "it runs inside a session's jail, on what jobs and strangers wrote: small, static, easy to audit",
	},
	{
		from: "cmd/corral-starlark", only: []string{"std", "go.starlark.net/...", "job", "policy/starlark"},
		reason: "it runs inside a jail, on a script that anybody wrote: small, static, quick to start",
	},
	{
		from: "cmd/corral-front", never: supervisor,
		reason: "a front-end has no privileges: what needs some is asked of corrald",
	},
	{
		from:   "workspace/image",
		only:   []string{"std", sys, "workspace/image/unpack", "github.com/google/go-containerregistry/...", "github.com/klauspost/compress/..."},
		reason: "it reads what strangers packed, as who imports it: it starts nothing, asks nobody, and fills nothing but a stream",
	},
	{
		from: "workspace/image/unpack", only: []string{"std", sys},
		reason: "it runs inside a jail, in a program that is to be small and easy to audit",
	},
	{
		from: "internal/config", only: []string{"std", sys, "go.yaml.in/yaml/v3", "job", "internal/directory", "internal/nearest", "internal/text"},
		reason: "a file is read into words; what they mean to the supervisor is the supervisor's affair",
	},
	{
		from: "front/doctor", only: []string{"std", sys, "internal/directory", "internal/text", "isolate/client", "isolate/wire", "job", "policy/runtimes"},
		reason: "it finds out by running jobs, as anybody could, not by what the supervisor's code believes of itself",
	},
	{
		from: "mcp/...", never: supervisor,
		reason: "a protocol's front-end reaches jobs through job.Runner",
	},
	{
		from: "rpc/...", never: supervisor,
		reason: "a protocol's front-end reaches jobs through job.Runner",
	},
	{
		from: "rpc/transport", only: []string{"std", sys, "github.com/coder/websocket", "internal/calls", "internal/gate", "internal/strictjson", "internal/text", "job", "rpc"},
		reason: "it carries messages and knows who sends them: what they say, and what is run, is none of its affair",
	},
	{
		from: "internal/calls", only: []string{"std", "internal/text", "job"},
		reason: "what is noted of a call is words and ids: who exports them is another package's affair",
	},
	{
		from:   "front/telemetry",
		only:   []string{"std", "go.opentelemetry.io/...", "google.golang.org/protobuf/...", "internal/calls", "internal/text", "job"},
		reason: "it tells others of calls: it is to have nothing that it could tell too much of",
	},
	{
		from: "internal/strictjson", only: []string{"std", "internal/text"},
		reason: "it reads what anybody sent: it is to be easy to audit",
	},
	{
		from: "internal/text", only: []string{"std"},
		reason: "what jobs and clients wrote passes through it everywhere, root's programs included: it is to be easy to audit",
	},
	{
		from: "internal/log", only: []string{"std", sys, "internal/text"},
		reason: "root's programs write to it what clients control: it is to be easy to audit",
	},
	{
		from: "internal/directory", only: []string{"std", sys},
		reason: "root opens with it what others may have put in a path: it is to be easy to audit",
	},
	{
		from: "internal/gate", only: []string{"std"},
		reason: "who may speak to a server is to be easy to audit",
	},
	{
		from: "policy", never: append([]string{"internal/config", "isolate/...", "mcp/...", "net/http"}, supervisor...),
		reason: "a decision is a pure function of rules and request",
	},
	{
		from: "policy/starlark", only: []string{"std", "go.starlark.net/...", "job"},
		reason: "what interprets a language reaches nothing that it could be talked into using",
	},
	{
		from: "cmd/corrald", never: []string{"mcp/...", "rpc/...", "net/http"},
		reason: "nothing with privileges reads a client's protocol",
	},
	{
		from: "...", never: []string{"cmd/..."},
		reason: "programs are wiring, and nothing is built on wiring",
	},
	{
		from: "...", but: []string{"internal/calls/callstest", "internal/test/sandboxtest/scripttest", "internal/test/screentest", "internal/text/texttest"},
		never: []string{
			"internal/calls/callstest", "internal/test/example", "internal/test/sandboxtest/...", "internal/layers", "internal/test/screentest", "internal/text/texttest",
		},
		reason: "what tests need has no place in a program",
	},
}

// initFuncs are the files that may have an init function, with the reason. All others have none: what runs before main
// has no caller, no error and no order that a reader can see, and here it would run in each child that is forked.
var initFuncs = map[string]string{}

// check returns what breaks a rule, in a stable order: one line each, with the way there and the reason.
func (g *graph) check() []string {
	return slices.Concat(g.checkOwners(), g.checkSingle(), g.checkBounds(), g.checkInits())
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

// ownerOf returns the row for an import path, nil without one.
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

// checkSingle holds that a library has one importing package, so that it can be replaced, and its types never become
// the words that our own packages speak with each other. Owners with rows of their own are theirs to check.
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

// matches reports whether name, a package's or an import path, is what pattern stands for.
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
				broken = append(broken, file+" has an init function: what runs before main has no caller, no error and "+
					"no order that a reader can see")
			}
		}
	}
	return broken
}
