package isolate

import (
	"os"
	"slices"

	"corral/internal/fault"
	"corral/isolate/sessions"
	"corral/isolate/wire"
)

// maxClientSessions bounds the sessions that one connection opens or closes at a time. Beyond it, the connection is
// not read.
const maxClientSessions = 64

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
		return c.background(tag, c.opening, func() (wire.Message, error) {
			return &wire.Closed{}, c.s.sessions.CheckAdmitted(c.peer, m, dir, common)
		}, files...)
	}
	if err := c.place.forJobs(); err != nil {
		c.refuse(tag, err)
		c.giveUp(files)
		return nil
	}
	return c.background(tag, c.opening, func() (wire.Message, error) {
		ss, err := c.s.sessions.OpenAdmitted(c.peer, m, dir, common)
		if err != nil {
			return nil, err
		}
		if !ss.Lasts() {
			c.forgetEnded()
			fault.With(&c.mu, func() { c.sessions = append(c.sessions, ss) })
		}
		words := ss.Info()
		return wire.Session(&words), nil
	}, files...)
}

// giveUp has files closed soon.
func (c *connection) giveUp(files []*os.File) {
	if len(files) > 0 {
		c.unwanted <- files
	}
}

func (c *connection) closeSession(tag uint32, m wire.CloseSession) error {
	return c.background(tag, c.opening, func() (wire.Message, error) {
		kept, err := c.s.sessions.CloseSession(c.peer, m.ID, m.Keep)
		c.forgetEnded()
		return &wire.Closed{Kept: kept}, err
	})
}

// forgetEnded drops sessions that have ended from the connection's list.
func (c *connection) forgetEnded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions = slices.DeleteFunc(c.sessions, func(ss *sessions.Session) bool { return ss.IsGone() })
}

// endSessions ends the sessions that the connection opened for itself.
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

func (c *connection) removeImage(tag uint32, m wire.RemoveImage) error {
	c.reply(tag, &wire.Closed{}, c.s.sessions.RemoveImage(c.peer, m.Name))
	return nil
}
