package rpc

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"time"

	"corral/job"
)

const (
	defaultCap     = 1 << 20 // bytes of one stream
	defaultTimeout = 10 * time.Second
	noCap          = math.MaxInt64
)

// defaultSize is a terminal's whose client does not name one.
var defaultSize = job.Size{Rows: 24, Cols: 80}

// A launch is what a client asks for when it starts a process.
type launch struct {
	family  *family
	request job.Request
	engine  Engine
	dir     string // absolute
	id      string // what the client calls the process
	named   bool   // it has a name for it
	stdin   bool   // input is streamed
	stream  bool   // output is streamed
	cap     int64  // bytes of each stream that are passed on
	tty     bool
}

// exec is command/exec.
func (c *client) exec(f *family, m *message) *fault {
	r := read(m.params)
	l := &launch{family: f, engine: c.s.Engine, cap: defaultCap}
	l.readCommon(r, r.must("command"))
	if raw := r.has(f.id); raw != nil {
		l.id, l.named = r.name(f.id, raw), true
	}
	capped, hasCap := r.count("outputBytesCap")
	timeout, hasTimeout := r.integer("timeoutMs")
	uncapped, endless := r.flag("disableOutputCap"), r.flag("disableTimeout")
	l.dir = c.s.absolute(r.text("cwd", r.has("cwd")))
	size, hasSize := r.terminal()
	policy := r.policy()
	profile := r.has("permissionProfile") != nil
	if r.fault != nil {
		return r.fault
	}
	switch {
	case len(l.request.Command) == 0:
		return faultOf(codeRequest, "command must not be empty")
	case (l.stdin || l.stream) && !l.named:
		return faultOf(codeRequest, "command/exec tty or streaming requires a client-supplied processId")
	}
	if fault := l.setSize(size, hasSize); fault != nil {
		return fault
	}
	switch {
	case endless && hasTimeout:
		return faultOf(codeParams, "command/exec cannot set both timeoutMs and disableTimeout")
	case uncapped && hasCap:
		return faultOf(codeParams, "command/exec cannot set both outputBytesCap and disableOutputCap")
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
		return faultOf(codeRequest, "`permissionProfile` cannot be combined with `sandboxPolicy`")
	case profile:
		return faultOf(codeRequest, "`permissionProfile` is not supported: name a `sandboxPolicy`")
	}
	if fault := c.apply(policy, l); fault != nil {
		return fault
	}
	return c.start(l, m)
}

// spawn is process/spawn. It names no sandbox policy: the repository's own settings hold.
func (c *client) spawn(f *family, m *message) *fault {
	r := read(m.params)
	l := &launch{family: f, engine: c.s.Engine, cap: defaultCap, named: true}
	l.readCommon(r, r.must("command"))
	l.id = r.name(f.id, r.must(f.id))
	// Here null is not none: it lifts what holds by default.
	capped, hasCap := r.count("outputBytesCap")
	timeout, hasTimeout := r.integer("timeoutMs")
	endless := r.isNull("timeoutMs")
	dir := r.text("cwd", r.must("cwd"))
	size, hasSize := r.terminal()
	switch {
	case r.fault != nil:
		return r.fault
	case !filepath.IsAbs(dir):
		return invalid("`cwd` is not an absolute path")
	case len(l.request.Command) == 0:
		return faultOf(codeRequest, "command must not be empty")
	case l.id == "":
		return faultOf(codeRequest, "processHandle must not be empty")
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

// readCommon reads what both methods have.
func (l *launch) readCommon(r *reader, command json.RawMessage) {
	l.request.Command = r.texts("command", command)
	l.tty = r.flag("tty")
	l.stdin = r.flag("streamStdin") || l.tty
	l.stream = r.flag("streamStdoutStderr") || l.tty
	l.request.Env = r.variables("env")
}

// terminal reads the size of a terminal.
func (r *reader) terminal() (size job.Size, given bool) {
	raw := r.has("size")
	if raw == nil {
		return job.Size{}, false
	}
	return r.size("size", raw), true
}

func (l *launch) setSize(size job.Size, given bool) *fault {
	if given && !l.tty {
		return faultOf(codeParams, "%s", l.family.noSize)
	}
	if given {
		if f := l.family.goodSize(size); f != nil {
			return f
		}
	}
	switch {
	case given:
		l.request.Terminal = size
	case l.tty:
		l.request.Terminal = defaultSize
	}
	l.request.Streamed = l.stdin && !l.tty
	return nil
}

// setTimeout asks for no more than is asked of it: what nobody names may be lowered by the operator.
func (l *launch) setTimeout(ms int64, given, endless bool) *fault {
	const most = int64(365 * 24 * time.Hour / time.Millisecond) // job.Limits has no longer one
	switch {
	case given && ms < 0:
		return faultOf(codeParams, "%s timeoutMs must be non-negative, got %d", l.family.name, ms)
	case given:
		l.request.Limits.Wall = time.Duration(min(max(ms, 1), most)) * time.Millisecond
	case endless:
		l.request.Limits.Wall = job.Unlimited
	default:
		l.request.Usual.Wall = defaultTimeout
	}
	return nil
}

// write is command/exec/write.
func (c *client) write(f *family, m *message) *fault {
	r := read(m.params)
	id := r.name(f.id, r.must(f.id))
	delta := r.has("deltaBase64")
	text := r.text("deltaBase64", delta)
	last := r.flag("closeStdin")
	if r.fault != nil {
		return r.fault
	}
	if delta == nil && !last {
		return faultOf(codeParams, "%s", f.noInput)
	}
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	if n := strings.IndexAny(text, "\r\n"); n >= 0 { // which the decoder passes over
		err = base64.CorruptInputError(n)
	}
	if err != nil {
		return faultOf(codeParams, "invalid deltaBase64: %v", err)
	}
	p, fault := c.find(f, id)
	if fault != nil {
		return fault
	}
	return p.write(m.id, data, last)
}

// resize is command/exec/resize.
func (c *client) resize(f *family, m *message) *fault {
	r := read(m.params)
	id := r.name(f.id, r.must(f.id))
	size := r.size("size", r.must("size"))
	if r.fault != nil {
		return r.fault
	}
	if fault := f.goodSize(size); fault != nil {
		return fault
	}
	p, fault := c.find(f, id)
	if fault != nil {
		return fault
	}
	if !p.tty {
		return faultOf(codeRequest, "failed to resize PTY: process is not attached to a PTY")
	}
	p.screen.resize(size)
	c.reply(m.id, empty{})
	return nil
}

// terminate is command/exec/terminate.
func (c *client) terminate(f *family, m *message) *fault {
	r := read(m.params)
	id := r.name(f.id, r.must(f.id))
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
