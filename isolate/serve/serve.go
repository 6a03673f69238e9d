package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/internal/fault"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/probe"
	"corral/isolate/sessions"
	"corral/isolate/wire"
	"corral/job"
)

// Config is the configuration of a server.
type Config struct {
	Context    context.Context // ends with the supervisor
	Jobs       Jobs
	Sessions   *sessions.Manager
	Probes     *probe.Prober
	Subuids    *host.Subordinates
	State      *host.State
	MayBeJob   func(uid uint32) bool // reports whether a user id is one of jobs
	MaxPerUser int                   // maximum of connections per user other than root, until Adjust is called
	Patience   time.Duration         // how long a client may leave a message unread; 0 is sendPatience
	Log        *slog.Logger
}

// Jobs is what a server needs of the supervisor that runs its clients' jobs.
type Jobs interface {
	// NewRun returns a run for a job of peer, which has an id and can be signaled.
	NewRun(peer host.Peer) Run
	// Entries lists the running jobs that peer may see.
	Entries(peer host.Peer) []wire.Entry
	// Command opens the command line of a job that Entries has listed; nil: it is not known. Reading it may block.
	Command(id string) *os.File
	// Denials lists requests of peer's user, or for root of all, that were denied or refused lately.
	Denials(peer host.Peer) []wire.Denial
	// Facts returns what the supervisor knows about the host without running anything.
	Facts() []wire.Fact
	// Denied records a request that a front-end denied. The error is for the client.
	Denied(peer host.Peer, c job.Claim) error
	// Reload reads the configuration again, if peer is root, and returns notes for the operator.
	Reload(peer host.Peer) ([]string, error)
	// Drain begins or ends to refuse new jobs and sessions, if peer is root.
	Drain(peer host.Peer, on bool) error
	// Kill ends the job called id, if it is peer's or peer is root.
	Kill(peer host.Peer, id string) error
	// InstanceName returns the supervisor's name.
	InstanceName() string
	// Recording returns what the audit log has of programs.
	Recording() job.Recording
	// NobodyID returns the user that front-ends of plain root become.
	NobodyID() uint32
}

// A Run is a job that a client requested.
type Run interface {
	// Serve runs the job to its end and returns its result. It owns q. If the job has a terminal, it calls terminal with
	// the terminal's master.
	Serve(ctx context.Context, q *admit.Request, terminal func(*os.File)) wire.Result
	// Signal queues a signal for the job.
	Signal(s wire.Signal)
	// Log writes the job's end to the diagnostic log.
	Log(r *wire.Result)
}

// A Server serves the clients of a supervisor.
type Server struct {
	Config
	clients host.Work     // connections
	dropped host.LogLimit // lines about connections that were ended

	mu      fault.Mutex
	all     places            // guarded by mu: of all users
	perUser map[uint32]places // guarded by mu
	hostile map[uint32]int    // guarded by mu: messages per user that count toward maxHostile
}

// New returns a server. The caller must call End and Wait.
func New(c Config) *Server {
	if c.Patience == 0 {
		c.Patience = sendPatience
	}
	return &Server{Config: c, perUser: map[uint32]places{}, hostile: map[uint32]int{}}
}

// Adjust changes how many connections a user other than root may have. Those that exist stay.
func (s *Server) Adjust(maxPerUser int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.MaxPerUser = maxPerUser
}

// End makes the server refuse further connections. Those that exist end with the context.
func (s *Server) End() { s.clients.End() }

// Wait waits until all connections are closed.
func (s *Server) Wait() { s.clients.Wait() }

// Serve accepts connections until the listener is closed. Clients are identified by SO_PEERCRED.
func (s *Server) Serve(l *net.UnixListener) error {
	var lastLogged time.Time
	unlogged := 0
	for {
		u, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if transient(err) {
			s.Log.Warn("connection not accepted", "error", err)
			select {
			case <-time.After(acceptPause):
			case <-s.Context.Done():
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := s.accept(u); err != nil {
			if unlogged++; time.Since(lastLogged) > time.Second { // a refused client can reconnect at once, so the messages are limited
				s.Log.Warn("client not served", "error", err, "times", unlogged)
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
func (s *Server) accept(u *net.UnixConn) error {
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
	if s.MayBeJob(cred.Uid) {
		conn.Close()
		return fmt.Errorf("user %d is in the range of jobs (uids): the socket is in a directory that jobs see, or the host gives its users such ids", cred.Uid)
	}
	groups, err := conn.PeerGroups()
	if err != nil {
		conn.Close()
		return err
	}
	peer := host.Peer{
		UID: cred.Uid, Holder: s.Subuids.Holder(cred.Uid), Account: &directory.Account{UID: cred.Uid, GID: cred.Gid, Groups: groups},
	}
	p := s.connect(peer.Payer())
	if p == nil {
		s.Probes.HangUp(peer.Payer(), conn)
		return fmt.Errorf("user %d has too many connections, or has sent descriptors that cannot be closed", peer.Payer())
	}
	go func() {
		// The connection counts until everything that the client sent is closed, which can take as long as the client
		// wants: this bounds the threads that it can block.
		defer p.leave()
		<-s.serveConn(conn, peer, p)
	}()
	return nil
}

// maxHostile is the number of messages with a descriptor that no correct client sends, after which no further
// connection of their user is accepted.
const maxHostile = 8

// receive receives a message with descriptors through a helper process. If no helper is available for the user, or a
// descriptor is of a kind that cannot be closed safely, the request is refused and the connection ends.
func (c *client) receive(socket int, head []byte) ([]byte, []*os.File, error) {
	message, files, err := c.s.Probes.Receive(c.peer.Payer(), socket)
	if errors.As(err, new(*job.Refusal)) {
		if h, _, failed := wire.ReadHeader(head); failed == nil {
			c.refuse(h.Tag, err)
		}
	}
	return message, files, err
}

// noteHostile counts a message for maxHostile.
func (s *Server) noteHostile(uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostile[uid]++
}

// ServeConn serves one client, which counts as no connection, until the client closes conn; its jobs end with it. It returns when all of
// them are gone. closed is closed when all discarded descriptors of the client have been closed.
func (s *Server) ServeConn(conn *wire.Conn, peer host.Peer) (closed <-chan struct{}) {
	return s.serveConn(conn, peer, nil)
}

// serveConn is ServeConn for a connection that has a place.
func (s *Server) serveConn(conn *wire.Conn, peer host.Peer, p *place) (closed <-chan struct{}) {
	done := make(chan struct{})
	if !s.clients.Begin() {
		s.Probes.HangUp(peer.Payer(), conn)
		close(done)
		return done
	}
	defer s.clients.Done()
	ctx, cancel := context.WithCancel(s.Context)
	conn.Patience = s.Patience
	c := &client{
		s: s, conn: conn, peer: peer, place: p, runs: map[uint32]Run{}, denials: make(chan struct{}, maxClientDenials),
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
	stop := context.AfterFunc(s.Context, func() { conn.CloseRead() })
	err := fault.Contain(s.Log, "a connection", func() error { return c.serve(ctx) }, "uid", peer.UID)
	stop()
	cancel()
	if errors.Is(err, probe.ErrForeign) {
		s.noteHostile(peer.Payer())
	}
	if !errors.Is(err, io.EOF) {
		conn.Shutdown() // a client that violates the protocol gets no more messages
	}
	c.work.Wait() // requests in progress are still answered
	fault.Do(s.Log, "the sessions of a connection", c.endSessions, "uid", peer.UID)
	s.Probes.HangUp(peer.Payer(), conn)
	if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
		s.logDropped(peer, err)
	}
	return done
}

// logDropped logs why a connection was ended.
func (s *Server) logDropped(peer host.Peer, err error) {
	if ok, omitted := s.dropped.Allow(peer.Payer(), time.Now()); ok {
		s.Log.Warn("client dropped", "uid", peer.UID, "error", err, "omitted", omitted)
	}
}

// A client is one connection.
type client struct {
	s     *Server
	conn  *wire.Conn
	peer  host.Peer
	place *place // nil: it counts as no connection
	work  sync.WaitGroup

	denials  chan struct{} // semaphore: records being written
	opening  chan struct{} // semaphore: sessions being opened or closed
	frontUID uint32        // the user that an embedded supervisor's front-end said it became

	unwanted chan []*os.File // descriptors to be closed

	mu       sync.Mutex
	runs     map[uint32]Run      // guarded by mu: by tag
	sessions []*sessions.Session // guarded by mu: those that end with the connection
}

// sendPatience is how long a client may leave a message unread before the connection ends.
const sendPatience = 20 * time.Second

// discard closes descriptors that are not needed any more. The kernel takes a while to close a large memfd, and
// Prober.Discard blocks if the user has too many unclosed directories. So one goroutine per connection does it, and
// the connection counts until it has finished.
func (c *client) discard() {
	for files := range c.unwanted {
		fault.Do(c.s.Log, "descriptors of a connection", func() { c.s.Probes.Discard(c.peer.Payer(), files...) }, "uid", c.peer.UID)
	}
}

// MaxClientRuns bounds the jobs in progress of one connection.
const MaxClientRuns = 256

// serve handles messages. A message that violates the protocol ends the connection: no correct client sends one.
func (c *client) serve(ctx context.Context) error {
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
func (c *client) contain(tag uint32, f func() error) error {
	err := fault.Contain(c.s.Log, "a request", f, "uid", c.peer.UID)
	if errors.Is(err, fault.ErrInternal) {
		c.refuse(tag, &job.Refusal{
			Step: "internal", Message: err.Error(), Hint: "the operator finds the reason in the log of corrald: internal error",
		})
	}
	return err
}

// handle handles one message. It takes over files if it returns nil.
func (c *client) handle(ctx context.Context, head wire.Header, body []byte, files []*os.File) error {
	switch head.Op {
	case wire.OpRun:
		return c.run(ctx, head.Tag, body, files)
	case wire.OpOpen:
		return c.open(head.Tag, body, files)
	}
	if len(files) > 0 {
		return wire.ErrMalformed
	}
	switch head.Op {
	case wire.OpHello:
		return c.hello(head.Tag)
	case wire.OpSignal:
		return c.signal(head.Tag, body)
	case wire.OpList:
		return c.list(head.Tag, false)
	case wire.OpCommands:
		return c.list(head.Tag, true)
	case wire.OpDenials:
		return c.listDenials(head.Tag)
	case wire.OpDrain:
		return c.drain(head.Tag, body)
	case wire.OpKill:
		return c.kill(head.Tag, body)
	case wire.OpReload:
		return c.reload(head.Tag, body)
	case wire.OpFacts:
		return c.facts(head.Tag)
	case wire.OpDenied:
		return c.denied(ctx, head.Tag, body)
	case wire.OpState:
		return c.state(head.Tag, body)
	case wire.OpClose:
		return c.closeSession(head.Tag, body)
	case wire.OpConnect:
		return c.connect(head.Tag, body)
	case wire.OpPorts:
		return c.ports(head.Tag, body)
	case wire.OpSessions:
		return c.listSessions(head.Tag)
	case wire.OpImages:
		return c.listImages(head.Tag)
	case wire.OpRemoveImage:
		return c.removeImage(head.Tag, body)
	}
	return fmt.Errorf("operation %d: %w", head.Op, wire.ErrMalformed)
}

func (c *client) run(ctx context.Context, tag uint32, body []byte, files []*os.File) error {
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
		defer q.Close(c.s.Probes, c.peer.Payer()) // nothing, unless Serve was not reached or ended by a panic
		if fault.Do(c.s.Log, "the answer about a job", func() { c.serveRun(ctx, tag, r, q) }, "uid", c.peer.UID) {
			c.conn.Shutdown()
		}
	})
	return nil
}

// serveRun runs a job and answers with its result.
func (c *client) serveRun(ctx context.Context, tag uint32, r Run, q *admit.Request) {
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
func (c *client) begin(tag uint32) (Run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs[tag] != nil {
		return nil, fmt.Errorf("tag %d in use: %w", tag, wire.ErrMalformed)
	}
	if err := c.place.forJobs(); err != nil {
		return nil, err
	}
	if len(c.runs) >= MaxClientRuns {
		return nil, admit.TooMany(MaxClientRuns, MaxClientRuns, "per connection")
	}
	r := c.s.Jobs.NewRun(c.peer)
	c.runs[tag] = r
	return r, nil
}

func (c *client) forget(tag uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, tag)
}

func (c *client) signal(tag uint32, body []byte) error {
	signal, err := wire.Decode[wire.Signal](body)
	if err != nil {
		return err
	}
	if r := fault.Get(&c.mu, func() Run { return c.runs[tag] }); r != nil { // otherwise the job has ended in the meantime
		r.Signal(signal)
	}
	return nil
}
