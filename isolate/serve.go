package isolate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// Serve accepts connections until the listener closes. Who connects is known by SO_PEERCRED.
func (s *Supervisor) Serve(l *net.UnixListener) error {
	var told time.Time
	untold := 0
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
			if untold++; time.Since(told) > time.Second { // who is refused can come again at once
				s.config.Log.Warn("client not served", "error", err, "times", untold)
				told, untold = time.Now(), 0
			}
		}
	}
}

// acceptPause is how long no connection is accepted after the machine ran out of something.
const acceptPause = 100 * time.Millisecond

// transient says whether an error of accept(2) is about this moment or this client, and not about the listener.
func transient(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// accept serves a new connection, in a goroutine of its own.
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
	groups, err := conn.PeerGroups()
	if err != nil {
		conn.Close()
		return err
	}
	peer := Peer{UID: cred.Uid, holder: s.subuids.holder(cred.Uid), Account: &directory.Account{UID: cred.Uid, GID: cred.Gid, Groups: groups}}
	if !s.connect(peer.payer(), 1) {
		s.probes.hangUp(peer.payer(), conn)
		return fmt.Errorf("user %d has too many connections, or has sent descriptors that cannot be closed", peer.payer())
	}
	go func() {
		// As long as something that the client sent is being closed, which can take as long as the client wants, its connection
		// counts: what it keeps of threads is bounded by that.
		<-s.serveConn(conn, peer)
		s.connect(peer.payer(), -1)
	}()
	return nil
}

// maxConnections bounds the connections of all users.
const maxConnections = 2048

// maxHostile is how many messages of one user may have had a descriptor that no client of ours sends: then no connection of
// that user's is accepted any more.
const maxHostile = 8

// receive has a helper process receive a message with descriptors. If none is left for the user, or the message has a
// descriptor that nobody can close, the request is refused and the connection ends.
func (c *client) receive(socket int, head []byte) ([]byte, []*os.File, error) {
	message, files, err := c.s.probes.receive(c.peer.payer(), socket)
	if errors.As(err, new(*job.Refusal)) {
		if h, _, failed := wire.ReadHeader(head); failed == nil {
			c.refuse(h.Tag, err)
		}
	}
	return message, files, err
}

// noteHostile counts such a message.
func (s *Supervisor) noteHostile(uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostile[uid]++
}

// connect counts a connection of a user, or says that there are too many.
func (s *Supervisor) connect(uid uint32, change int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change > 0 && uid != 0 && (s.connections[uid] >= s.config.MaxPerUser || s.connected >= maxConnections || s.hostile[uid] >= maxHostile) {
		return false
	}
	s.connected += change
	if s.connections[uid] += change; s.connections[uid] == 0 {
		delete(s.connections, uid)
	}
	return true
}

// ServeConn serves one client until it closes conn; its jobs end with it. It returns when all of them are gone.
func (s *Supervisor) ServeConn(conn *wire.Conn, peer Peer) { s.serveConn(conn, peer) }

// serveConn is ServeConn. closed is closed when all descriptors are that the client sent for nothing.
func (s *Supervisor) serveConn(conn *wire.Conn, peer Peer) (closed <-chan struct{}) {
	done := make(chan struct{})
	if !s.beginIn(&s.clients) {
		s.probes.hangUp(peer.payer(), conn)
		close(done)
		return done
	}
	defer s.clients.Done()
	ctx, cancel := context.WithCancel(s.ctx)
	conn.Patience = s.config.patience
	c := &client{s: s, conn: conn, peer: peer, runs: map[uint32]*run{}, denials: make(chan struct{}, maxClientDenials), opening: make(chan struct{}, maxClientSessions), unwanted: make(chan []*os.File)}
	if !peer.Embedded { // who can harm no supervisor but its own
		conn.Guard = c.receive
	}
	go func() {
		defer close(done)
		c.discard()
	}()
	defer close(c.unwanted)
	// When the supervisor ends it reads no more requests; the jobs under way still get their answer.
	stop := context.AfterFunc(s.ctx, func() { conn.CloseRead() })
	err := c.serve(ctx)
	stop()
	cancel()
	if errors.Is(err, errForeign) {
		s.noteHostile(peer.payer())
	}
	if !errors.Is(err, io.EOF) {
		conn.Shutdown() // who breaks the protocol hears no more
	}
	c.work.Wait() // what is under way is still answered
	c.endSessions()
	s.probes.hangUp(peer.payer(), conn)
	if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
		s.config.Log.Warn("client dropped", "uid", peer.UID, "error", err)
	}
	return done
}

// A client is one connection.
type client struct {
	s    *Supervisor
	conn *wire.Conn
	peer Peer
	work sync.WaitGroup

	denials chan struct{} // one for each record that is being written
	opening chan struct{} // one for each session that is being opened or closed
	became  uint32        // who an embedded supervisor's front-end said it became

	unwanted chan []*os.File // descriptors to be closed

	mu       sync.Mutex
	runs     map[uint32]*run // guarded by mu: by tag
	sessions []*session      // guarded by mu: that end with the connection
}

// sendPatience is how long a client may leave an answer unread before the connection ends.
const sendPatience = 20 * time.Second

// discard closes descriptors that a client sent for nothing. A large file in memory takes the kernel a while to close, and who has
// too many directories to be closed waits: so one goroutine a connection does it, and the connection counts until it has.
func (c *client) discard() {
	for files := range c.unwanted {
		c.s.probes.discard(c.peer.payer(), files...)
	}
}

// maxClientRuns bounds what one connection can have under way.
const maxClientRuns = 256

// serve handles messages. One that is not of the protocol ends the connection: no client of ours sends it.
func (c *client) serve(ctx context.Context) error {
	for {
		message, files, err := c.conn.Receive()
		if err != nil {
			return err
		}
		head, body, err := wire.ReadHeader(message)
		if err == nil {
			err = c.handle(ctx, head, body, files)
		}
		if err != nil {
			if len(files) > 0 {
				c.unwanted <- files
			}
			return err
		}
	}
}

// handle takes over files when it returns nil.
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
		return c.list(head.Tag)
	case wire.OpFacts:
		return c.facts(head.Tag)
	case wire.OpDenied:
		return c.denied(ctx, head.Tag, body)
	case wire.OpState:
		return c.state(head.Tag, body)
	case wire.OpClose:
		return c.closeSession(head.Tag, body)
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
	message, err := wire.ReadRun(body)
	if err != nil {
		return err
	}
	if len(files) != message.Descriptors() {
		return wire.ErrMalformed
	}
	q := &Request{Run: message, Payload: files[0]}
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
	var refusal *job.Refusal
	if errors.As(err, &refusal) {
		result := refused(err)
		c.unwanted <- files
		c.answer(result.Append(tag))
		return nil
	}
	if err != nil {
		return err
	}
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		growStack()
		result := c.s.serveJob(ctx, r, q, func(master *os.File) {
			c.answer(wire.Empty(wire.OpTerminal, tag), master)
			master.Close()
		})
		c.forget(tag)
		c.answer(result.Append(tag))
		c.s.tell(r, &result)
	}()
	return nil
}

// begin makes the run of a tag, which a signal that follows on the connection finds. A tag that is in use is no message of a
// client's of ours; more runs than a connection may have are refused.
func (c *client) begin(tag uint32) (*run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs[tag] != nil {
		return nil, fmt.Errorf("tag %d in use: %w", tag, wire.ErrMalformed)
	}
	if len(c.runs) >= maxClientRuns {
		return nil, tooMany(maxClientRuns, "a connection may have")
	}
	r := c.s.newRun(c.peer)
	c.runs[tag] = r
	return r, nil
}

func (c *client) forget(tag uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, tag)
}

func (c *client) signal(tag uint32, body []byte) error {
	signal, err := wire.ReadSignal(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	r := c.runs[tag]
	c.mu.Unlock()
	if r != nil { // else it ended meanwhile
		r.order(signal)
	}
	return nil
}

// list admits a run, or refuses it when there are too many. It comes before anything is looked at that a client names:
// what a file system of the client's own keeps waiting is bounded by it.
func (s *Supervisor) list(r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) >= s.config.MaxJobs {
		return tooMany(len(s.jobs), "this supervisor runs")
	}
	if n := s.perUser[r.peer.payer()]; r.peer.UID != 0 && n >= s.config.MaxPerUser {
		return tooMany(n, "a user may run")
	}
	r.started = time.Now()
	s.jobs[r.id] = r
	s.live.Add(1)
	s.perUser[r.peer.payer()]++
	return nil
}

func tooMany(n int, who string) error {
	return &job.Refusal{
		Step: "request", Message: fmt.Sprintf("%d jobs run, which is the most %s at once", n, who),
		Hint: "try again when one has ended",
	}
}

func (s *Supervisor) unlist(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.jobs, r.id)
	s.left.Store(int64(time.Since(s.began)))
	s.live.Add(-1)
	if s.perUser[r.peer.payer()]--; s.perUser[r.peer.payer()] == 0 {
		delete(s.perUser, r.peer.payer())
	}
}

// setRepo notes where a listed run runs.
func (s *Supervisor) setRepo(r *run, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.repo = path
}

func (s *Supervisor) entries(peer Peer) []wire.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []wire.Entry
	for _, r := range s.jobs {
		if peer.UID == r.peer.UID || peer.UID == 0 {
			list = append(list, wire.Entry{Job: r.id, UID: r.peer.UID, Started: r.started.UnixNano(), Repo: r.repo})
		}
	}
	sort.Slice(list, func(i, k int) bool { return list[i].Started < list[k].Started })
	return list
}

// facts is what the supervisor knows of the host without running anything.
func (s *Supervisor) facts() []wire.Fact {
	list := []wire.Fact{{Name: "cgroup layout", Present: true, Detail: s.instance.tree.Layout()}}
	for _, f := range s.instance.tree.Features() {
		list = append(list, wire.Fact{Name: f.Name, Present: f.Present, Detail: f.Without})
	}
	list = append(list, wire.Fact{Name: "open files", Present: true, Detail: strconv.FormatInt(s.config.openFiles(), 10)})
	return append(list, wire.Fact{Name: "profiles", Present: true, Detail: strings.Join(seccomp.Profiles(), " ")})
}
