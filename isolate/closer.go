package isolate

import (
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/inside"
)

// To close a directory of a client's can take as long as the client wants: with the last descriptor of a mount that is attached
// nowhere its file system ends, and that of a FUSE server does not end before a read of the server's does, into memory that
// another such server backs. A thread would be lost for each, and the process could not exit. So these directories are closed by
// helpers: one holds them too, they are closed here, and then there.

const (
	// maxUserClosing bounds the helpers that close something for one user: as many as there may be looks, so that a user whose
	// helpers all hang has nothing received or looked at either.
	maxUserClosing = maxUserProbes
	// maxWaitingCloses is how many directories of a user wait to be closed. Who has one more waits.
	maxWaitingCloses = 512
	// closeBatch is how many directories a helper closes at a time.
	closeBatch = 64
	// closePause is the time between two attempts to start a helper.
	closePause = 100 * time.Millisecond
)

// A fileCloser closes directories that clients control.
type fileCloser struct {
	probes *prober

	mu      sync.Mutex
	changed sync.Cond              // of mu: a queue became shorter, or the supervisor ends
	users   map[uint32]*closeQueue // guarded by mu: those who have something to be closed
	ending  bool                   // guarded by mu: nobody waits for a helper any more
}

type closeQueue struct {
	waiting []*os.File
	helpers int // that close something, or are started
}

func (c *fileCloser) begin(p *prober) {
	c.probes, c.changed.L, c.users = p, &c.mu, map[uint32]*closeQueue{}
	context.AfterFunc(p.ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ending = true
		c.changed.Broadcast()
	})
}

// discard closes files that a user controls, soon, and takes them over; nil ones are passed over. It waits only while the user has
// too many that are not closed.
func (p *prober) discard(user uint32, files ...*os.File) {
	for _, f := range files {
		if f != nil {
			p.closer.add(user, f)
		}
	}
}

// add is discard of one file.
func (c *fileCloser) add(user uint32, f *os.File) {
	if closesAtOnce(f) {
		f.Close()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.of(user)
	for len(q.waiting) >= maxWaitingCloses && !c.ending {
		c.changed.Wait()
		q = c.of(user)
	}
	q.waiting = append(q.waiting, f)
	if q.helpers < maxUserClosing {
		q.helpers++
		go c.work(user, q)
	}
}

// of returns a user's queue. The caller holds c.mu.
func (c *fileCloser) of(user uint32) *closeQueue {
	if c.users[user] == nil {
		c.users[user] = &closeQueue{}
	}
	return c.users[user]
}

// closesAtOnce says of a descriptor, from memory, whether to close it asks no file system. A directory is on one that has a
// device then: no user can mount such a one, and an overlay has none.
func closesAtOnce(f *os.File) bool {
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err == nil && flags&unix.O_PATH == 0 {
		return true // a pipe or a file in memory: see receive
	}
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	return err == nil && st.Mask&unix.STATX_TYPE != 0 && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Dev_major != 0
}

// work closes what a user has waiting.
func (c *fileCloser) work(user uint32, q *closeQueue) {
	for {
		c.mu.Lock()
		n := min(len(q.waiting), closeBatch)
		batch := q.waiting[:n:n]
		q.waiting = q.waiting[n:]
		if n == 0 {
			if q.helpers--; q.helpers == 0 && c.users[user] == q {
				delete(c.users, user)
			}
		}
		c.changed.Broadcast()
		c.mu.Unlock()
		if n == 0 {
			return
		}
		c.closeAll(user, batch)
	}
}

// closeAll closes directories by a helper, and returns when they are closed, or the supervisor ends. If no helper can be started it
// tries again; at the end of the supervisor they stay open then.
func (c *fileCloser) closeAll(user uint32, batch []*os.File) {
	for len(batch) > 0 {
		h, err := c.probes.helper()
		if err != nil {
			c.probes.log.Warn("no process to close directories", "error", err)
			select {
			case <-time.After(closePause):
				continue
			case <-c.probes.ctx.Done():
				return
			}
		}
		h.conn.SetDeadline(time.Now().Add(slotPatience))
		for len(batch) > 0 {
			if err := h.conn.SendDescriptors(inside.Probe{Kind: inside.ProbeHold}.Append(), int(batch[0].Fd())); err != nil {
				break // the helper is broken; the rest is for another one
			}
			batch[0].Close()
			batch = batch[1:]
		}
		c.release(user, h)
	}
}

// release has a helper close what it holds. While that takes too long it counts as an abandoned look of the user's.
func (c *fileCloser) release(user uint32, h *probeHelper) {
	p := c.probes
	h.conn.SetDeadline(time.Time{})
	stop := context.AfterFunc(p.ctx, func() { h.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	charged := make(chan struct{})
	late := time.AfterFunc(p.patience, func() {
		defer close(charged)
		p.log.Warn("a process that closes a client's directories is abandoned", "uid", user, "pid", h.pid)
		p.charge(user)
	})
	_, _, err := h.exchange(inside.Probe{Kind: inside.ProbeClose})
	uncharge := func() {
		if !late.Stop() {
			<-charged
			p.count(user, -1, -1)
		}
	}
	if err != nil {
		p.kill(h, uncharge) // which may end only when the file system lets it
		return
	}
	uncharge()
	p.keep(h)
}

// finish passes what waits on to helpers that end, when the supervisor does. Nothing is added any more.
func (c *fileCloser) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.users) > 0 {
		c.changed.Wait()
	}
}
