package rpc

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"

	"corral/internal/calls"
	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
	"corral/job"
)

// spawnTimeout is how long the response to process/spawn is held back until the process has written output or was
// refused. A refusal after that is reported in process/exited.
const spawnTimeout = 100 * time.Millisecond

// A process is a job that a client started.
type process struct {
	launch
	c         *client
	key       handle
	requestID json.RawMessage // id of the request that started it
	to        *jsonrpc.Outbox // of the connection that waits for the answer to that
	cancel    context.CancelCauseFunc
	out       *output
	input     *input // nil unless input is streamed
	screen    *screen
	events    events // of the environment protocol
	call      *calls.Call

	answered bool // guarded by c.mu: process/spawn was answered
}

// start registers and runs a process for l. From then on the client can refer to it by its id.
func (c *client) start(l *launch, m *message) *jsonrpc.Error {
	if fault := c.fill(l); fault != nil {
		return fault
	}
	return c.launch(l, m)
}

// launch registers and runs a process for l, which is filled.
func (c *client) launch(l *launch, m *message) *jsonrpc.Error {
	l.request.ID = m.trace.ID
	ctx, cancel := context.WithCancelCause(c.ctx)
	p := &process{launch: *l, c: c, requestID: m.id, to: c.out.Load(), cancel: cancel}
	p.out, p.screen = newOutput(p), &screen{}
	if p.stdin {
		p.input = newInput(c.s, c.who.Principal)
	}
	if fault := c.register(p); fault != nil {
		cancel(nil)
		return fault
	}
	p.call = c.begin(l.family, m)
	go p.run(ctx)
	return nil
}

// begin records the start of a call in the diagnostic log and the trace.
func (c *client) begin(f *family, m *message) *calls.Call {
	return calls.Begin(c.s.Tracer, calls.Start{
		Tool: f.name, Span: strings.ReplaceAll(f.name, "/", "."), Principal: c.who.Principal, Session: c.who.Session,
		Trace: m.trace, At: time.Now(),
	})
}

// fill sets the fields of the request that the client does not choose.
func (c *client) fill(l *launch) *jsonrpc.Error {
	who := c.who
	if c.s.Current != nil {
		var ok bool
		if who, ok = c.s.Current(who); !ok {
			return jsonrpc.Errorf(jsonrpc.CodeRequest, "the token of this connection has been revoked, or has expired: connect again with another one")
		}
	}
	r := &l.request
	r.Tool, r.Principal, r.Session = l.family.name, c.who.Principal, c.who.Session
	// For a directory outside of every repository, Repo is "": the policy denies and logs the request.
	repo, dir, ok := l.access.locate(&who, l.dir)
	if !ok {
		_, _, l.removed = innermost(l.access.Removed, &who, l.dir)
		l.usable = l.access.usable(&who)
	}
	r.Repo, r.Dir = repo.ID, dir
	return nil
}

func (c *client) register(p *process) *jsonrpc.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.key = handle{family: p.family, name: p.id}
	if !p.named {
		c.unnamed++
		p.key.number = c.unnamed
	}
	switch {
	case c.processes[p.key] != nil || p.family == environmentFamily && c.hasEnded(p.id):
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "%s %s", p.family.duplicate, quoted(p.id))
	case len(c.processes) >= maxProcesses:
		return jsonrpc.Errorf(codeBusy, "the connection has %d processes, which is the maximum: wait for one to end", len(c.processes))
	case c.s.processes.Add(1) > maxServed:
		c.s.processes.Add(-1)
		return jsonrpc.Errorf(codeBusy, "the server has %d processes, which is the maximum: wait for one to end", maxServed)
	}
	c.processes[p.key] = p
	c.pending[jsonrpc.Key(p.requestID)] = true
	c.all.Add(1)
	return nil
}

// hasEnded reports whether an ended process of the environment protocol, which can still be read, has an id. The caller holds c.mu.
func (c *client) hasEnded(id string) bool {
	return slices.ContainsFunc(c.environment.ended, func(p *process) bool { return p.id == id })
}

// run runs the job, waits for its output, and sends the final message.
func (p *process) run(ctx context.Context) {
	defer p.c.all.Done()
	defer p.cancel(nil)
	if p.isSpawn() {
		timer := time.AfterFunc(spawnTimeout, p.announce)
		defer timer.Stop()
	}
	p.call.Repo(p.request.Repo)
	record, err := p.engine.Run(ctx, &p.request, p.out, job.Hooks{
		Stdin: p.out.stdin, Terminal: p.out.terminal, Started: p.events.started,
	})
	p.call.Ran(record)
	if p.input != nil {
		p.input.end()
	}
	p.out.wait()
	p.screen.close()
	e := p.outcome(ctx, record, err)
	p.call.End(ctx, p.c.s.Log, p.out.passed(), e.code(ctx))
	p.finish(e)
}

func (p *process) isSpawn() bool { return p.family.exited != "" }

// announce answers process/spawn unless it was answered already.
func (p *process) announce() {
	if !p.isSpawn() {
		return
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.announceLocked(p.startedAnswer())
}

// announceLocked sends answer unless process/spawn was answered already. The caller holds c.mu.
func (p *process) announceLocked(answer []byte) {
	if !p.answered {
		p.answered = true
		p.c.forgetPending(p.to, p.requestID)
		p.to.Put(jsonrpc.Item{Text: answer})
	}
}

// finish removes a process and sends its final message under one lock: a client that has read the message may reuse the
// ids of the process and of the request.
func (p *process) finish(e *outcome) {
	switch p.family {
	case environmentFamily:
		p.finishEnvironment(e)
		return
	case fileFamily:
		p.finishFile(e)
		return
	}
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.processes, p.key)
	c.s.processes.Add(-1)
	last := jsonrpc.Item{Size: p.out.size(), Sent: p.out.release}
	switch {
	case !p.isSpawn():
		delete(c.pending, jsonrpc.Key(p.requestID))
		last.Build = func() iter.Seq[[]byte] { return e.answer(p) }
	case e.fault != nil && !p.answered:
		p.announceLocked(dialect.Error(p.requestID, e.fault))
	default:
		p.announceLocked(dialect.Result(p.requestID, strictjson.Encode(empty{})))
		last.Build = func() iter.Seq[[]byte] { return e.exitedNote(p) }
	}
	if last.Build == nil || p.isSpawn() && !c.wants(p.family.exited) {
		last.Sent()
		return
	}
	c.out.Load().Put(last)
}

// write queues input for the process. The request is answered once little enough input waits.
func (p *process) write(id json.RawMessage, data []byte, last bool) *jsonrpc.Error {
	if p.input == nil {
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "%s", p.family.noStdin)
	}
	done, to := dialect.Result(id, strictjson.Encode(empty{})), p.c.out.Load()
	p.c.addPending(id)
	fault := p.input.put(chunk{data: data, last: last, reply: func() { p.c.answerPending(to, id, done) }})
	if fault != nil {
		p.c.answerPending(to, id, dialect.Error(id, fault))
	}
	return nil
}
