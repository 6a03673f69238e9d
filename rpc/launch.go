package rpc

import (
	"encoding/json"
	"math"
	"time"

	"corral/internal/jsonrpc"
	"corral/job"
)

// A launch is a client's request to start a process.
type launch struct {
	family  *family
	request job.Request
	access  *Access // for the whole request
	engine  Engine
	dir     string // absolute
	removed bool   // dir is in a repository that is not served any more
	usable  string // where dir may be, for people, if it is in no repository
	id      string // the client's id of the process
	named   bool   // id was given
	stdin   bool   // input is streamed
	stream  bool   // output is streamed
	cap     int64  // maximum number of bytes of each stream that are forwarded or kept
	tty     bool
	file    string // an operation on files, "" if it is none
	quiet   bool   // no model reads the output
	repo    string // path of the repository, of the environment protocol
}

// newLaunch returns a launch with the access of this moment.
func newLaunch(s *Server, f *family) *launch {
	a := s.access()
	return &launch{family: f, access: a, engine: a.Engine, cap: defaultCap}
}

// readCommon reads the parameters that both methods have.
func (l *launch) readCommon(r *reader, command json.RawMessage) {
	l.request.Command = r.stringArray("command", command)
	l.tty = r.boolean("tty")
	l.stdin = r.boolean("streamStdin") || l.tty
	l.stream = r.boolean("streamStdoutStderr") || l.tty
	l.request.Env = r.environment("env")
}

func (l *launch) setSize(size job.Size, given bool) *jsonrpc.Error {
	if given && !l.tty {
		return jsonrpc.Errorf(jsonrpc.CodeParams, "%s", l.family.noSize)
	}
	if given {
		if f := l.family.checkSize(size); f != nil {
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

// setTimeout sets the timeout. The operator may lower a default without an error, but not a timeout that the client gave:
// so a default goes into Usual instead of Limits.
func (l *launch) setTimeout(ms int64, given, endless bool) *jsonrpc.Error {
	const maxMs = int64(365 * 24 * time.Hour / time.Millisecond) // maximum of job.Limits
	switch {
	case given && ms < 0:
		return jsonrpc.Errorf(jsonrpc.CodeParams, "%s timeoutMs must be non-negative, got %d", l.family.name, ms)
	case given:
		l.request.Limits.Wall = time.Duration(min(max(ms, 1), maxMs)) * time.Millisecond
	case endless:
		l.request.Limits.Wall = job.Unlimited
	default:
		l.request.Usual.Wall = defaultTimeout
	}
	return nil
}

// defaultSize is the size of a terminal if the client does not name one.
var defaultSize = job.Size{Rows: 24, Cols: 80}

const (
	defaultCap     = 1 << 20 // bytes of each stream
	defaultTimeout = 10 * time.Second
	noCap          = math.MaxInt64
)
