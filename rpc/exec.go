package rpc

import (
	"encoding/base64"
	"path/filepath"
	"strings"

	"corral/internal/jsonrpc"
	"corral/internal/text"
	"corral/job"
)

// exec serves command/exec.
func (c *client) exec(f *family, m *message) *jsonrpc.Error {
	r := read(m.params)
	l := newLaunch(c.s, f)
	l.readCommon(r, r.required("command"))
	if raw := r.optional(f.id); raw != nil {
		l.id, l.named = r.name(f.id, raw), true
	}
	capped, hasCap := r.count("outputBytesCap")
	timeout, hasTimeout := r.integer("timeoutMs")
	uncapped, endless := r.boolean("disableOutputCap"), r.boolean("disableTimeout")
	l.dir = c.s.absolute(r.text("cwd", r.optional("cwd")))
	size, hasSize := r.terminal()
	policy := r.policy()
	profile := r.optional("permissionProfile") != nil
	if r.fault != nil {
		return r.fault
	}
	switch {
	case len(l.request.Command) == 0:
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "command must not be empty")
	case (l.stdin || l.stream) && !l.named:
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "command/exec tty or streaming requires a client-supplied processId")
	}
	if fault := l.setSize(size, hasSize); fault != nil {
		return fault
	}
	switch {
	case endless && hasTimeout:
		return jsonrpc.Errorf(jsonrpc.CodeParams, "command/exec cannot set both timeoutMs and disableTimeout")
	case uncapped && hasCap:
		return jsonrpc.Errorf(jsonrpc.CodeParams, "command/exec cannot set both outputBytesCap and disableOutputCap")
	}
	if fault := l.setTimeout(timeout, hasTimeout, endless); fault != nil {
		return fault
	}
	switch {
	case hasCap:
		l.cap = capped
	case uncapped:
		l.cap = noCap
	}
	switch {
	case profile && policy.kind != "":
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "`permissionProfile` cannot be combined with `sandboxPolicy`")
	case profile:
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "`permissionProfile` is not supported: use `sandboxPolicy`")
	}
	if fault := l.apply(policy, &c.who); fault != nil {
		return fault
	}
	return c.start(l, m)
}

// spawn serves process/spawn, which has no sandboxPolicy: the repository's settings apply.
func (c *client) spawn(f *family, m *message) *jsonrpc.Error {
	r := read(m.params)
	l := newLaunch(c.s, f)
	l.named = true
	l.readCommon(r, r.required("command"))
	l.id = r.name(f.id, r.required(f.id))
	// Unlike elsewhere, null differs from an absent field: it disables the default.
	capped, hasCap := r.count("outputBytesCap")
	timeout, hasTimeout := r.integer("timeoutMs")
	endless := r.isNull("timeoutMs")
	dir := r.text("cwd", r.required("cwd"))
	size, hasSize := r.terminal()
	switch {
	case r.fault != nil:
		return r.fault
	case !filepath.IsAbs(dir):
		return invalid("`cwd` must be an absolute path, got %s", quoted(text.Cut(dir, maxWord)))
	case len(l.request.Command) == 0:
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "command must not be empty")
	case l.id == "":
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "processHandle must not be empty")
	}
	l.dir = filepath.Clean(dir)
	if fault := l.setSize(size, hasSize); fault != nil {
		return fault
	}
	if fault := l.setTimeout(timeout, hasTimeout, endless); fault != nil {
		return fault
	}
	switch {
	case hasCap:
		l.cap = capped
	case r.isNull("outputBytesCap"):
		l.cap = noCap
	}
	return c.start(l, m)
}

// terminal reads the size of a terminal.
func (r *reader) terminal() (size job.Size, given bool) {
	raw := r.optional("size")
	if raw == nil {
		return job.Size{}, false
	}
	return r.size("size", raw), true
}

// write serves command/exec/write and process/writeStdin.
func (c *client) write(f *family, m *message) *jsonrpc.Error {
	r := read(m.params)
	id := r.name(f.id, r.required(f.id))
	delta := r.optional("deltaBase64")
	text := r.text("deltaBase64", delta)
	last := r.boolean("closeStdin")
	if r.fault != nil {
		return r.fault
	}
	if delta == nil && !last {
		return jsonrpc.Errorf(jsonrpc.CodeParams, "%s", f.noInput)
	}
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	if n := strings.IndexAny(text, "\r\n"); n >= 0 { // the decoder ignores line breaks
		err = base64.CorruptInputError(n)
	}
	if err != nil {
		return jsonrpc.Errorf(jsonrpc.CodeParams, "invalid deltaBase64: %v", err)
	}
	p, fault := c.find(f, id)
	if fault != nil {
		return fault
	}
	return p.write(m.id, data, last)
}

// resize serves command/exec/resize and process/resizePty.
func (c *client) resize(f *family, m *message) *jsonrpc.Error {
	r := read(m.params)
	id := r.name(f.id, r.required(f.id))
	size := r.size("size", r.required("size"))
	if r.fault != nil {
		return r.fault
	}
	if fault := f.checkSize(size); fault != nil {
		return fault
	}
	p, fault := c.find(f, id)
	if fault != nil {
		return fault
	}
	if !p.tty {
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "failed to resize PTY: process is not attached to a PTY")
	}
	p.screen.resize(size)
	c.reply(m.id, empty{})
	return nil
}

// terminate serves command/exec/terminate and process/kill.
func (c *client) terminate(f *family, m *message) *jsonrpc.Error {
	r := read(m.params)
	id := r.name(f.id, r.required(f.id))
	if r.fault != nil {
		return r.fault
	}
	p, fault := c.find(f, id)
	if fault != nil {
		return fault
	}
	c.reply(m.id, empty{})
	p.cancel(errTerminated)
	return nil
}
