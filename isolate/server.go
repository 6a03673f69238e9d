package isolate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/internal/fault"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/sessions"
	"corral/isolate/wire"
	"corral/job"
)

// A server has the connections of a supervisor's clients. The number of connections, and of requests that one of them has under way, is
// bounded. A message that violates the protocol ends its connection. Descriptors are received and closed through a prober, so that no
// client blocks the supervisor.
type server struct {
	clients host.Work     // connections
	dropped host.LogLimit // lines about connections that were ended

	mu         fault.Mutex
	maxPerUser int               // guarded by mu: maximum of connections that may start jobs per user other than root
	all        places            // guarded by mu: of all users
	perUser    map[uint32]places // guarded by mu
}

func newServer(maxPerUser int) *server {
	return &server{maxPerUser: maxPerUser, perUser: map[uint32]places{}}
}

// adjust changes how many connections a user other than root may have. Those that exist stay.
func (s *server) adjust(maxPerUser int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxPerUser = maxPerUser
}

// Serve accepts connections until the listener is closed. Clients are identified by SO_PEERCRED.
func (s *Supervisor) Serve(l *net.UnixListener) error {
	var lastLogged time.Time
	unlogged := 0
	for {
		u, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if transient(err) {
			s.config.Log.Warn("connection not accepted", "error", err)
			select {
			case <-time.After(acceptPause):
			case <-s.ctx.Done():
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := s.accept(u); err != nil {
			if unlogged++; time.Since(lastLogged) > time.Second { // a refused client can reconnect at once, so the messages are limited
				s.config.Log.Warn("client not served", "error", err, "times", unlogged)
				lastLogged, unlogged = time.Now(), 0
			}
		}
	}
}

// acceptPause is how long no connection is accepted after the machine ran out of a resource.
const acceptPause = 100 * time.Millisecond

// transient reports whether an error of accept(2) concerns only this moment or this client, not the listener.
func transient(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// accept serves a new connection in a goroutine of its own.
func (s *Supervisor) accept(u *net.UnixConn) error {
	file, err := u.File()
	u.Close()
	if err != nil {
		return err
	}
	conn, err := wire.NewConn(file)
	if err != nil {
		return err
	}
	cred, err := conn.Peer()
	if err != nil {
		conn.Close()
		return err
	}
	if s.instance.MayBeJob(cred.Uid) {
		conn.Close()
		return fmt.Errorf("user %d is in the range of jobs (uids): the socket is in a directory that jobs see, or the host gives its users such ids", cred.Uid)
	}
	groups, err := conn.PeerGroups()
	if err != nil {
		conn.Close()
		return err
	}
	peer := host.Peer{
		UID: cred.Uid, Holder: s.subuids.Holder(cred.Uid), Account: &directory.Account{UID: cred.Uid, GID: cred.Gid, Groups: groups},
	}
	p := s.server.connect(peer.Payer())
	if p == nil {
		s.probes.HangUp(peer.Payer(), conn)
		return fmt.Errorf("user %d has too many connections", peer.Payer())
	}
	go func() {
		// The connection counts until everything that the client sent is closed, which can take as long as the client
		// wants: this bounds the threads that it can block.
		defer p.leave()
		<-s.serveConn(conn, peer, p)
	}()
	return nil
}

// receive receives a message with descriptors through a helper process. If no helper is available for the user, or a
// descriptor is of a kind that cannot be closed safely, the request is refused and the connection ends.
func (c *connection) receive(socket int, head []byte) ([]byte, []*os.File, error) {
	message, files, err := c.s.probes.Receive(c.peer.Payer(), socket)
	if errors.As(err, new(*job.Refusal)) {
		if h, _, failed := wire.ReadHeader(head); failed == nil {
			c.refuse(h.Tag, err)
		}
	}
	return message, files, err
}

// ServeConn serves one client, which counts as no connection, until the client closes conn; its jobs end with it. It returns when all of
// them are gone.
func (s *Supervisor) ServeConn(conn *wire.Conn, peer host.Peer) { s.serveConn(conn, peer, nil) }

// serveConn is ServeConn for a connection that has a place, or none. closed is closed when all discarded descriptors of the client have
// been closed.
func (s *Supervisor) serveConn(conn *wire.Conn, peer host.Peer, p *place) (closed <-chan struct{}) {
	done := make(chan struct{})
	if !s.server.clients.Begin() {
		s.probes.HangUp(peer.Payer(), conn)
		close(done)
		return done
	}
	defer s.server.clients.Done()
	ctx, cancel := context.WithCancel(s.ctx)
	conn.Patience = cmp.Or(s.config.switches.patience, sendPatience)
	c := &connection{
		s: s, conn: conn, peer: peer, place: p, runs: map[uint32]*run{}, denials: make(chan struct{}, maxClientDenials),
		opening: make(chan struct{}, maxClientSessions), unwanted: make(chan []*os.File),
	}
	if !peer.Embedded { // an embedded client can harm only its own supervisor
		conn.Guard = c.receive
	}
	go func() {
		defer close(done)
		c.discard()
	}()
	defer close(c.unwanted)
	// When the supervisor ends, it reads no more requests, but running jobs still get their results.
	stop := context.AfterFunc(s.ctx, func() { conn.CloseRead() })
	err := fault.Contain(s.config.Log, "a connection", func() error { return c.serve(ctx) }, "uid", peer.UID)
	stop()
	cancel()
	if !errors.Is(err, io.EOF) {
		conn.Shutdown() // a client that violates the protocol gets no more messages
	}
	c.work.Wait() // requests in progress are still answered
	fault.Do(s.config.Log, "the sessions of a connection", c.endSessions, "uid", peer.UID)
	s.probes.HangUp(peer.Payer(), conn)
	if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
		s.logDropped(peer, err)
	}
	return done
}

// logDropped logs why a connection was ended.
func (s *Supervisor) logDropped(peer host.Peer, err error) {
	if ok, omitted := s.server.dropped.Allow(peer.Payer(), time.Now()); ok {
		s.config.Log.Warn("client dropped", "uid", peer.UID, "error", err, "omitted", omitted)
	}
}

// A connection is that of one client.
type connection struct {
	s     *Supervisor
	conn  *wire.Conn
	peer  host.Peer
	place *place // nil: it counts as no connection
	work  sync.WaitGroup

	denials  chan struct{} // semaphore: records being written
	opening  chan struct{} // semaphore: sessions being opened or closed
	frontUID uint32        // the user that an embedded supervisor's front-end said it became

	unwanted chan []*os.File // descriptors to be closed

	mu       sync.Mutex
	runs     map[uint32]*run     // guarded by mu: by tag
	sessions []*sessions.Session // guarded by mu: those that end with the connection
}

// sendPatience is how long a client may leave a message unread before the connection ends.
const sendPatience = 20 * time.Second

// discard closes descriptors that are not needed any more. The kernel takes a while to close a large memfd, and
// Prober.Discard blocks if the user has too many unclosed directories. So one goroutine per connection does it, and
// the connection counts until it has finished.
func (c *connection) discard() {
	for files := range c.unwanted {
		fault.Do(c.s.config.Log, "descriptors of a connection", func() { c.s.probes.Discard(c.peer.Payer(), files...) }, "uid", c.peer.UID)
	}
}

// maxClientRuns bounds the jobs in progress of one connection.
const maxClientRuns = 256

// serve handles messages. A message that violates the protocol ends the connection: no correct client sends one.
func (c *connection) serve(ctx context.Context) error {
	for {
		message, files, err := c.conn.Receive()
		if err != nil {
			return err
		}
		head, body, err := wire.ReadHeader(message)
		if err == nil {
			err = c.contain(head.Tag, func() error { return c.handle(ctx, head, body, files) })
		}
		if err != nil {
			c.giveUp(files)
			return err
		}
	}
}

// contain calls f, which serves a request. After a panic, the request is answered with an internal error.
func (c *connection) contain(tag uint32, f func() error) error {
	err := fault.Contain(c.s.config.Log, "a request", f, "uid", c.peer.UID)
	if errors.Is(err, fault.ErrInternal) {
		c.refuse(tag, &job.Refusal{
			Step: "internal", Message: err.Error(), Hint: "the operator finds the reason in the log of corrald: internal error",
		})
	}
	return err
}

// handle handles one message. It takes over files if it returns nil.
func (c *connection) handle(ctx context.Context, head wire.Header, body []byte, files []*os.File) error {
	switch head.Op {
	case wire.OpRun:
		return c.run(ctx, head.Tag, body, files)
	case wire.OpOpen:
		return c.open(head.Tag, body, files)
	}
	if len(files) > 0 {
		return wire.ErrMalformed
	}
	if handle := handlers[head.Op]; handle != nil {
		return handle(c, head.Tag, body)
	}
	return fmt.Errorf("operation %d: %w", head.Op, wire.ErrMalformed)
}

// handlers are for the requests without descriptors.
var handlers = map[wire.Op]func(c *connection, tag uint32, body []byte) error{
	wire.OpHello:       bare((*connection).hello),
	wire.OpSignal:      decoded((*connection).signal),
	wire.OpList:        bare((*connection).list),
	wire.OpCommands:    bare((*connection).listCommands),
	wire.OpDenials:     bare((*connection).listDenials),
	wire.OpDrain:       decoded((*connection).drain),
	wire.OpKill:        decoded((*connection).kill),
	wire.OpReload:      bare((*connection).reload),
	wire.OpFacts:       bare((*connection).facts),
	wire.OpDenied:      decoded((*connection).denied),
	wire.OpState:       decoded((*connection).state),
	wire.OpClose:       decoded((*connection).closeSession),
	wire.OpConnect:     decoded((*connection).connect),
	wire.OpPorts:       decoded((*connection).ports),
	wire.OpSessions:    bare((*connection).listSessions),
	wire.OpImages:      bare((*connection).listImages),
	wire.OpRemoveImage: decoded((*connection).removeImage),
}

// decoded returns the handler of a message with fields.
func decoded[T any, M wire.Fields[T]](handle func(*connection, uint32, T) error) func(*connection, uint32, []byte) error {
	return func(c *connection, tag uint32, body []byte) error {
		m, err := wire.Decode[T, M](body)
		if err != nil {
			return err
		}
		return handle(c, tag, m)
	}
}

// bare returns the handler of a message without a body.
func bare(handle func(*connection, uint32) error) func(*connection, uint32, []byte) error {
	return func(c *connection, tag uint32, body []byte) error {
		if len(body) != 0 {
			return wire.ErrMalformed
		}
		return handle(c, tag)
	}
}

func (c *connection) run(ctx context.Context, tag uint32, body []byte, files []*os.File) error {
	message, err := wire.Decode[wire.Run](body)
	if err != nil {
		return err
	}
	if len(files) != message.Descriptors() {
		return wire.ErrMalformed
	}
	q := &admit.Request{Run: message, Payload: files[0]}
	next := 1
	take := func(to **os.File, wanted bool) {
		if wanted {
			*to = files[next]
			next++
		}
	}
	streams := q.Flags&wire.FlagTerminal == 0
	take(&q.Stdout, streams)
	take(&q.Stderr, streams)
	take(&q.Stdin, q.Flags&wire.FlagStdin != 0)
	take(&q.RepoDir, q.Flags&wire.FlagRepo != 0)
	take(&q.CommonDir, q.Flags&wire.FlagCommon != 0)
	r, err := c.begin(tag)
	if errors.As(err, new(*job.Refusal)) {
		c.refuse(tag, err)
		c.giveUp(files)
		return nil
	}
	if err != nil {
		return err
	}
	c.work.Go(func() {
		growStack()
		defer q.Close(c.s.probes, c.peer.Payer()) // nothing, unless Serve was not reached or ended by a panic
		if fault.Do(c.s.config.Log, "the answer about a job", func() { c.serveRun(ctx, tag, r, q) }, "uid", c.peer.UID) {
			c.conn.Shutdown()
		}
	})
	return nil
}

// serveRun runs a job and answers with its result.
func (c *connection) serveRun(ctx context.Context, tag uint32, r *run, q *admit.Request) {
	result := r.Serve(ctx, q, func(master *os.File) {
		c.answer(tag, wire.Empty(wire.OpTerminal), master)
		master.Close()
	})
	c.forget(tag)
	c.answer(tag, &result)
	r.Log(&result)
}

// begin creates the run of a tag, so that a following signal on the connection finds it. A tag in use is a protocol
// violation; too many runs are refused.
func (c *connection) begin(tag uint32) (*run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs[tag] != nil {
		return nil, fmt.Errorf("tag %d in use: %w", tag, wire.ErrMalformed)
	}
	if err := c.place.forJobs(); err != nil {
		return nil, err
	}
	if len(c.runs) >= maxClientRuns {
		return nil, admit.TooMany(maxClientRuns, maxClientRuns, "per connection")
	}
	r := c.s.newRun(c.peer)
	c.runs[tag] = r
	return r, nil
}

func (c *connection) forget(tag uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, tag)
}

func (c *connection) signal(tag uint32, signal wire.Signal) error {
	if r := fault.Get(&c.mu, func() *run { return c.runs[tag] }); r != nil { // otherwise the job has ended in the meantime
		r.Signal(signal)
	}
	return nil
}

// growStack grows the goroutine's stack to the size a job needs while the stack is still empty. The runtime starts
// with a small stack and doubles it on demand, copying all frames each time, which takes longer than most steps of a
// job's start (CockroachDB has package growstack for the same reason).
//
//go:noinline
func growStack() {
	var frame [10 << 10]byte // grows the stack to 16 KiB; the runtime has no larger ones cached
	runtime.KeepAlive(&frame)
}
