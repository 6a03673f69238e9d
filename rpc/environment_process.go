package rpc

import (
	"encoding/base64"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
	"corral/internal/text"
	"corral/job"
)

var environmentFamily = &family{
	name: "process/start", output: "process/output", exited: "process/exited", id: "processId",
	duplicate: "there is or was a process with this id:", unspawned: "failed to start the command",
}

// Bounds on what is kept of processes for process/read.
const (
	maxRetained = 1 << 20 // bytes of output of a process, each piece with chunkOverhead
	maxEnded    = 32      // ended processes of a session
	maxWrites   = 1024    // ids of the last writes to a process
	maxReadWait = 30 * time.Second
	maxReads    = 256 // of a session that wait for output; more are answered at once
)

// killAfter is the time that a job has to end by itself: a client that ends a process wants it killed.
const killAfter = time.Millisecond

// events are the numbered messages about a process of the environment protocol. The client puts them in their order.
type events struct {
	mu       sync.Mutex
	seq      int64         // guarded by mu: of the last event
	chunks   []outputChunk // guarded by mu: output that is kept for process/read
	retained int           // guarded by mu: bytes of chunks, reserved in the server's budget
	changed  chan struct{} // guarded by mu: closed at the next event
	exit     *int          // guarded by mu: nil before process/exited
	denied   bool          // guarded by mu: set with exit
	closed   bool          // guarded by mu
	writes   []string      // guarded by mu: ids of the last writes
	signaler job.Signaler  // guarded by mu: nil before the job has started
	early    bool          // guarded by mu: it was interrupted before
	tail     []byte        // guarded by mu: the last output that may say why the command failed
}

// An outputChunk is what one process/output has.
type outputChunk struct {
	Seq    int64  `json:"seq"`
	Stream string `json:"stream"`
	Chunk  []byte `json:"chunk"` // encoded in base64
}

// startProcess serves process/start.
func (c *client) startProcess(m *message) *jsonrpc.Error {
	r := read(m.params)
	l := newLaunch(c.s, environmentFamily)
	l.id, l.named, l.stream, l.cap = r.name("processId", r.required("processId")), true, true, noCap
	q := &l.request
	q.Command = r.stringArray("argv", r.required("argv"))
	l.dir = path.Clean(r.path("cwd", r.required("cwd")))
	l.tty = r.boolean("tty")
	l.stdin = r.boolean("pipeStdin") || l.tty
	if policy := r.optional("envPolicy"); policy != nil { // nothing of this program's own environment is taken, whatever it inherits
		in := r.object("envPolicy", policy)
		q.Env = in.environment("set")
		r.inherit(in)
	}
	env := r.environment("env")
	if q.Env == nil {
		q.Env = env
	} else {
		maps.Copy(q.Env, env)
	}
	if arg0 := r.text("arg0", r.optional("arg0")); arg0 != "" && r.fault == nil && len(q.Command) > 0 && arg0 != q.Command[0] {
		q.Command = append([]string{"/bin/bash", "-c", `exec -a "$0" "$@"`, arg0}, q.Command...)
	}
	n := r.readSandbox()
	r.readProxy(&n)
	ids := r.object("metadata", r.optional("metadata"))
	thread, call := ids.text("threadId", ids.optional("threadId")), ids.text("toolCallId", ids.optional("toolCallId"))
	l.quiet = r.optional("metadata") == nil
	if r.fault != nil {
		return r.bad()
	}
	if len(q.Command) == 0 {
		return bad("argv must not be empty")
	}
	if l.tty {
		q.Terminal = defaultSize
	}
	q.Streamed = l.stdin && !l.tty
	q.Usual.Wall = job.Unlimited
	c.discover(l, true, append(n.roots, l.dir)...)
	if fault := c.fill(l); fault != nil {
		return fault
	}
	repo := c.repoOf(l, l.dir)
	v := n.of(repo.Path)
	if repo.ID != "" && q.Repo != "" {
		if why := v.apply(q); why != "" {
			c.s.warn(c.ctx, "a sandbox of a client cannot be applied", "principal", c.who.Principal, "repo", repo.ID, "reason", why)
			return jsonrpc.Errorf(jsonrpc.CodeInternal, "the client's sandbox cannot be applied: %s", why)
		}
		c.confine(l, repo, n.network)
		l.repo = repo.Path
	}
	session := ""
	if s := q.Env["CODEX_SESSION_ID"]; s != nil {
		session = *s
	}
	q.Client = claims("thread", thread, "call", call, "session", session, "process", l.id, "asked", n.String(),
		"applied", v.String()+", network "+orAll(q.Network))
	return c.launch(l, m)
}

// claims returns pairs of names and values as one text.
func claims(pairs ...string) string {
	var list []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := text.Line(pairs[i+1], maxWord*2); value != "" {
			list = append(list, pairs[i]+"="+value)
		}
	}
	return strings.Join(list, "; ")
}

func orAll(network string) string {
	if network == "" {
		return "as allowed"
	}
	return network
}

func (n narrowing) String() string {
	if !n.given {
		return "no sandbox"
	}
	var list []string
	for _, r := range n.rules {
		list = append(list, r.access+" "+r.path+r.glob)
	}
	return text.Cut(strings.Join(append(list, "network "+orAll(n.network)), ", "), maxWord*2)
}

func (v view) String() string {
	list := []string{"as configured"}
	if v.readOnly {
		list[0] = "readonly"
	}
	for word, paths := range map[string][]string{"write": v.open, "protect": v.keep, "hide": v.hidden} {
		if len(paths) > 0 {
			list = append(list, word+" "+strings.Join(paths, " "))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// repoOf returns the repository of a path that a client may use.
func (c *client) repoOf(l *launch, path string) Repo {
	repo, _, _ := l.access.locate(&c.who, path)
	return repo
}

// confine sets what all jobs of a session have in common: they share their files, and what they may reach unless they may reach less.
func (c *client) confine(l *launch, repo Repo, network string) {
	q := &l.request
	q.Share, q.Workspace, q.Network = true, c.s.Environment.Workspace, repo.common(network)
	q.Usual.KillAfter = killAfter
	if repo.Allows == nil {
		q.SessionNetwork = job.NoNetwork
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.environment.repo = repo.Path
}

// common returns what a client's words for the network have in common with what the operator allows: a job that asks for more is refused.
func (r *Repo) common(network string) string {
	switch {
	case r.Allows == nil:
		return job.NoNetwork
	case network == "" || network == job.NoNetwork:
		return network
	}
	words := slices.DeleteFunc(strings.Fields(network), func(host string) bool { return !r.Allows(host) })
	if len(words) == 0 {
		return job.NoNetwork
	}
	return strings.Join(words, " ")
}

// process returns the process with an id, ended or not, or nil.
func (c *client) process(id string) (p *process, running bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.processes[handle{family: environmentFamily, name: id}]; p != nil {
		return p, true
	}
	if n := slices.IndexFunc(c.environment.ended, func(p *process) bool { return p.id == id }); n >= 0 {
		return c.environment.ended[n], false
	}
	return nil, false
}

// writeProcess serves process/write.
func (c *client) writeProcess(m *message) *jsonrpc.Error {
	r := read(m.params)
	id := r.name("processId", r.required("processId"))
	encoded := r.text("chunk", r.required("chunk"))
	write := r.name("writeId", r.optional("writeId"))
	if r.fault != nil {
		return r.bad()
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return bad("invalid chunk: %v", err)
	}
	status := func(word string) []byte {
		return dialect.Result(m.id, strictjson.Encode(map[string]string{"status": word}))
	}
	p, running := c.process(id)
	switch {
	case p == nil:
		c.answer(status("unknownProcess"))
		return nil
	case !running || p.input == nil:
		c.answer(status("stdinClosed"))
		return nil
	case write != "" && !p.events.first(write):
		c.answer(status("accepted"))
		return nil
	}
	to := c.out.Load()
	c.addPending(m.id)
	fault := p.input.put(chunk{data: data, reply: func() { c.answerPending(to, m.id, status("accepted")) }})
	switch {
	case fault != nil && fault.Code == codeBusy:
		p.events.refused(write)
		c.answerPending(to, m.id, dialect.Error(m.id, fault))
	case fault != nil:
		c.answerPending(to, m.id, status("stdinClosed"))
	}
	return nil
}

// first reports whether a write is not one that was repeated, because its answer was lost with a connection.
func (e *events) first(write string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(e.writes, write) {
		return false
	}
	if e.writes = append(e.writes, write); len(e.writes) > maxWrites {
		e.writes = slices.Delete(e.writes, 0, 1)
	}
	return true
}

// refused forgets a write that was not accepted: the client may repeat it.
func (e *events) refused(write string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writes = slices.DeleteFunc(e.writes, func(w string) bool { return w == write })
}

// signalProcess serves process/signal.
func (c *client) signalProcess(m *message) *jsonrpc.Error {
	r := read(m.params)
	id := r.name("processId", r.required("processId"))
	word := r.text("signal", r.required("signal"))
	if r.fault != nil {
		return r.bad()
	}
	if word != "interrupt" {
		return bad("unknown signal %s: must be interrupt", quoted(text.Cut(word, maxWord)))
	}
	p, running := c.process(id)
	if p == nil {
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "unknown process %s", quoted(text.Cut(id, maxWord)))
	}
	if running {
		p.events.interrupt()
	}
	c.reply(m.id, empty{})
	return nil
}

// interrupt sends SIGINT to all processes of the job, as a terminal does: now, or when it has started.
func (e *events) interrupt() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.signaler == nil {
		e.early = true
		return
	}
	_ = e.signaler.Signal(int(unix.SIGINT), true) // fails only if the supervisor is gone, and the job with it
}

// started is the hook that receives the handle for signaling the job.
func (e *events) started(s job.Signaler) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.signaler = s
	if e.early {
		e.early = false
		_ = s.Signal(int(unix.SIGINT), true)
	}
}

// terminateProcess serves process/terminate.
func (c *client) terminateProcess(m *message) *jsonrpc.Error {
	r := read(m.params)
	id := r.name("processId", r.required("processId"))
	if r.fault != nil {
		return r.bad()
	}
	p, running := c.process(id)
	running = running && !p.events.hasExited()
	c.reply(m.id, map[string]bool{"running": running})
	if running {
		p.cancel(errTerminated)
	}
	return nil
}

func (e *events) hasExited() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exit != nil
}

// readProcess serves process/read.
func (c *client) readProcess(m *message) *jsonrpc.Error {
	r := read(m.params)
	id := r.name("processId", r.required("processId"))
	after, _ := r.count("afterSeq")
	most, bounded := r.count("maxBytes")
	wait, _ := r.count("waitMs")
	if r.fault != nil {
		return r.bad()
	}
	if !bounded {
		most = maxRetained
	}
	p, _ := c.process(id)
	if p == nil {
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "unknown process %s", quoted(text.Cut(id, maxWord)))
	}
	patience := min(time.Duration(min(wait, int64(maxReadWait/time.Millisecond)))*time.Millisecond, maxReadWait)
	result, more := p.events.since(after, most)
	if more == nil || patience == 0 || c.environment.reads.Load() >= maxReads {
		c.reply(m.id, result)
		return nil
	}
	to := c.out.Load()
	c.addPending(m.id)
	c.environment.reads.Add(1) // by this goroutine alone: it reads the client's messages
	c.all.Go(func() {
		defer c.environment.reads.Add(-1)
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-more:
		case <-timer.C:
		case <-c.ctx.Done():
		}
		result, _ := p.events.since(after, most)
		c.answerPending(to, m.id, dialect.Result(m.id, strictjson.Encode(result)))
	})
	return nil
}

// A readResult is the result of process/read.
type readResult struct {
	Chunks   []outputChunk `json:"chunks"`
	Next     int64         `json:"nextSeq"`
	Exited   bool          `json:"exited"`
	ExitCode *int          `json:"exitCode"`
	Closed   bool          `json:"closed"`
	Failure  *string       `json:"failure"`
	Denied   bool          `json:"sandboxDenied"`
}

// since returns the events after a number, with at most that many bytes of output but at least one chunk. If there is none, changed is
// closed at the next.
func (e *events) since(after, most int64) (r readResult, changed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r = readResult{Chunks: []outputChunk{}, Next: e.seq + 1, Exited: e.exit != nil, ExitCode: e.exit, Closed: e.closed, Denied: e.denied}
	size := int64(0)
	for _, chunk := range e.chunks {
		if chunk.Seq <= after {
			continue
		}
		if size += int64(len(chunk.Chunk)); size > most && len(r.Chunks) > 0 {
			r.Next = chunk.Seq
			r.Exited, r.ExitCode, r.Closed = false, nil, false
			break
		}
		r.Chunks = append(r.Chunks, chunk)
	}
	if e.seq > after || e.closed {
		return r, nil
	}
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return r, e.changed
}

// next numbers an event. The caller holds e.mu.
func (e *events) next() int64 {
	e.seq++
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
	return e.seq
}

// emit sends output of a process, and keeps it for process/read. It blocks while too much output waits for the client, or for it to come
// back.
func (p *process) emit(stream string, b []byte) {
	p.announce()
	seq := p.events.keep(p, stream, b)
	out := p.c.out.Load()
	line := append(out.Buffer(), `{"method":"process/output","params":{"processId":`...)
	line = append(line, quoted(p.id)...)
	line = strconv.AppendInt(append(line, `,"seq":`...), seq, 10)
	line = append(line, `,"stream":"`+stream+`","chunk":"`...)
	line = base64.StdEncoding.AppendEncode(line, b)
	line = append(line, `"}}`...)
	if !out.PutAfter(maxDeltas, jsonrpc.Item{Text: line, Pooled: true}) {
		p.c.stall(out, len(b))
	}
}

// keep numbers output and keeps it, in place of the oldest if there is too much.
func (e *events) keep(p *process, stream string, b []byte) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	seq := e.next()
	if stream != "stdout" {
		const tail = 4 << 10
		if e.tail = append(e.tail, b...); len(e.tail) > tail {
			e.tail = slices.Clone(e.tail[len(e.tail)-tail:])
		}
	}
	if n := len(b) + chunkOverhead; p.c.s.reserve(p.c.who.Principal, n) {
		e.chunks = append(e.chunks, outputChunk{seq, stream, slices.Clone(b)})
		e.retained += n
	}
	drop := 0
	for e.retained > maxRetained {
		n := len(e.chunks[drop].Chunk) + chunkOverhead
		e.retained -= n
		p.c.s.release(p.c.who.Principal, n)
		drop++
	}
	e.chunks = slices.Delete(e.chunks, 0, drop)
	return seq
}

// stall waits until the client comes back or its session ends, if much output has been written since the connection broke.
func (c *client) stall(broken *jsonrpc.Outbox, n int) {
	c.mu.Lock()
	x := c.environment
	if c.out.Load() != broken { // it has come back, and will ask for what it has not got
		c.mu.Unlock()
		return
	}
	if x.attached == nil {
		x.attached = make(chan struct{})
	}
	x.unsent += n
	attached, stalled := x.attached, x.unsent > maxDeltas
	c.mu.Unlock()
	if !stalled {
		return
	}
	select {
	case <-attached:
	case <-c.ctx.Done():
	}
}

// startedAnswer answers process/start.
func (p *process) startedAnswer() []byte {
	if p.family != environmentFamily {
		return dialect.Result(p.requestID, strictjson.Encode(empty{}))
	}
	return dialect.Result(p.requestID, strictjson.Encode(map[string]string{"processId": p.id, "sandboxType": "linuxSeccomp"}))
}

// finishEnvironment removes a process and sends how it ended, or why it did not start.
func (p *process) finishEnvironment(e *outcome) {
	c := p.c
	if e.fault != nil {
		e.fault = environmentFault(e)
	}
	c.mu.Lock()
	refused := e.fault != nil && !p.answered
	if refused {
		delete(c.processes, p.key)
		p.announceLocked(dialect.Error(p.requestID, e.fault))
	} else {
		p.announceLocked(p.startedAnswer())
	}
	c.mu.Unlock()
	c.s.processes.Add(-1)
	if refused {
		return
	}
	denied, lines := p.denials(e)
	if e.fault != nil {
		if e.exit < 0 {
			e.exit = exitNoExec
		}
		lines = append(lines, e.fault.Message)
	}
	lines = append(lines, p.sensitive(e)...)
	if !p.quiet {
		lines = append(c.takeNotes(), lines...)
	}
	if len(lines) > 0 {
		name := "stderr"
		if p.tty {
			name = "pty"
		}
		p.emit(name, []byte("corral: "+strings.Join(lines, "\ncorral: ")+"\n"))
	}
	p.events.mu.Lock()
	exited := p.events.next()
	p.events.exit, p.events.denied = &e.exit, denied
	last := p.events.next()
	p.events.closed = true
	p.events.mu.Unlock()
	c.mu.Lock()
	delete(c.processes, p.key)
	x := c.environment
	var forget *process
	if x.ended = append(x.ended, p); len(x.ended) > maxEnded {
		forget = x.ended[0]
		x.ended = slices.Delete(x.ended, 0, 1)
	}
	c.mu.Unlock()
	if forget != nil {
		forget.events.forget(forget)
	}
	out := c.out.Load()
	out.Put(jsonrpc.Item{Text: dialect.Notification("process/exited", map[string]any{
		"processId": p.id, "seq": exited, "exitCode": e.exit, "sandboxDenied": denied,
	})})
	out.Put(jsonrpc.Item{Text: dialect.Notification("process/closed", map[string]any{"processId": p.id, "seq": last})})
}

// forget returns the memory of kept output.
func (e *events) forget(p *process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.c.s.release(p.c.who.Principal, e.retained)
	e.chunks, e.retained = nil, 0
}

// releaseEnded forgets the ended processes of a session that has ended.
func (c *client) releaseEnded() {
	c.mu.Lock()
	list := c.environment.ended
	c.environment.ended = nil
	c.mu.Unlock()
	for _, p := range list {
		p.events.forget(p)
	}
}

// environmentFault gives a fault the code and the data that the environment protocol has for it.
func environmentFault(e *outcome) *jsonrpc.Error {
	f := *e.fault
	if f.Code != codeBusy {
		f.Code = jsonrpc.CodeInternal
	}
	if r := e.record; r != nil && r.Refusal != nil {
		if errno := syscall.Errno(r.Refusal.Errno); errno == unix.ENOENT || errno == unix.ENOTDIR {
			f.Data = map[string]string{"kind": "spawnNotFound"}
		}
	}
	return &f
}

// sensitive returns what the model is told about the sensitive paths that a job changed.
func (p *process) sensitive(e *outcome) []string {
	const most = 5
	if e.record == nil {
		return nil
	}
	return e.record.Result.SensitiveNotes(most, text.Quote, "")
}

// denials returns whether the jail is why a command failed, and what to tell the model about it.
func (p *process) denials(e *outcome) (denied bool, lines []string) {
	if e.record == nil || e.fault != nil || e.exit == 0 || e.record.Status == job.Cancelled {
		return false, nil
	}
	r := &e.record.Result
	if r.Limit != "" {
		lines = append(lines, "the command reached the limit "+r.Limit)
	}
	if r.Network != nil && r.Network.Denied > 0 {
		const most = 5
		hosts, hint := r.Network.Report(most)
		if lines = append(lines, hosts...); hint != "" {
			lines = append(lines, hint)
		}
	}
	p.events.mu.Lock()
	tail := string(p.events.tail)
	p.events.mu.Unlock()
	if strings.Contains(tail, unixText(unix.EROFS)) { // of a job, only the jail makes a file system read-only
		lines = append(lines, "the path is read-only here: "+p.writable())
	}
	if hidden := p.outside(tail); hidden != "" {
		lines = append(lines, text.Cut(hidden, maxSaid)+" is outside of the repository: commands see only that, system directories, /tmp and HOME")
	}
	return len(lines) > 0, lines
}

// outside returns a path that a command's errors say is missing or forbidden, and that no command sees: one that is beside the repository
// or in another user's directory. What is there on the host plays no part.
func (p *process) outside(errors string) string {
	repo := p.repo
	for line := range strings.Lines(errors) {
		if !strings.Contains(line, unixText(unix.ENOENT)) && !strings.Contains(line, unixText(unix.EACCES)) {
			continue
		}
		for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\n'\"`‘’:(),", r) }) {
			name := path.Clean(word)
			if !path.IsAbs(name) {
				continue
			}
			_, in := within(repo, name)
			_, own := within(job.Home, name)
			_, near := within(path.Dir(repo), name)
			for _, dir := range []string{"/home", "/root", "/srv", "/mnt", "/media"} {
				_, of := within(dir, name)
				near = near || of
			}
			if near && !in && !own && repo != "" && path.Dir(repo) != "/" {
				return name
			}
		}
	}
	return ""
}

// unixText returns the text of an error as programs print it.
func unixText(e syscall.Errno) string {
	s := e.Error()
	return strings.ToUpper(s[:1]) + s[1:]
}

// writable says where a command can write.
func (p *process) writable() string {
	q := &p.request
	switch {
	case q.ReadOnly:
		return "the client's sandbox allows no writing to the repository"
	case q.Protect == job.ProtectAll:
		return "commands write to the repository except git directories and settings of agents, editors and shells, and to /tmp and HOME"
	}
	return "commands write to the repository as far as its settings allow, and to /tmp and HOME"
}
