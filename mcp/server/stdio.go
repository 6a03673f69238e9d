package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sdk "github.com/mark3labs/mcp-go/mcp"

	"corral/internal/calls"
	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
	"corral/mcp/tool"
)

const (
	// shutdownTimeout is how long ServeStdio and Serve wait, after their context ended, for calls to return
	// and responses to be read.
	shutdownTimeout = time.Second

	// maxBatch is the maximum number of messages in a batch.
	maxBatch = 64
)

// ServeStdio serves one client that writes lines to in and reads lines from out, until in ends, writing to out fails, or ctx
// ends. c is the client; if its Session is "", ServeStdio sets one.
//
// At the end of in, requests that were read still get responses, so that `printf … | corral mcp` prints them. ServeStdio
// returns after the last one, and cancels calls that take longer than 30 seconds: when a host is killed, another process may
// still hold its end of out open. If that end is closed too, calls are cancelled at once. When ctx ends, calls have one
// second to return and for their responses to be read.
//
// The error is nil at the end of in, ctx.Err() if ctx ended, else the error of in or out. A goroutine blocked in a read of in
// or a write to out is left behind; the caller can end it by closing the file.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer, c tool.Caller) error {
	if c.Session == "" {
		c.Session = calls.RandomHex(16)
	}
	c.Defaults = &tool.Defaults{}
	parent := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &line{s: s, caller: c, out: newOutbox(out)}
	go l.out.Run()
	ready, unready := whenReady(in)
	defer unready()
	read := make(chan error, 1)
	go l.read(ctx, newLineReader(ready, maxLine), read)

	var err error
	select {
	case err = <-read:
		l.calls.close()
		timer := time.NewTimer(s.answerTime)
		defer timer.Stop()
		select { // wait for responses to the requests that were read
		case <-l.calls.idle():
		case <-timer.C:
		case <-hungUp(ctx, out): // writing to a closed pipe would raise SIGPIPE
			l.out.Fail(syscall.EPIPE)
		case <-l.out.Done():
		case <-ctx.Done():
		}
	case <-l.out.Done():
	case <-ctx.Done():
	}
	l.end(cancel)
	s.ended(c.Principal, c.Session)
	if failure := l.out.Failure(); failure != nil {
		return fmt.Errorf("write to the client: %w", failure)
	}
	if err == nil || errors.Is(err, io.EOF) {
		return parent.Err()
	}
	return fmt.Errorf("read from the client: %w", err)
}

// A line is a client's connection over stdio.
type line struct {
	s       *Server
	caller  tool.Caller
	out     *jsonrpc.Outbox
	calls   inflight
	version atomic.Pointer[string] // negotiated by initialize
}

// end cancels the requests in flight, and waits up to shutdownTimeout for them and for the last responses to be written.
func (l *line) end(cancel context.CancelCauseFunc) {
	timer := time.NewTimer(shutdownTimeout)
	defer timer.Stop()
	l.calls.close()
	cancel(errors.New("the server is shutting down"))
	select {
	case <-l.calls.idle():
	case <-timer.C:
		return
	}
	l.out.Close()
	select {
	case <-l.out.Done():
	case <-timer.C:
	}
}

// read serves messages until the input ends, and sends its error, or nil, to ended. The goroutine that read a request serves
// it itself, because it is running already, and starts a new one to read on.
func (l *line) read(ctx context.Context, lines *lineReader, ended chan<- error) {
	for l.out.WaitBelow(ctx, maxWaitingRead) {
		data, err := lines.next()
		var long *tooLongError
		switch {
		case errors.As(err, &long):
			l.put(long.id, dialect.Error(long.id, jsonrpc.Errorf(jsonrpc.CodeRequest, "%v", long)))
		case err != nil:
			ended <- err
			return
		default:
			if before := l.s.options.Before; before != nil {
				before()
			}
			if serve := l.take(ctx, data); serve != nil {
				go l.read(ctx, lines, ended)
				serve()
				return
			}
		}
	}
	ended <- nil
}

// take serves one line. A request that may take long is not served but returned as serve.
func (l *line) take(ctx context.Context, data []byte) (serve func()) {
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0:
		return nil
	case data[0] == '[':
		l.batch(ctx, data)
		return nil
	}
	reading := true
	serve = l.one(ctx, data, func(id json.RawMessage, answer []byte) {
		switch {
		case answer == nil:
		case reading: // more requests may be waiting to be read, so do not block
			l.put(id, answer)
		default:
			l.send(id, answer)
		}
	})
	reading = false
	return serve
}

// one serves one message. A request that may take long is not served but returned as serve. done is called once, with the
// response or with nil if there is none.
func (l *line) one(ctx context.Context, data []byte, done func(id json.RawMessage, answer []byte)) (serve func()) {
	m, err := parseMessage(data)
	switch {
	case err != nil:
		done(m.id, dialect.Error(m.id, err))
	case m.id == nil || m.method == "":
		if m.method == string(sdk.MethodNotificationCancelled) {
			l.calls.cancel(m.cancels)
		}
		done(nil, nil)
	default:
		return l.request(ctx, m, len(data), done)
	}
	return nil
}

// request serves initialize at once, because the messages that follow depend on the version it negotiates. For other requests
// it returns serve, to be called in a goroutine that l.calls accounts for.
func (l *line) request(ctx context.Context, m *message, size int, done func(json.RawMessage, []byte)) (serve func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if err := l.calls.add(m.id, size, cancel); err != nil {
		cancel(nil)
		done(m.id, l.s.busy(ctx, m, l.caller, err))
		return nil
	}
	serve = func() {
		defer l.calls.release(size)
		defer cancel(nil)
		answer := l.serve(ctx, m)
		l.calls.finish(m.id)
		if errors.Is(context.Cause(ctx), errCancelled) {
			answer = nil
		}
		done(m.id, answer)
	}
	if m.method == string(sdk.MethodInitialize) {
		serve()
		return nil
	}
	return serve
}

func (l *line) serve(ctx context.Context, m *message) []byte {
	if ctx.Err() != nil { // cancelled before it was served
		answer := dialect.Error(m.id, jsonrpc.Errorf(codeBusy, "%v", context.Cause(ctx)))
		return l.s.refuseCall(ctx, m, l.caller, answer, fmt.Sprint(codeBusy))
	}
	r := l.s.answer(ctx, m, l.caller, l.note)
	if r.version != "" {
		l.version.Store(&r.version)
	}
	return r.data
}

// busy returns the response to a request that exceeds a limit. A call gets a tool error, which models see.
func (s *Server) busy(ctx context.Context, m *message, c tool.Caller, err *jsonrpc.Error) []byte {
	if !m.isCall() || err.Code != codeBusy {
		return s.refuseCall(ctx, m, c, dialect.Error(m.id, err), fmt.Sprint(err.Code))
	}
	k := &call{message: m, result: tool.Result{
		Structured: &tool.Error{Code: tool.CodeUnavailable, Message: err.Message}, IsError: true,
	}}
	return s.refuseCall(ctx, m, c, k.encodeResult(s.tail(m)), tool.CodeUnavailable)
}

// batch serves an array of messages and responds with one array. Only protocol versions up to 2025-03-26 have batches.
func (l *line) batch(ctx context.Context, data []byte) {
	refuse := func(code int, format string, values ...any) {
		l.put(nil, dialect.Error(nil, jsonrpc.Errorf(code, format, values...)))
	}
	if f := strictjson.Syntax(data); f != nil {
		refuse(jsonrpc.CodeParse, "%v", f)
		return
	}
	if version := l.version.Load(); version == nil || *version > sdk.ProtocolVersion20250326 {
		refuse(jsonrpc.CodeRequest, "batches were removed after protocol version %s: send one message per line", sdk.ProtocolVersion20250326)
		return
	}
	list := strictjson.Elements(data, maxBatch)
	if len(list) == 0 || len(list) > maxBatch {
		refuse(jsonrpc.CodeRequest, "a batch must have 1 to %d messages", maxBatch)
		return
	}
	a := &answers{left: len(list), l: l}
	for _, element := range list {
		if serve := l.one(ctx, element, a.add); serve != nil {
			go serve()
		}
	}
}

// answers collects the responses to a batch.
type answers struct {
	l    *line
	mu   sync.Mutex
	list [][]byte // guarded by mu
	size int      // guarded by mu: bytes in list
	left int      // guarded by mu: messages not served yet
}

// add adds a response, nil for none, and sends all after the last. If they are too long for one message, each is sent
// separately.
func (a *answers) add(_ json.RawMessage, answer []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if answer != nil {
		a.list = append(a.list, answer)
		a.size += len(answer) + 1
	}
	a.left--
	switch {
	case a.left > 0 || len(a.list) == 0:
	case a.size >= tool.MaxMessage:
		for _, one := range a.list {
			a.l.put(nil, one)
		}
	default:
		a.l.put(nil, bytes.Join([][]byte{{'['}, bytes.Join(a.list, []byte{','}), {']'}}, nil))
	}
}
