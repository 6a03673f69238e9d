package isolate

import (
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/wire"
)

// maxClientSessions bounds the sessions that one connection opens or closes at a time: beyond, it is not read on.
const maxClientSessions = 64

// begun starts a piece of a connection's work that takes its time.
func (c *client) begun(work func()) error {
	select {
	case c.opening <- struct{}{}:
	case <-c.s.ctx.Done():
		return io.EOF
	}
	c.work.Go(func() {
		defer func() { <-c.opening }()
		work()
	})
	return nil
}

// open answers with a new session. It ends with the connection, unless it was asked to last.
func (c *client) open(tag uint32, body []byte, files []*os.File) error {
	m, err := wire.ReadOpen(body)
	if err != nil {
		return err
	}
	if len(files) != m.Descriptors() {
		return wire.ErrMalformed
	}
	var dir, common *os.File
	if m.Flags&wire.FlagRepo != 0 {
		dir = files[0]
	}
	if m.Flags&wire.FlagCommon != 0 {
		common = files[len(files)-1]
	}
	if m.Flags&wire.OpenCheck != 0 {
		return c.begun(func() {
			err := c.s.checkAdmitted(c.peer, m, dir, common)
			if len(files) > 0 {
				c.unwanted <- files
			}
			if err != nil {
				c.refuse(tag, err)
				return
			}
			c.answer(wire.Closed{}.Append(tag))
		})
	}
	return c.begun(func() {
		ss, err := c.s.openAdmitted(c.peer, m, dir, common)
		if len(files) > 0 {
			c.unwanted <- files
		}
		if err != nil {
			c.refuse(tag, err)
			return
		}
		if !ss.lasts() {
			c.forgetEnded()
			c.mu.Lock()
			c.sessions = append(c.sessions, ss)
			c.mu.Unlock()
		}
		words := ss.words()
		c.answer(wire.AppendSession(&words, tag))
	})
}

// maxUserOpenings bounds the sessions that are being opened for one user, over all connections, and maxOpenings those of all
// users: what a client's file system keeps waiting is bounded by them. One connection alone meets its own bound first, and
// is made to wait.
const (
	maxUserOpenings = maxClientSessions
	maxOpenings     = 512
)

// openAdmitted opens a session if there is room for one more that is being opened. This is decided before anything of the
// client's is looked at.
func (s *Supervisor) openAdmitted(peer Peer, m wire.Open, dir, common *os.File) (*session, error) {
	if err := s.beginOpening(peer.payer()); err != nil {
		return nil, err
	}
	defer s.endOpening(peer.payer())
	return s.open(peer, m, dir, common)
}

// checkAdmitted is openAdmitted for a client that only asks whether it could have the session: the same is looked at.
func (s *Supervisor) checkAdmitted(peer Peer, m wire.Open, dir, common *os.File) error {
	if err := s.beginOpening(peer.payer()); err != nil {
		return err
	}
	defer s.endOpening(peer.payer())
	return s.checkOpen(peer, m, dir, common)
}

// beginOpening admits one more session to be opened. The caller must call endOpening.
func (s *Supervisor) beginOpening(uid uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.opening[uid]
	if n >= maxUserOpenings || s.openingAll >= maxOpenings {
		r := sessionRefusal("%d sessions of yours are being opened, which is the most at once, and %d of all users", n, s.openingAll)
		r.Hint = "try again when one is open"
		return r
	}
	s.opening[uid]++
	s.openingAll++
	return nil
}

func (s *Supervisor) endOpening(uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openingAll--
	if s.opening[uid]--; s.opening[uid] == 0 {
		delete(s.opening, uid)
	}
}

// refuse answers a request that is not about a job with why it came to nothing.
func (c *client) refuse(tag uint32, err error) {
	r := refused(err)
	c.answer(r.Append(tag))
}

func (c *client) closeSession(tag uint32, body []byte) error {
	m, err := wire.ReadCloseSession(body)
	if err != nil {
		return err
	}
	return c.begun(func() {
		kept, err := c.s.closeSession(c.peer, m.ID, m.Keep)
		c.forgetEnded()
		if err != nil {
			c.refuse(tag, err)
			return
		}
		c.answer(wire.Closed{Kept: kept}.Append(tag))
	})
}

// forgetEnded lets go of sessions that have ended.
func (c *client) forgetEnded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions = slices.DeleteFunc(c.sessions, func(ss *session) bool { return isClosed(ss.jail.gone) })
}

// endSessions ends what the connection opened for itself.
func (c *client) endSessions() {
	c.mu.Lock()
	sessions := c.sessions
	c.sessions = nil
	c.mu.Unlock()
	for _, ss := range sessions {
		ss.logEnd(ss.endWithClient())
	}
}

func (c *client) listSessions(tag uint32) error {
	for _, s := range c.s.sessionsOf(c.peer) {
		if err := c.conn.Send(wire.AppendSession(&s, tag)); err != nil {
			return err
		}
	}
	return c.conn.Send(wire.Empty(wire.OpEnd, tag))
}

func (c *client) listImages(tag uint32) error {
	list, err := c.s.images.list()
	if err != nil {
		c.refuse(tag, err)
		return nil
	}
	for _, i := range list {
		if err := c.conn.Send(wire.AppendImage(&i, tag)); err != nil {
			return err
		}
	}
	return c.conn.Send(wire.Empty(wire.OpEnd, tag))
}

func (c *client) removeImage(tag uint32, body []byte) error {
	m, err := wire.ReadRemoveImage(body)
	if err != nil {
		return err
	}
	if err := c.s.removeImage(c.peer, m.Name); err != nil {
		c.refuse(tag, err)
		return nil
	}
	c.answer(wire.Closed{}.Append(tag))
	return nil
}

// stamp makes the time of the session's opening one that tells changes of the repository apart: those before the request
// to open it have an earlier time, those after this call have none earlier. What is between is there before the first job.
//
// Files are stamped by a clock of ticks, which other processors of a virtual machine may hold up for long, or by the exact
// one (Documentation/filesystems/multigrain-ts.rst). So it waits until the first is where the second was.
func (ss *session) stamp() {
	began, opened := ss.opened, fileTime() // which nobody else changes
	if opened.After(began) {               // processors may differ
		began = opened
	}
	for n := 0; n < 1000 && !opened.After(began); n++ { // unless the clock was set back
		time.Sleep(time.Millisecond)
		opened = fileTime()
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.opened = opened
}

// fileTime is the time by the clock of ticks.
func fileTime() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return time.Now() // no kernel lacks it
	}
	return time.Unix(ts.Unix())
}
