package isolate

import (
	"corral/isolate/wire"
	"corral/job"
)

// reload makes the supervisor read its configuration again, and replies with notes for the operator. It runs in the
// connection's own goroutine: a client has at most one reload under way.
func (c *connection) reload(tag uint32) error {
	if !c.peer.MayOperate() {
		return c.send(tag, answerOf(onlyRoot("make the supervisor read its configuration again")))
	}
	done, err := c.s.Reload()
	if err != nil {
		return c.send(tag, answerOf(err))
	}
	return sendList(c, tag, done.Notes(), func(text *string) wire.Message { return &wire.Note{Text: *text} })
}

// drain makes the supervisor refuse new jobs and sessions, or admit them again.
func (c *connection) drain(tag uint32, m wire.Drain) error {
	if !c.peer.MayOperate() {
		return c.send(tag, answerOf(onlyRoot("drain the supervisor")))
	}
	c.s.jobs.drain.Store(!m.Undo)
	c.s.config.Log.Info("drain", "on", !m.Undo)
	return c.send(tag, answerOf(nil))
}

func (c *connection) kill(tag uint32, m wire.Kill) error {
	return c.send(tag, answerOf(c.s.jobs.kill(c.peer, m.Job)))
}

func onlyRoot(what string) error {
	return &job.Refusal{Step: "request", Message: "only root may " + what, Hint: "run the command with sudo"}
}
