package probe

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/wire"
)

// Closing a descriptor that a client sent can take as long as the client wants:
//
//   - The last descriptor of a mount that is attached nowhere ends its file system. A FUSE file system does not end before its
//     server has finished a read, into memory that another FUSE server backs.
//   - Closing a socket also closes the descriptors in messages that were not received: files on FUSE, sockets that linger.
//
// A thread of the supervisor would be lost for each, and the process could not exit. Therefore a helper process also holds the
// descriptor, the supervisor closes its own copy, and then the helper closes. If the helper hangs, the supervisor aborts the FUSE
// file systems of that user that have requests under way (fuse(4), fusectl), after which the kernel closes.

const (
	// maxUserClosing bounds the helpers that close for one user. It equals the maximum of probes: a user whose helpers all hang
	// cannot have anything received or probed either.
	maxUserClosing = MaxUser
	// maxWaitingCloses bounds the descriptors of a user that wait to be closed. Beyond it, discard blocks.
	maxWaitingCloses = 512
	// maxParked bounds the connections of all users that wait beyond maxWaitingCloses, so that the accept loop does not block.
	maxParked = 16384
	// closeBatch is how many descriptors a helper closes at a time.
	closeBatch = 64
	// closePause is the time between two attempts to start a helper, and between two aborts for one user.
	closePause = 100 * time.Millisecond
)

// A fileCloser closes descriptors that clients control.
type fileCloser struct {
	probes *Prober
	fuse   *os.File // the root of a fusectl file system; nil: this kernel has no FUSE

	mu      fault.Mutex
	changed sync.Cond             // of mu: a queue became shorter, or the supervisor ends
	payers  map[payer]*closeQueue // guarded by mu: who has something to close
	ending  bool                  // guarded by mu: the supervisor is ending; add no longer waits
	aborts  sync.WaitGroup        // running calls of abort; counted up under mu
}

type closeQueue struct {
	waiting []closable
	helpers int       // being started, or closing
	aborted time.Time // when the user's FUSE file systems were last aborted
}

// A closable is a descriptor to close: a file or a connection.
type closable struct {
	file *os.File
	conn *wire.Conn
}

// sendTo has a helper hold the descriptor.
func (c closable) sendTo(h *helper) error {
	send := func(fd int) error { return h.conn.SendDescriptors(inside.Probe{Kind: inside.ProbeHold}.Append(), fd) }
	if c.conn != nil {
		return c.conn.Hand(send)
	}
	return send(int(c.file.Fd()))
}

func (c closable) close() {
	if c.conn != nil {
		c.conn.Close()
		return
	}
	c.file.Close()
}

func (c *fileCloser) begin(p *Prober) error {
	c.probes, c.changed.L, c.payers = p, &c.mu, map[payer]*closeQueue{}
	context.AfterFunc(p.ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ending = true
		c.changed.Broadcast()
	})
	var err error
	c.fuse, err = openFuseControl()
	return err
}

// Discard takes over files that a client passed or named and closes them soon; nil files are skipped. user is the peer's payer. It
// blocks only while too many descriptors of this user wait.
func (p *Prober) Discard(user uint32, files ...*os.File) { p.discard(userOf(user), files...) }

func (p *Prober) discard(by payer, files ...*os.File) {
	for _, f := range files {
		switch {
		case f == nil:
		case closesAtOnce(f):
			f.Close()
		default:
			p.closer.add(by, closable{file: f}, false)
		}
	}
}

// HangUp takes over a client's connection and closes it soon. It blocks only while maxParked connections wait.
func (p *Prober) HangUp(user uint32, conn *wire.Conn) {
	conn.Shutdown() // the client can send nothing more
	if !conn.Unread() || !holdsDescriptors(conn) {
		conn.Close()
		return
	}
	p.closer.add(userOf(user), closable{conn: conn}, true)
}

// add queues a descriptor. A parked one does not wait for the user's queue to become shorter.
func (c *fileCloser) add(by payer, d closable, park bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.of(by)
	for len(q.waiting) >= maxWaitingCloses && !c.ending && (!park || c.parked() >= maxParked) {
		c.abortSoon(by, q)
		c.changed.Wait()
		q = c.of(by)
	}
	if len(q.waiting) >= maxWaitingCloses {
		c.abortSoon(by, q)
	}
	q.waiting = append(q.waiting, d)
	if q.helpers < maxUserClosing {
		q.helpers++
		go c.work(by, q)
	}
}

// parked returns the number of connections that wait beyond maxWaitingCloses. The caller holds c.mu.
func (c *fileCloser) parked() int {
	n := 0
	for _, q := range c.payers {
		n += max(0, len(q.waiting)-maxWaitingCloses)
	}
	return n
}

// of returns a payer's queue, adding it if necessary. The caller holds c.mu.
func (c *fileCloser) of(by payer) *closeQueue {
	if c.payers[by] == nil {
		c.payers[by] = &closeQueue{}
	}
	return c.payers[by]
}

// closesAtOnce reports whether closing a file calls no file system and waits for nobody, judging only by what is in memory. A pipe and
// a memfd qualify (see Prober.Receive), and so does a directory whose file system has a device major number: users cannot mount such a
// file system, and an overlay has none. A socket can linger.
func closesAtOnce(f *os.File) bool {
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err == nil && flags&unix.O_PATH == 0 {
		_, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_TYPE)
		return errors.Is(err, unix.ENOTSOCK)
	}
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	return err == nil && st.Mask&unix.STATX_TYPE != 0 && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Dev_major != 0
}

// holdsDescriptors reports whether descriptors wait in a connection's queue. It returns true if that is not known.
func holdsDescriptors(conn *wire.Conn) bool {
	holds := true
	_ = conn.Hand(func(fd int) error {
		queued, known, err := host.QueuedDescriptors("/proc/self/fdinfo/" + strconv.Itoa(fd))
		holds = queued || !known || err != nil
		return nil
	})
	return holds
}

// work closes a user's queued descriptors until the queue is empty.
func (c *fileCloser) work(by payer, q *closeQueue) {
	for {
		batch := c.next(by, q)
		if len(batch) == 0 {
			return
		}
		fault.Do(c.probes.Log, "closing descriptors", func() { c.closeAll(by, q, batch) }, "uid", by.uid)
	}
}

// next takes descriptors from a user's queue. When it is empty, the caller must end.
func (c *fileCloser) next(by payer, q *closeQueue) []closable {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(q.waiting), closeBatch)
	batch := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	if n == 0 {
		if q.helpers--; q.helpers == 0 && c.payers[by] == q {
			delete(c.payers, by)
		}
	}
	c.changed.Broadcast()
	return batch
}

// closeAll closes descriptors through a helper. It returns when they are closed or the supervisor ends. If no helper can be started it
// retries; when the supervisor ends, the remaining descriptors stay open.
func (c *fileCloser) closeAll(by payer, q *closeQueue, batch []closable) {
	for len(batch) > 0 {
		h, err := c.probes.takeHelper()
		if err != nil {
			c.probes.Log.Warn("no helper process to close descriptors", "error", err)
			select {
			case <-time.After(closePause):
				continue
			case <-c.probes.ctx.Done():
				return
			}
		}
		h.conn.SetDeadline(time.Now().Add(host.SlotPatience))
		for len(batch) > 0 {
			if err := batch[0].sendTo(h); err != nil {
				break // the helper is broken; another one takes the rest
			}
			batch[0].close()
			batch = batch[1:]
		}
		host.AwaitForks(c.probes.ctx) // they have copies of what was closed here
		c.release(by, q, h)
	}
}

// release tells a helper to close what it holds and waits for that. A helper that takes too long is killed, which ends the wait for a
// socket that lingers, and counts as an abandoned probe of the user until it has exited.
func (c *fileCloser) release(by payer, q *closeQueue, h *helper) {
	p := c.probes
	_, files, err := p.exchange(h, request{Probe: inside.Probe{Kind: inside.ProbeClose}})
	wire.CloseAll(files)
	if err == nil {
		p.keep(h)
		return
	}
	if p.ctx.Err() != nil {
		p.kill(h, func() {})
		return
	}
	p.Log.Warn("a helper process that closes a client's descriptors hangs", "uid", by.uid, "entry", by.entry, "pid", h.pid, "error", err)
	p.add(by, 1, 0)
	ended := p.killStuck(by, h)
	for {
		select {
		case <-ended:
			return
		case <-p.ctx.Done():
			return
		case <-time.After(closePause):
		}
		fault.With(&c.mu, func() { c.abortSoon(by, q) })
	}
}

// abortSoon starts to abort the FUSE file systems of a user that have requests under way, unless that was done within closePause.
// It aborts none for root, or for a configured directory. The caller holds c.mu.
func (c *fileCloser) abortSoon(by payer, q *closeQueue) {
	if c.fuse == nil || by.uid == 0 || time.Since(q.aborted) < closePause {
		return
	}
	q.aborted = time.Now()
	fuse := c.fuse
	c.aborts.Go(func() {
		n, err := abortFUSE(fuse, func(uid uint32) bool { return c.probes.Payer(uid) == by.uid })
		if n > 0 || err != nil {
			c.probes.Log.Warn("FUSE file systems aborted that keep descriptors from being closed", "uid", by.uid, "count", n, "error", err)
		}
	})
}

// finish waits until every queue is empty. The supervisor is ending, so no helper is waited for. add must not be called any more.
func (c *fileCloser) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.payers) > 0 {
		c.changed.Wait()
	}
	c.aborts.Wait()
	if c.fuse != nil {
		c.fuse.Close()
		c.fuse = nil
	}
}
