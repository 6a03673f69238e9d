package isolate

import (
	"io"
	"os"
	"slices"

	"corral/internal/fault"
	"corral/isolate/admit"
	"corral/isolate/sessions"
	"corral/isolate/wire"
)

// maxClientSessions bounds the sessions that one connection opens or closes at a time. Beyond it, the connection is
// not read.
const maxClientSessions = 64

// startBackground runs work in a goroutine of the connection, so that slow work does not delay its other requests. It
// blocks while maxClientSessions are running.
func (c *connection) startBackground(tag uint32, work func()) error {
	select {
	case c.opening <- struct{}{}:
	case <-c.s.ctx.Done():
		return io.EOF
	}
	c.work.Go(func() {
		defer func() { <-c.opening }()
		_ = c.contain(tag, func() error { work(); return nil }) // the connection goes on
	})
	return nil
}

// open replies with a new session. The session ends with the connection unless the request asks for a lasting one.
func (c *connection) open(tag uint32, body []byte, files []*os.File) error {
	m, err := wire.Decode[wire.Open](body)
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
		return c.startBackground(tag, func() {
			defer c.giveUp(files)
			err := c.s.sessions.CheckAdmitted(c.peer, m, dir, common)
			if err != nil {
				c.refuse(tag, err)
				return
			}
			c.answer(tag, &wire.Closed{})
		})
	}
	if err := c.place.forJobs(); err != nil {
		c.refuse(tag, err)
		c.giveUp(files)
		return nil
	}
	return c.startBackground(tag, func() {
		defer c.giveUp(files)
		ss, err := c.s.sessions.OpenAdmitted(c.peer, m, dir, common)
		if err != nil {
			c.refuse(tag, err)
			return
		}
		if !ss.Lasts() {
			c.forgetEnded()
			fault.With(&c.mu, func() { c.sessions = append(c.sessions, ss) })
		}
		words := ss.Info()
		c.answer(tag, wire.Session(&words))
	})
}

// giveUp has files closed soon.
func (c *connection) giveUp(files []*os.File) {
	if len(files) > 0 {
		c.unwanted <- files
	}
}

// refuse sends the reason for the failure of a request that is not about a job.
func (c *connection) refuse(tag uint32, err error) {
	r := admit.RefusedResult(err)
	c.answer(tag, &r)
}

func (c *connection) closeSession(tag uint32, body []byte) error {
	m, err := wire.Decode[wire.CloseSession](body)
	if err != nil {
		return err
	}
	return c.startBackground(tag, func() {
		kept, err := c.s.sessions.CloseSession(c.peer, m.ID, m.Keep)
		c.forgetEnded()
		if err != nil {
			c.refuse(tag, err)
			return
		}
		c.answer(tag, &wire.Closed{Kept: kept})
	})
}

// forgetEnded drops sessions that have ended from the connection's list.
func (c *connection) forgetEnded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions = slices.DeleteFunc(c.sessions, func(ss *sessions.Session) bool { return ss.IsGone() })
}

// EndSessions ends the sessions that the connection opened for itself.
func (c *connection) endSessions() {
	var own []*sessions.Session
	fault.With(&c.mu, func() { own, c.sessions = c.sessions, nil })
	for _, ss := range own {
		ss.LogEnd(ss.EndWithClient())
	}
}

func (c *connection) listSessions(tag uint32) error {
	return sendList(c, tag, c.s.sessions.SessionsOf(c.peer), wire.Session)
}

func (c *connection) listImages(tag uint32) error {
	list, err := c.s.sessions.ListImages()
	if err != nil {
		c.refuse(tag, err)
		return nil
	}
	return sendList(c, tag, list, wire.Image)
}

func (c *connection) removeImage(tag uint32, body []byte) error {
	m, err := wire.Decode[wire.RemoveImage](body)
	if err != nil {
		return err
	}
	if err := c.s.sessions.RemoveImage(c.peer, m.Name); err != nil {
		c.refuse(tag, err)
		return nil
	}
	c.answer(tag, &wire.Closed{})
	return nil
}
