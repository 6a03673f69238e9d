package mcp

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

	"corral/internal/strictjson"
)

const (
	// endPatience is how long calls may take to end, and answers to be read, once the server is told to end.
	endPatience = time.Second
	// answerTime is how long calls may go on when the client has closed the input.
	answerTime = 30 * time.Second
	// maxBatch is how many messages a batch may have.
	maxBatch = 64
)

// ServeStdio serves one client that writes lines to in and reads lines from out, until the client closes in, out can not
// be written, or ctx ends. c says who the client is; its Session is made here when it is "".
//
// At the end of in the requests that were read are still answered, since `printf … | corral mcp` wants to see answers:
// ServeStdio returns when they are, and cancels those that take longer than 30 seconds from then: a host that was killed may
// leave out open in a process of its own. One whose end of out is closed, too, ends the calls at once. When ctx ends, calls have a second to end in and answers to be read.
//
// The error is nil at the end of in, ctx's own when that ended, else what went wrong with in or out. A goroutine that is
// still in a read or write of in or out is left behind: to end a blocked one is the caller's, by closing the file.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer, c Caller) error {
	if c.Session == "" {
		c.Session = randomHex(16)
	}
	parent := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &line{s: s, caller: c, out: newOutbox(out)}
	go l.out.run()
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
		select { // the answers to what was read
		case <-l.calls.idle():
		case <-timer.C:
		case <-hungUp(ctx, out): // to write what nobody reads would be answered with a SIGPIPE
			l.out.fail(syscall.EPIPE)
		case <-l.out.done:
		case <-ctx.Done():
		}
	case <-l.out.done:
	case <-ctx.Done():
	}
	l.end(cancel)
	s.ended(c.Principal, c.Session)
	if failure := l.out.failure(); failure != nil {
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
	caller  Caller
	out     *outbox
	calls   inflight
	version atomic.Pointer[string] // that initialize agreed on
}

// end cancels what is under way, and gives it and the last answers a second.
func (l *line) end(cancel context.CancelCauseFunc) {
	timer := time.NewTimer(endPatience)
	defer timer.Stop()
	l.calls.close()
	cancel(errors.New("the server ends"))
	select {
	case <-l.calls.idle():
	case <-timer.C:
		return
	}
	l.out.close()
	select {
	case <-l.out.done:
	case <-timer.C:
	}
}

// read serves what comes in, until it ends, and then says why. Who has read a request serves it, and has another goroutine
// read on: the request is on a processor already.
func (l *line) read(ctx context.Context, lines *lineReader, ended chan<- error) {
	for l.out.waitRoom(ctx) {
		data, err := lines.next()
		var long *tooLongError
		switch {
		case errors.As(err, &long):
			l.out.put(long.id, errorOf(long.id, refused(codeRequest, "%v", long)))
		case err != nil:
			ended <- err
			return
		default:
			if serve := l.take(ctx, data); serve != nil {
				go l.read(ctx, lines, ended)
				serve()
				return
			}
		}
	}
	ended <- nil
}

// take serves one line, but for a request that may take its time: serve does.
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
		case reading: // others wait to be read
			l.out.put(id, answer)
		default:
			l.out.send(id, answer)
		}
	})
	reading = false
	return serve
}

// one serves one message, but for a request that may take its time, which serve is to serve. done gets its answer, nil
// when there is none to be sent; it is called once.
func (l *line) one(ctx context.Context, data []byte, done func(id json.RawMessage, answer []byte)) (serve func()) {
	m, err := parseMessage(data)
	switch {
	case err != nil:
		done(m.id, errorOf(m.id, err))
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

// request serves a request that is initialize in its turn, as the version it agrees on matters to what follows. All others
// are for serve, each in a goroutine of its own, which l.calls knows of.
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
	if ctx.Err() != nil { // cancelled before it began
		answer := errorOf(m.id, refused(codeBusy, "%v", context.Cause(ctx)))
		return l.s.unserved(ctx, m, l.caller, answer, fmt.Sprint(codeBusy))
	}
	r := l.s.answer(ctx, m, l.caller, l.out.note)
	if r.version != "" {
		l.version.Store(&r.version)
	}
	return r.data
}

// busy is the answer to a request that there is no room for: a call gets it as the result of its tool.
func (s *Server) busy(ctx context.Context, m *message, c Caller, err *rpcError) []byte {
	if !m.isCall() || err.Code != codeBusy {
		return s.unserved(ctx, m, c, errorOf(m.id, err), fmt.Sprint(err.Code))
	}
	k := &call{message: m, result: ToolResult{
		Structured: &Error{Code: CodeUnavailable, Message: err.Message}, IsError: true,
	}}
	var like sdk.CallToolResult
	if m.modern() {
		like.ResultType = sdk.ResultTypeComplete
	}
	return s.unserved(ctx, m, c, k.encodeResult(like), CodeUnavailable)
}

// batch serves an array of messages; their answers are one array. Only the versions up to 2025-03-26 have batches.
func (l *line) batch(ctx context.Context, data []byte) {
	refuse := func(code int, format string, values ...any) {
		l.out.put(nil, errorOf(nil, refused(code, format, values...)))
	}
	if f := strictjson.Syntax(data); f != nil {
		refuse(codeParse, "%v", f)
		return
	}
	if version := l.version.Load(); version == nil || *version > sdk.ProtocolVersion20250326 {
		refuse(codeRequest, "batches ended with protocol version %s: send each message by itself", sdk.ProtocolVersion20250326)
		return
	}
	list := strictjson.Elements(data, maxBatch)
	if len(list) == 0 || len(list) > maxBatch {
		refuse(codeRequest, "a batch has 1 to %d messages", maxBatch)
		return
	}
	a := &answers{left: len(list), out: l.out}
	for _, element := range list {
		if serve := l.one(ctx, element, a.add); serve != nil {
			go serve()
		}
	}
}

// answers are those to a batch.
type answers struct {
	out  *outbox
	mu   sync.Mutex
	list [][]byte // guarded by mu
	size int      // guarded by mu: bytes in list
	left int      // guarded by mu: messages without one
}

// add takes an answer, and sends them all when it is the last. Those that are too long together go one by one.
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
	case a.size >= maxMessage:
		for _, one := range a.list {
			a.out.put(nil, one)
		}
	default:
		a.out.put(nil, bytes.Join([][]byte{{'['}, bytes.Join(a.list, []byte{','}), {']'}}, nil))
	}
}
