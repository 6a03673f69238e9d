package client

import (
	"context"
	"fmt"

	"corral/isolate/wire"
)

// Reload makes the supervisor read its configuration again, which only root may. It returns notes for the operator, or
// why the former configuration still applies.
func (c *Client) Reload() ([]string, error) {
	notes, err := all(c, wire.OpReload, wire.Decode[wire.Note])
	var list []string
	for _, n := range notes {
		list = append(list, n.Text)
	}
	return list, err
}

// Drain makes the supervisor refuse new jobs and sessions, or with undo admit them again, which only root may request.
func (c *Client) Drain(undo bool) error {
	_, err := c.ask(context.Background(), &wire.Drain{Undo: undo})
	return err
}

// Kill ends the job called id, which another connection may have started: a job of the caller's user, or for root any. It
// returns before the job has ended.
func (c *Client) Kill(id string) error {
	if len(id) > wire.MaxName { // cut, it would name another job
		return fmt.Errorf("no job %.40q…: an id has at most %d characters", id, wire.MaxName)
	}
	_, err := c.ask(context.Background(), &wire.Kill{Job: id})
	return err
}
