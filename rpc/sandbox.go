package rpc

import (
	"path/filepath"

	"corral/internal/jsonrpc"
	"corral/internal/text"
	"corral/job"
)

// A sandbox is the sandboxPolicy of a request.
type sandbox struct {
	kind    string // sandboxPolicy.type; "" without a sandboxPolicy
	network bool
	// restricted reports a request for less read access than every job has here.
	restricted bool
	writable   []string
}

// Values of sandboxPolicy.type.
const (
	readOnly       = "readOnly"
	workspaceWrite = "workspaceWrite"
	external       = "externalSandbox"
	fullAccess     = "dangerFullAccess"
)

// policy reads a sandboxPolicy. The fields that exclude /tmp are ignored: each job has its own /tmp anyway.
func (r *reader) policy() sandbox {
	raw := r.optional("sandboxPolicy")
	if raw == nil {
		return sandbox{}
	}
	in := r.object("sandboxPolicy", raw)
	s := sandbox{kind: in.text("sandboxPolicy.type", in.required("type"))}
	switch s.kind {
	case external:
		s.network = in.text("sandboxPolicy.networkAccess", in.optional("networkAccess")) == "enabled"
	case readOnly, workspaceWrite:
		s.network = in.boolean("networkAccess")
		s.writable = in.stringArray("sandboxPolicy.writableRoots", in.optional("writableRoots"))
		for _, name := range []string{"access", "readOnlyAccess"} {
			if raw := in.optional(name); raw != nil {
				access := in.object("sandboxPolicy."+name, raw)
				s.restricted = s.restricted || access.text(name+".type", access.required("type")) != "fullAccess"
				in.inherit(access)
			}
		}
	case fullAccess:
	default:
		in.fail(invalid("unknown type `%s` of `sandboxPolicy`: use %s or %s", text.Line(s.kind, maxWord), readOnly, workspaceWrite))
	}
	r.inherit(in)
	return s
}

// apply sets up a launch as its sandboxPolicy says. It refuses a policy if any part of it cannot be enforced.
func (l *launch) apply(p sandbox, who *Caller) *jsonrpc.Error {
	if p.restricted {
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "sandboxPolicy restricted read access is not supported: a job can read its repository and the system directories; use type fullAccess, or leave it out")
	}
	switch {
	case p.network: // which hosts, the operator says
		l.request.NeedsNetwork = true
	case p.kind != fullAccess:
		l.request.Network = job.NoNetwork
	}
	switch p.kind {
	case external:
		return l.useMapped(l.access.External, p.kind)
	case fullAccess:
		return l.useMapped(l.access.FullAccess, p.kind)
	case workspaceWrite:
		workspace := job.Direct
		l.request.Workspace, l.request.Protect = &workspace, job.ProtectAll
		return l.checkWritable(p.writable, who)
	}
	workspace := job.ReadOnly
	l.request.Workspace = &workspace
	return nil
}

// useMapped serves a policy that asks to leave the sandbox with the engine that the operator maps it to.
func (l *launch) useMapped(e Engine, kind string) *jsonrpc.Error {
	if e == nil {
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "sandboxPolicy %s is refused: the configuration does not map it to a profile (exec_server.full_access); use readOnly or workspaceWrite", kind)
	}
	l.engine = e
	return nil
}

// checkWritable refuses writable roots outside of the repository that contains the working directory, since no job can write there.
func (l *launch) checkWritable(roots []string, who *Caller) *jsonrpc.Error {
	repo, _, ok := l.access.locate(who, l.dir)
	if !ok {
		return nil // the policy refuses the request
	}
	for _, root := range roots {
		if !filepath.IsAbs(root) {
			return invalid("`sandboxPolicy.writableRoots` must be absolute paths, got %s", quoted(text.Cut(root, maxWord)))
		}
		if _, in := within(repo.Path, filepath.Clean(root)); !in {
			return jsonrpc.Errorf(jsonrpc.CodeRequest, "sandboxPolicy writableRoots: %s is not in the repository of the cwd, %s", quoted(text.Cut(root, maxWord)), quoted(repo.Path))
		}
	}
	return nil
}
