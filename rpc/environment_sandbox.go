package rpc

import (
	"cmp"
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
	"corral/internal/text"
	"corral/job"
)

// A narrowing is what the sandbox of a request takes away from what the operator allows. It never adds anything.
type narrowing struct {
	given   bool
	bounded bool     // it has a list of paths, and takes away what the list does not give
	roots   []string // the client's workspaces
	rules   []rule
	network string // as in job.Request.Network
}

// A rule is an entry of a sandbox: what may be done at and below a path.
type rule struct {
	path   string // absolute and clean
	access string // read, write or deny
	glob   string // a pattern of paths below path, which are meant then
}

// readSandbox reads the sandbox of a request; null narrows nothing. What it does not know it refuses.
func (r *reader) readSandbox() (n narrowing) {
	raw := r.optional("sandbox")
	if raw == nil {
		return n
	}
	n.given = true
	in := r.object("sandbox", raw)
	defer func() { r.inherit(in) }()
	var roots []string
	if list := in.optional("workspaceRoots"); list != nil {
		for _, uri := range in.stringArray("sandbox.workspaceRoots", list) {
			root, err := pathOf(uri)
			if err != nil {
				in.fail(bad("`sandbox.workspaceRoots`: %v", err))
			}
			roots = append(roots, path.Clean(root))
		}
	}
	if cwd := in.path("sandbox.cwd", in.optional("cwd")); len(roots) == 0 && cwd != "" {
		roots = []string{path.Clean(cwd)}
	}
	n.roots = roots
	p := in.object("sandbox.permissions", in.required("permissions"))
	switch kind := p.text("sandbox.permissions.type", p.required("type")); kind {
	case "managed":
		n.readFiles(p, roots)
		n.readNetwork(p, p.required("network"))
	case "external":
		n.readNetwork(p, p.optional("network"))
	case "disabled":
	default:
		p.fail(bad("unknown `sandbox.permissions.type` %s", quoted(text.Cut(kind, maxWord))))
	}
	in.inherit(p)
	return n
}

func (n *narrowing) readNetwork(p *reader, raw json.RawMessage) {
	if raw == nil {
		return
	}
	switch word := p.text("sandbox.permissions.network", raw); word {
	case "restricted":
		n.network = job.NoNetwork
	case "enabled":
	default:
		p.fail(bad("unknown `sandbox.permissions.network` %s", quoted(text.Cut(word, maxWord))))
	}
}

func (n *narrowing) readFiles(p *reader, roots []string) {
	in := p.object("sandbox.permissions.file_system", p.required("file_system"))
	defer func() { p.inherit(in) }()
	switch kind := in.text("file_system.type", in.required("type")); kind {
	case "unrestricted":
		return
	case "restricted":
		n.bounded = true
	default:
		in.fail(bad("unknown `file_system.type` %s", quoted(text.Cut(kind, maxWord))))
		return
	}
	raw := in.required("entries")
	if raw == nil {
		return
	}
	if raw[0] != '[' {
		in.wrongType("file_system.entries", "an array", raw)
		return
	}
	for _, e := range strictjson.Elements(raw, strictjson.MaxEntries) {
		entry := in.object("file_system.entries[]", e)
		access := entry.text("access", entry.required("access"))
		if access == "none" {
			access = "deny"
		}
		if !slices.Contains([]string{"read", "write", "deny"}, access) {
			entry.fail(bad("unknown `access` %s of a file system entry", quoted(text.Cut(access, maxWord))))
		}
		for _, r := range entry.places(entry.object("path", entry.required("path")), roots) {
			r.access = access
			n.rules = append(n.rules, r)
		}
		in.inherit(entry)
	}
}

// places returns the paths that the path of an entry stands for.
func (r *reader) places(in *reader, roots []string) (list []rule) {
	defer func() { r.inherit(in) }()
	switch kind := in.text("path.type", in.required("type")); kind {
	case "path":
		return []rule{{path: path.Clean(in.path("path.path", in.required("path")))}}
	case "glob_pattern":
		return in.patterns(in.text("path.pattern", in.required("pattern")), roots)
	case "special":
		value := in.object("path.value", in.required("value"))
		defer func() { in.inherit(value) }()
		below := path.Clean("/" + value.text("subpath", value.optional("subpath")))
		switch kind := value.text("kind", value.required("kind")); kind {
		case "root":
			return []rule{{path: below}}
		case "slash_tmp", "tmpdir":
			return []rule{{path: path.Join("/tmp", below)}}
		case "minimal": // system directories: a job sees those that the operator shows
		case "project_roots", "current_working_directory":
			for _, root := range roots {
				list = append(list, rule{path: path.Join(root, below)})
			}
		default:
			value.fail(bad("unknown `kind` %s of a file system entry", quoted(text.Cut(kind, maxWord))))
		}
	default:
		in.fail(bad("unknown `type` %s of a file system entry", quoted(text.Cut(kind, maxWord))))
	}
	return list
}

// patterns returns the rules for a pattern of paths below each root, or an absolute one.
func (r *reader) patterns(pattern string, roots []string) (list []rule) {
	const maxPattern = 1024
	below, ofRoots := strings.CutPrefix(pattern, "codex-project-roots://")
	switch {
	case len(pattern) > maxPattern || !ofRoots && !path.IsAbs(pattern) || strings.Trim(below, "/") == "":
		r.fail(bad("unknown pattern %s of a file system entry", quoted(text.Cut(pattern, maxWord))))
	case !ofRoots:
		list = []rule{{path: "/", glob: strings.TrimLeft(pattern, "/")}}
	default:
		for _, root := range roots {
			list = append(list, rule{path: root, glob: strings.TrimLeft(below, "/")})
		}
	}
	return list
}

// expression returns a regular expression for the absolute paths that a rule with a pattern is about.
func (r *rule) expression() string {
	var b strings.Builder
	b.WriteString("^" + regexp.QuoteMeta(strings.TrimSuffix(r.path, "/")) + "/")
	for rest := r.glob; rest != ""; {
		word := rest[:1]
		switch {
		case strings.HasPrefix(rest, "**/"):
			word = "**/"
			b.WriteString("(.*/)?")
		case strings.HasPrefix(rest, "**"):
			word = "**"
			b.WriteString(".*")
		case word == "*":
			b.WriteString("[^/]*")
		case word == "?":
			b.WriteString("[^/]")
		case strings.ContainsAny(word, "[{\\"): // what is in brackets and braces, and perhaps more
			word = rest[:1+strings.IndexAny(rest[1:]+"/", "/*?")]
			b.WriteString("[^/]*")
		default:
			b.WriteString(regexp.QuoteMeta(word))
		}
		rest = rest[len(word):]
	}
	return "(?s)" + b.String() + "(/.*)?$"
}

// A view is what a narrowing leaves of a repository. Paths are relative to it, the shortest first.
type view struct {
	readOnly bool
	open     []string // paths of a read-only repository that can be written
	keep     []string // read-only paths of what can be written
	hidden   []string // paths that cannot be read either
	patterns []rule   // read and deny of patterns, which only operations on files follow
	refusal  string   // why nothing may run: what is asked for cannot be enforced; "" if it can
}

// of returns what the narrowing leaves of the repository at root. The most specific rule wins, and deny over all.
func (n *narrowing) of(root string) (v view) {
	if !n.bounded {
		return v
	}
	// For one path, the strongest comes first.
	rank := map[string]int{"deny": 0, "read": 1, "write": 2}
	rules := slices.Clone(n.rules)
	slices.SortStableFunc(rules, func(a, b rule) int {
		return cmp.Or(cmp.Compare(len(a.path), len(b.path)), cmp.Compare(a.path, b.path), cmp.Compare(a.glob, b.glob),
			cmp.Compare(rank[a.access], rank[b.access]))
	})
	rules = slices.CompactFunc(rules, func(a, b rule) bool { return a.path == b.path && a.glob == b.glob })
	access := ""
	for _, r := range rules {
		if _, in := within(r.path, root); r.glob == "" && in && access != "deny" {
			access = r.access
		}
	}
	if access == "" || access == "deny" {
		v.refusal = "it gives no access to the repository " + quoted(root)
		return v
	}
	v.readOnly = access == "read"
	for _, r := range rules {
		rel, in := within(root, r.path)
		switch {
		case r.glob != "" && r.access != "write":
			v.patterns = append(v.patterns, r)
		case r.glob != "": // allows less if it is left out
		case !in || rel == "":
		case r.access == "deny":
			v.hidden = append(v.hidden, rel)
		case r.access == "write":
			v.open = append(v.open, rel)
		case !v.readOnly || slices.ContainsFunc(v.open, func(open string) bool { _, in := within(open, rel); return in }):
			v.keep = append(v.keep, rel) // elsewhere in a read-only repository, a path is read-only anyway
		}
	}
	return v
}

// protected are paths that job.ProtectAll makes read-only, too: then the git directory that a worktree has elsewhere is one of them.
var protected = []string{".git", ".agents", ".codex", ".aws"}

// apply narrows the request of a command as the view says. It returns why that is not possible, "" if it is.
func (v *view) apply(r *job.Request) string {
	if v.refusal != "" {
		return v.refusal
	}
	if len(v.patterns) > 0 {
		return "corral cannot enforce the pattern " + quoted(text.Cut(v.patterns[0].glob, maxWord)) + " for commands: name the paths"
	}
	r.ReadOnly = v.readOnly && len(v.open) == 0
	if v.readOnly && !r.ReadOnly {
		for _, p := range v.open {
			r.Bounds.Add(job.BoundOpen, p)
		}
		r.Bounds.Add(job.BoundReadOnly, ".")
	}
	if !r.ReadOnly {
		v.pin(r)
		for _, p := range v.keep {
			r.Bounds.Add(job.BoundReadOnly, p)
			if slices.Contains(protected, p) {
				r.Protect = job.ProtectAll
			}
		}
	}
	for _, p := range v.hidden {
		r.Bounds.Add(job.BoundHidden, p)
	}
	if _, ok := r.Bounds.Count(); !ok {
		return "it has too many paths in the repository, or one of them is not valid"
	}
	return ""
}

// pin keeps a job from moving the directories of protected paths, which the next job would see elsewhere.
func (v *view) pin(r *job.Request) {
	var dirs []string
	for _, p := range slices.Concat(v.keep, v.hidden) {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			opens := func(open string) bool { _, in := within(open, dir); return in }
			if !v.readOnly || slices.ContainsFunc(v.open, opens) {
				dirs = append(dirs, dir)
			}
		}
	}
	slices.Sort(dirs) // a directory before what is in it
	for _, dir := range slices.Compact(dirs) {
		r.Bounds.Add(job.BoundPinned, dir)
	}
}

// readProxy reads the network rules of a profile into a narrowing that allows the network. corral starts no proxy: the words go into what
// the job asks for, which the operator's rules bound.
func (r *reader) readProxy(n *narrowing) {
	if !r.boolean("enforceManagedNetwork") {
		return
	}
	raw := r.optional("networkProxy")
	if raw == nil {
		r.fail(jsonrpc.Errorf(jsonrpc.CodeInternal, "enforceManagedNetwork without networkProxy is refused: its rules are not known"))
		return
	}
	in := r.object("networkProxy", raw)
	proxy := in.object("networkProxy.proxy", in.required("proxy"))
	if mode := proxy.text("mode", proxy.optional("mode")); mode != "full" && mode != "" {
		proxy.fail(jsonrpc.Errorf(jsonrpc.CodeInternal, "network mode %s is refused: corral cannot bound the methods of requests to it; use full", quoted(text.Cut(mode, maxWord))))
	}
	var allow, deny []string
	if raw := proxy.optional("domains"); raw != nil {
		for name, access := range proxy.environment("domains") {
			switch {
			case access != nil && *access == "allow":
				allow = append(allow, name)
			case access != nil && *access == "deny":
				deny = append(deny, name)
			default:
				proxy.fail(bad("unknown access to domain %s", quoted(text.Cut(name, maxWord))))
			}
		}
	}
	in.inherit(proxy)
	r.inherit(in)
	if r.fault == nil && n.network != job.NoNetwork {
		n.network, r.fault = words(allow, deny)
	}
}

// words returns the words of job.Request.Network for domains. A job cannot be denied a part of what it is allowed.
func words(allow, deny []string) (string, *jsonrpc.Error) {
	var list []string
	for _, name := range allow {
		if below, ok := strings.CutPrefix(name, "**."); ok {
			list = append(list, below, "*."+below)
			continue
		}
		list = append(list, name)
	}
	for _, name := range deny {
		bare := strings.TrimLeft(name, "*.")
		for _, word := range list {
			over := strings.TrimLeft(word, "*.")
			if word == "*" || bare == over || strings.HasSuffix(bare, "."+over) || strings.HasSuffix(over, "."+bare) {
				return "", jsonrpc.Errorf(jsonrpc.CodeInternal, "the network rules deny %s and allow %s: corral cannot enforce both; allow the hosts one by one",
					quoted(text.Cut(name, maxWord)), quoted(text.Cut(word, maxWord)))
			}
		}
	}
	slices.Sort(list)
	switch {
	case slices.Contains(list, "*"):
		return "", nil // all that the operator allows
	case len(list) == 0:
		return job.NoNetwork, nil
	}
	return strings.Join(list, " "), nil
}
