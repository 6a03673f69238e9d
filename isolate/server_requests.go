package isolate

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"corral/internal/fault"
	"corral/isolate/admit"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

func (c *connection) hello(tag uint32) error {
	w := wire.Welcome{Instance: c.s.InstanceName(), Record: c.s.config.Audit.Record}
	if c.peer.Embedded {
		id := c.s.NobodyID()
		w.FrontUID, w.FrontGID = id, id
	}
	return c.send(tag, &w)
}

// maxCommands is how many jobs of a list have a command line, the newest: a client that is slow has as many files open.
const maxCommands = 256

// list replies with the running jobs: the client's own, or all if the client is root.
func (c *connection) list(tag uint32) error {
	return sendList(c, tag, c.s.jobs.entries(c.peer), func(e *wire.Entry) wire.Message { return e })
}

// listCommands is list with the command lines, which it passes unread: that is for the client, whose process may block in it.
func (c *connection) listCommands(tag uint32) error {
	entries := c.s.jobs.entries(c.peer)
	for n, e := range entries {
		var files []*os.File
		if n >= len(entries)-maxCommands {
			if f := c.s.jobs.command(e.Job); f != nil {
				files = append(files, f)
			}
		}
		err := c.send(tag, &e, files...)
		wire.CloseAll(files)
		if err != nil {
			return err
		}
	}
	return c.send(tag, wire.Empty(wire.OpEnd))
}

func (c *connection) listDenials(tag uint32) error {
	return sendList(c, tag, c.s.recent.of(c.peer), func(d *wire.Denial) wire.Message { return d })
}

func (c *connection) facts(tag uint32) error {
	return sendList(c, tag, c.s.facts(), func(f *wire.Fact) wire.Message { return f })
}

// facts returns what the supervisor knows about the host without running anything.
func (s *Supervisor) facts() []wire.Fact {
	list := []wire.Fact{{Name: "cgroup layout", Present: true, Detail: s.instance.Tree.Layout()}}
	for _, f := range s.instance.Tree.Features() {
		list = append(list, wire.Fact{Name: f.Name, Present: f.Present, Detail: f.Without})
	}
	list = append(list, wire.Fact{Name: "open files", Present: true, Detail: strconv.FormatInt(s.reloads.now.Load().openFiles(), 10)})
	list = append(list, wire.Fact{Name: "user ids", Present: true, Detail: fmt.Sprintf("%d+%d", s.config.UIDBase, s.config.UIDSize)})
	list = append(list, wire.Fact{Name: "audit log", Present: true, Detail: s.audit.Expiring()})
	list = append(list, wire.Fact{Name: "internal errors", Present: true, Detail: strconv.FormatInt(fault.Contained(), 10)})
	list = append(list, wire.Fact{Name: "exposed", Present: true, Detail: strings.Join(s.reloads.now.Load().Exposed, "; ")})
	return append(list, wire.Fact{Name: "profiles", Present: true, Detail: strings.Join(seccomp.Profiles(), " ")})
}

// maxClientDenials bounds the records being written for one connection. Beyond it, the connection is not read.
const maxClientDenials = 64

// denied records a request that the front-end denied, concurrently with the connection's other requests, because the
// disk may be slow.
func (c *connection) denied(tag uint32, m wire.Denied) error {
	return c.background(tag, c.denials, func() (wire.Message, error) { return answerOf(c.s.denied(c.peer, m.Claim)), nil })
}

// background has a goroutine of the connection do what takes long, reply, and give up files, so that its other requests do not wait. It
// blocks while all of turns are taken.
func (c *connection) background(tag uint32, turns chan struct{}, work func() (wire.Message, error), files ...*os.File) error {
	select {
	case turns <- struct{}{}:
	case <-c.s.ctx.Done():
		return io.EOF
	}
	c.work.Go(func() {
		defer func() { <-turns }()
		defer c.giveUp(files)
		_ = c.contain(tag, func() error { // the connection goes on
			m, err := work()
			c.reply(tag, m, err)
			return nil
		})
	})
	return nil
}

// reply answers a request that is not about a job: with the reason for its failure, or with m, unless that is nil.
func (c *connection) reply(tag uint32, m wire.Message, err error) {
	switch {
	case err != nil:
		c.refuse(tag, err)
	case m != nil:
		c.answer(tag, m)
	}
}

// refuse sends the reason for the failure of a request that is not about a job.
func (c *connection) refuse(tag uint32, err error) {
	r := admit.RefusedResult(err)
	c.answer(tag, &r)
}

// answer sends a message from a goroutine other than the connection's own. If the client does not read it in time the
// connection is shut down: otherwise the next message would wait as long again, and so would the end of the
// supervisor.
func (c *connection) answer(tag uint32, m wire.Message, files ...*os.File) {
	if err := c.send(tag, m, files...); err != nil {
		c.conn.Shutdown()
	}
}

func (c *connection) send(tag uint32, m wire.Message, files ...*os.File) error {
	return c.conn.Send(wire.Encode(m, tag), files...)
}

// sendList sends a message for each element of a list, and the list's end.
func sendList[T any](c *connection, tag uint32, list []T, message func(*T) wire.Message) error {
	for i := range list {
		if err := c.send(tag, message(&list[i])); err != nil {
			return err
		}
	}
	return c.send(tag, wire.Empty(wire.OpEnd))
}

// state replies with a user's state directory.
func (c *connection) state(tag uint32, m wire.State) error {
	dir, err := c.stateFor(m.UID)
	if err != nil {
		return c.send(tag, answerOf(err))
	}
	defer dir.Close()
	return c.send(tag, &wire.Answer{}, dir)
}

func answerOf(err error) *wire.Answer {
	if err == nil {
		return &wire.Answer{}
	}
	return &wire.Answer{Error: err.Error()}
}

// stateFor opens a user's state directory for a client: that of its own user, or, for a front-end of root, that of the user it
// becomes.
func (c *connection) stateFor(uid uint32) (*os.File, error) {
	becomes := c.peer.Embedded || c.peer.UID == 0 && uid != 0
	switch {
	case uid == unchangedUID || c.peer.Embedded && uid == 0:
		return nil, &job.Refusal{Message: fmt.Sprintf("user %d has no state directory", uid)}
	case !becomes && uid != c.peer.UID:
		return nil, &job.Refusal{Message: fmt.Sprintf("the state directory of user %d is not yours (you are user %d)", uid, c.peer.UID)}
	case c.peer.Holder != 0: // each of 65,536 ids would have a directory, which no one removes
		return nil, &job.Refusal{
			Message: fmt.Sprintf("user %d is a subordinate id of user %d (subuid(5)) and has no state directory", uid, c.peer.Holder),
			Hint:    "run the front-end as that user, outside the user namespace",
		}
	case becomes && c.frontUID != 0 && uid != c.frontUID:
		return nil, &job.Refusal{Message: fmt.Sprintf("this front-end has already become user %d", c.frontUID)}
	}
	if becomes {
		c.frontUID = uid
	}
	return c.s.state.UserDir(uid)
}

// unchangedUID is the user id that chown(2) interprets as "leave unchanged".
const unchangedUID = 1<<32 - 1
