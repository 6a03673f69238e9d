package isolate

import (
	"io"
	"os"
	"slices"
	"time"

	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/wire"
)

// maxClientSessions bounds the sessions that one connection opens or closes at a time. Beyond it, the connection is
// not read.
const maxClientSessions = 64

// startBackground runs work in a goroutine of the connection, so that slow work does not delay its other requests. It
// blocks while maxClientSessions are running.
func (c *client) startBackground(work func()) error {
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

// open replies with a new session. The session ends with the connection unless the request asks for a lasting one.
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
		return c.startBackground(func() {
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
	return c.startBackground(func() {
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
		words := ss.info()
		c.answer(wire.AppendSession(&words, tag))
	})
}

// maxUserOpenings bounds the sessions being opened for one user over all connections, and maxOpenings those of all
// users. They bound the threads and processes that a client's own file system can block. A single connection reaches
// maxClientSessions first, which makes it wait instead of failing.
const (
	maxUserOpenings = maxClientSessions
	maxOpenings     = 512
)

// openAdmitted opens a session unless too many are being opened. This is checked before anything that the client
// named or passed is accessed.
func (s *Supervisor) openAdmitted(peer host.Peer, m wire.Open, dir, common *os.File) (*session, error) {
	if err := s.beginOpening(peer.Payer()); err != nil {
		return nil, err
	}
	defer s.endOpening(peer.Payer())
	return s.open(peer, m, dir, common)
}

// checkAdmitted is openAdmitted for a client that only asks whether it could have the session. It runs the same
// checks.
func (s *Supervisor) checkAdmitted(peer host.Peer, m wire.Open, dir, common *os.File) error {
	if err := s.beginOpening(peer.Payer()); err != nil {
		return err
	}
	defer s.endOpening(peer.Payer())
	return s.checkOpen(peer, m, dir, common)
}

// beginOpening counts one more session that is being opened, or refuses it. The caller must call endOpening.
func (s *Supervisor) beginOpening(uid uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.opening[uid]
	if n >= maxUserOpenings || s.openingAll >= maxOpenings {
		r := sessionRefusal("too many sessions are being opened at once: %d of yours, %d of all users", n, s.openingAll)
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

// refuse sends the reason for the failure of a request that is not about a job.
func (c *client) refuse(tag uint32, err error) {
	r := admit.RefusedResult(err)
	c.answer(r.Append(tag))
}

func (c *client) closeSession(tag uint32, body []byte) error {
	m, err := wire.ReadCloseSession(body)
	if err != nil {
		return err
	}
	return c.startBackground(func() {
		kept, err := c.s.closeSession(c.peer, m.ID, m.Keep)
		c.forgetEnded()
		if err != nil {
			c.refuse(tag, err)
			return
		}
		c.answer(wire.Closed{Kept: kept}.Append(tag))
	})
}

// forgetEnded drops sessions that have ended from the connection's list.
func (c *client) forgetEnded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions = slices.DeleteFunc(c.sessions, func(ss *session) bool { return isClosed(ss.jail.gone) })
}

// endSessions ends the sessions that the connection opened for itself.
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

// stamp sets the session's opening time so that changes of the repository can be told apart by it: a change made
// before the request to open has an earlier time, and a change made after stamp returns has no earlier time. A change
// in between precedes the session's first job.
//
// File times come either from a clock that advances in ticks, which other processors of a virtual machine may delay
// for long, or from the exact clock (Documentation/filesystems/multigrain-ts.rst). So stamp waits until the tick
// clock has passed the opening time, which was read from the exact clock.
func (ss *session) stamp() {
	began, opened := ss.opened, host.FileTime() // no other goroutine changes ss.opened
	if opened.After(began) {                    // processors may differ
		began = opened
	}
	for n := 0; n < 1000 && !opened.After(began); n++ { // bounded in case the clock was set back
		time.Sleep(time.Millisecond)
		opened = host.FileTime()
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.opened = opened
}
