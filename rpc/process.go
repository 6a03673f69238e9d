package rpc

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"corral/internal/calls"
)

// spawnPatience is how long process/spawn waits for its process to have said something, or to have been refused, before
// it is answered. What is refused later is told by process/exited.
const spawnPatience = 100 * time.Millisecond

// A process is a job that a client has started.
type process struct {
	launch
	c      *client
	key    handle
	asked  json.RawMessage // id of the request
	cancel context.CancelCauseFunc
	out    *output
	input  *input // nil: not streamed
	screen *screen
	noted  *calls.Call

	told bool // guarded by c.mu: process/spawn is answered
}

// start makes a launch a process, which is known by its id from here on.
func (c *client) start(l *launch, m *message) *fault {
	c.fill(l)
	l.request.ID = m.trace.ID
	ctx, cancel := context.WithCancelCause(c.ctx)
	p := &process{launch: *l, c: c, asked: m.id, cancel: cancel}
	p.out, p.screen = newOutput(p), &screen{}
	if p.stdin {
		p.input = newInput(c.s)
	}
	if fault := c.register(p); fault != nil {
		cancel(nil)
		return fault
	}
	p.noted = c.begin(l.family, m)
	go p.run(ctx)
	return nil
}

// begin notes the beginning of a call.
func (c *client) begin(f *family, m *message) *calls.Call {
	return calls.Begin(c.s.Tracer, calls.Start{
		Tool: f.name, Span: strings.ReplaceAll(f.name, "/", "."), Principal: c.who.Principal, Session: c.who.Session,
		Trace: m.trace, At: time.Now(),
	})
}

// fill completes the request.
func (c *client) fill(l *launch) {
	r := &l.request
	r.Tool, r.Principal, r.Session = l.family.name, c.who.Principal, c.who.Session
	// The policy refuses what is in no repository, and has it written down.
	repo, dir, _ := c.s.place(&c.who, l.dir)
	r.Repo, r.Dir = repo.ID, dir
}

func (c *client) register(p *process) *fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.key = handle{family: p.family, name: p.id}
	if !p.named {
		c.unnamed++
		p.key.number = c.unnamed
	}
	switch {
	case c.processes[p.key] != nil:
		return faultOf(codeRequest, "%s %s", p.family.duplicate, quoted(p.id))
	case len(c.processes) >= maxProcesses:
		return faultOf(codeBusy, "the connection has %d processes: wait for one to end", len(c.processes))
	case c.s.processes.Add(1) > maxServed:
		c.s.processes.Add(-1)
		return faultOf(codeBusy, "the server has %d processes: wait for one to end", maxServed)
	}
	c.processes[p.key] = p
	c.pending[idKey(p.asked)] = true
	c.all.Add(1)
	return nil
}

// run takes a process through its life.
func (p *process) run(ctx context.Context) {
	defer p.c.all.Done()
	defer p.cancel(nil)
	if p.isSpawn() {
		timer := time.AfterFunc(spawnPatience, p.announce)
		defer timer.Stop()
	}
	p.noted.Repo(p.request.Repo)
	record, err := p.engine.Run(ctx, &p.request, p.out, nil)
	p.noted.Ran(record)
	if p.input != nil {
		p.input.end()
	}
	p.out.wait()
	p.screen.close()
	e := p.ending(ctx, record, err)
	p.noted.End(ctx, p.c.s.Log, p.out.passed(), e.code(ctx))
	p.finish(e)
}

func (p *process) isSpawn() bool { return p.family.exited != "" }

// announce answers process/spawn, unless it is answered: the process is there.
func (p *process) announce() {
	if !p.isSpawn() {
		return
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.tell(answerOf(p.asked, encode(empty{})))
}

// tell is announce for one who holds the lock.
func (p *process) tell(answer []byte) {
	if !p.told {
		p.told = true
		delete(p.c.pending, idKey(p.asked))
		p.c.out.answer(answer)
	}
}

// finish forgets a process and has the last word on it, as one: whoever reads that may use its names again.
func (p *process) finish(e *ending) {
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.processes, p.key)
	c.s.processes.Add(-1)
	last := item{size: p.out.size(), sent: p.out.release}
	switch {
	case !p.isSpawn():
		delete(c.pending, idKey(p.asked))
		last.make = func() []byte { return e.answer(p) }
	case e.fault != nil && !p.told:
		p.tell(errorOf(p.asked, e.fault))
	default:
		p.tell(answerOf(p.asked, encode(empty{})))
		last.make = func() []byte { return e.note(p) }
	}
	if last.make == nil || p.isSpawn() && !c.wants(p.family.exited) {
		last.gone()
		return
	}
	c.out.put(last)
}

// write takes input for the process, and answers when enough of it is on its way.
func (p *process) write(id json.RawMessage, data []byte, last bool) *fault {
	if p.input == nil {
		return faultOf(codeRequest, "%s", p.family.noStdin)
	}
	done := answerOf(id, encode(empty{}))
	p.c.await(id)
	fault := p.input.put(chunk{data: data, last: last, taken: func() { p.c.settle(id, done) }})
	if fault != nil {
		p.c.settle(id, errorOf(id, fault))
	}
	return nil
}
