package rpc

import (
	"path/filepath"

	"corral/internal/text"
	"corral/job"
)

// A sandbox is the sandboxPolicy of a request.
type sandbox struct {
	kind    string // its type; "" if there is none
	network bool
	// restricted asks for less to be read than a job can read here.
	restricted bool
	writable   []string
}

// Types of a sandboxPolicy.
const (
	readOnly       = "readOnly"
	workspaceWrite = "workspaceWrite"
	external       = "externalSandbox"
	fullAccess     = "dangerFullAccess"
)

// policy reads a sandboxPolicy. That /tmp is to be left out is always so: a job's is its own.
func (r *reader) policy() sandbox {
	raw := r.has("sandboxPolicy")
	if raw == nil {
		return sandbox{}
	}
	in := r.object("sandboxPolicy", raw)
	s := sandbox{kind: in.text("sandboxPolicy.type", in.must("type"))}
	switch s.kind {
	case external:
		s.network = in.text("sandboxPolicy.networkAccess", in.has("networkAccess")) == "enabled"
	case readOnly, workspaceWrite:
		s.network = in.flag("networkAccess")
		s.writable = in.texts("sandboxPolicy.writableRoots", in.has("writableRoots"))
		for _, name := range []string{"access", "readOnlyAccess"} {
			if raw := in.has(name); raw != nil {
				access := in.object("sandboxPolicy."+name, raw)
				s.restricted = s.restricted || access.text(name+".type", access.must("type")) != "fullAccess"
				in.inherit(access)
			}
		}
	case fullAccess:
	default:
		in.fail(invalid("unknown type `%s` of `sandboxPolicy`", text.Line(s.kind, maxWord)))
	}
	r.inherit(in)
	return s
}

// apply makes a launch what its policy says, or says why not. Nothing that cannot be held is left out.
func (c *client) apply(s sandbox, l *launch) *fault {
	switch {
	case s.network:
		return faultOf(codeRequest, "sandboxPolicy networkAccess is not supported: a job has no network")
	case s.restricted:
		return faultOf(codeRequest, "sandboxPolicy restricted read access is not supported: a job reads its repository and the system's directories")
	}
	switch s.kind {
	case external:
		return l.mapped(c.s.External, s.kind)
	case fullAccess:
		return l.mapped(c.s.FullAccess, s.kind)
	case workspaceWrite:
		workspace := job.Direct
		l.request.Workspace, l.request.Protect = &workspace, job.ProtectAll
		return c.writable(s.writable, l.dir)
	}
	workspace := job.ReadOnly
	l.request.Workspace = &workspace
	return nil
}

// mapped is for what asks to leave the sandbox: it gets what the operator has for it.
func (l *launch) mapped(e Engine, kind string) *fault {
	if e == nil {
		return faultOf(codeRequest, "sandboxPolicy %s is refused: the configuration maps it to no profile", kind)
	}
	l.engine = e
	return nil
}

// writable refuses roots outside of the repository of dir: nothing else can be written to.
func (c *client) writable(roots []string, dir string) *fault {
	repo, _, ok := c.s.place(&c.who, dir)
	if !ok {
		return nil // which is refused by itself
	}
	for _, root := range roots {
		if !filepath.IsAbs(root) {
			return invalid("`sandboxPolicy.writableRoots` has a path that is not absolute")
		}
		if _, in := within(repo.Path, filepath.Clean(root)); !in {
			return faultOf(codeRequest, "sandboxPolicy writableRoots: %s is not in the repository of the cwd, which is %s", quoted(text.Cut(root, maxWord)), quoted(repo.Path))
		}
	}
	return nil
}
