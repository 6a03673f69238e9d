package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"corral/job"
)

// String returns c as a file from which Load reads the same: what holds, with every value said.
func (c Config) String() string {
	w := &writer{}
	w.line("version: 1")
	w.line("uids: {base: %#x, size: %#x}", c.UIDs.Base, c.UIDs.Size)
	writeAll(w, "repos", c.Repos, func(r Repo) { w.item(func() { w.repo(r) }) })
	writeAll(w, "toolchains", c.Toolchains, func(dir string) { w.line("- %s", quote(dir)) })
	if c.OwnDirectories != nil {
		w.line("own_directories: %t", *c.OwnDirectories)
	} else {
		w.line("# own_directories: %t, for repos are %slisted", c.ServesOwn(len(c.Repos)),
			map[bool]string{true: "not ", false: ""}[len(c.Repos) == 0])
	}
	w.limits("defaults", c.Defaults)
	w.limits("ceilings", c.Ceilings)
	writeAll(w, "profiles", slices.Sorted(maps.Keys(c.Profiles)), func(name string) {
		if c.Profiles[name] == (Profile{}) {
			w.line("%s: {}", quote(name))
			return
		}
		w.section(quote(name), func() { w.profile(c.Profiles[name]) })
	})
	w.line("jail_idle: %s", c.JailIdle)
	w.line("max_jobs: %d", c.MaxJobs)
	w.line("max_jobs_per_user: %d", c.MaxJobsPerUser)
	w.line("max_jails: %d", c.MaxJails)
	w.line("warm_slots: %d", c.WarmSlots)
	w.line("max_warm_slots: %d", c.MaxWarmSlots)
	w.section("audit", func() { w.audit(c.Audit) })
	w.section("layers", func() { w.layers(c.Layers) })
	w.section("runtime", func() { w.runtime(c.Runtime) })
	w.section("output", func() { w.line("keep: %s\nredact: %t", job.FormatSize(c.Output.Keep), c.Output.Redact) })
	w.section("artifacts", func() {
		a := c.Artifacts
		w.line("ttl: %s\nmax_count: %d\nmax_bytes: %s\nfsync: %s", a.TTL, a.MaxCount, job.FormatSize(a.MaxBytes), a.Fsync)
	})
	writeAll(w, "principals", c.Principals, func(r Principal) { w.item(func() { w.principal(r) }) })
	w.section("http", func() { w.http(c.HTTP) })
	w.section("exec_server", func() { w.execServer(c.ExecServer) })
	w.section("sandbox", func() { w.sandbox(c.Sandbox) })
	w.section("ctx", func() { w.ctx(c.Ctx) })
	w.section("index", func() { w.index(c.Index) })
	w.section("starlark", func() { w.starlark(c.Starlark) })
	w.section("telemetry", func() { w.telemetry(c.Telemetry) })
	return w.b.String()
}

// A writer writes YAML in blocks.
type writer struct {
	b      strings.Builder
	indent int
	dash   bool // the next line is the first of an item
}

// line writes lines.
func (w *writer) line(format string, args ...any) {
	for line := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		before := strings.Repeat(" ", w.indent)
		if w.dash {
			before, w.dash = before[:w.indent-2]+"- ", false
		}
		w.b.WriteString(before + line + "\n")
	}
}

func (w *writer) in(write func()) {
	w.indent += 2
	write()
	w.indent -= 2
}

func (w *writer) section(name string, write func()) {
	w.line("%s:", name)
	w.in(write)
}

// item is an entry of a list that is a mapping.
func (w *writer) item(write func()) {
	w.dash = true
	w.in(write)
}

func writeAll[T any](w *writer, name string, all []T, write func(T)) {
	if len(all) == 0 {
		return
	}
	w.section(name, func() {
		for _, one := range all {
			write(one)
		}
	})
}

// list writes a list on one line, if it is said.
func (w *writer) list(name string, names []string) {
	if names == nil {
		return
	}
	quoted := make([]string, len(names))
	for i, s := range names {
		quoted[i] = quote(s)
	}
	w.line("%s: [%s]", name, strings.Join(quoted, ", "))
}

func (w *writer) limits(name string, l job.Limits) {
	if l == (job.Limits{}) {
		return
	}
	w.section(name, func() {
		for _, f := range l.Fields() {
			if *f.Value != 0 {
				w.line("%s: %s", limitKey(f), writeLimit(f, *f.Value))
			}
		}
	})
}

// repo writes what r says; an id that is its path's base name says nothing.
func (w *writer) repo(r Repo) {
	w.line("path: %s", quote(r.Path))
	if r.ID != filepath.Base(r.Path) {
		w.line("id: %s", quote(r.ID))
	}
	w.users("users", r.Users)
	if r.Owner != nil {
		w.line("owner: %d", *r.Owner)
	}
	if r.Profile != "" {
		w.line("profile: %s", quote(r.Profile))
	}
	w.workspace(r.Workspace)
	if r.Protect != job.ProtectNone {
		w.line("protect: %v", r.Protect)
	}
	w.limits("defaults", r.Defaults)
	w.limits("ceilings", r.Ceilings)
	w.env(r.Env)
	w.list("runtimes", r.Runtimes)
}

func (w *writer) workspace(ws *job.Workspace) {
	if ws != nil {
		w.line("workspace: %s", *ws)
	}
}

func (w *writer) env(names []string) {
	if names != nil {
		w.section("env", func() { w.list("allow", names) })
	}
}

func (w *writer) profile(f Profile) {
	if f.Syscalls != "" {
		w.line("syscalls: %s", f.Syscalls)
	}
	w.workspace(f.Workspace)
	w.limits("defaults", f.Defaults)
	w.limits("ceilings", f.Ceilings)
}

func (w *writer) audit(a Audit) {
	keep := unlimited
	if a.Keep != 0 {
		keep = strconv.Itoa(a.Keep)
	}
	w.line("fsync: %s\nmax_size: %s\nkeep: %s\nkeep_for: %s\nuser_daily: %s", a.Fsync, job.FormatSize(a.MaxSize), keep, a.KeepFor, job.FormatSize(a.UserDaily))
}

func (w *writer) runtime(r Runtime) {
	w.line("enabled: %t", r.Enabled)
	w.list("runtimes", r.Runtimes)
	w.list("executables", r.Executables)
	w.env(r.Env)
	writeAll(w, "runtime_env", slices.Sorted(maps.Keys(r.RuntimeEnv)), func(name string) {
		variables := r.RuntimeEnv[name]
		writeAll(w, name, slices.Sorted(maps.Keys(variables)), func(v string) { w.line("%s: %s", v, quote(variables[v])) })
	})
	w.line("max_duration: %s\nmax_concurrent_jobs: %d", r.MaxDuration, r.MaxConcurrentJobs)
	w.line("queue_wait: %s\nqueue_length: %d", r.QueueWait, r.QueueLength)
	if r.Rules != "" {
		w.line("rules: %s", quote(r.Rules))
	}
	w.limits("defaults", r.Defaults)
}

func (w *writer) principal(r Principal) {
	w.line("name: %s\ntoken_sha256: \"%x\"", quote(r.Name), r.Hash)
	w.list("repos", r.Repos)
	w.list("tools", r.Tools)
}

func (w *writer) http(h HTTP) {
	w.line("listen: %s", quote(h.Listen))
	w.list("allowed_hosts", h.AllowedHosts)
	w.list("allowed_origins", h.AllowedOrigins)
	w.line("max_body: %s\nsession_idle: %s", job.FormatSize(h.MaxBody), h.SessionIdle)
}

func (w *writer) execServer(e ExecServer) {
	var addresses []string
	for _, l := range e.Listen {
		addresses = append(addresses, l.String())
	}
	w.list("listen", addresses)
	w.list("allowed_hosts", e.AllowedHosts)
	w.users("peers", e.Peers)
	w.line("output_budget: %s", job.FormatSize(e.OutputBudget))
	if e.FullAccess != "" {
		w.line("full_access: %s", quote(e.FullAccess))
	}
}

func (w *writer) users(name string, ids []uint32) {
	if ids != nil {
		w.line("%s: [%s]", name, strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ", "), "[]"))
	}
}

// quote writes a string as YAML's double-quoted form, which has Go's escapes, unless it is plainly text: a word or a path.
func quote(s string) string {
	const letters = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if s == "" || !utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	// A word that begins with a digit, a dot or a dash could be a number; true, null and the like are words of YAML's.
	first := strings.ContainsRune(letters+"/", rune(s[0]))
	if first && strings.Trim(s, letters+"/.-0123456789") == "" && !slices.Contains(yamlWords(), strings.ToLower(s)) {
		return s
	}
	return strconv.Quote(s)
}

// yamlWords are those that are no strings for YAML 1.1 or 1.2.
func yamlWords() []string {
	return []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
}
