package cgroup

import (
	"fmt"
)

// Kill sends SIGKILL to every process of the job, also to stopped ones and to those being forked. It does not wait
// until they have ended; [Job.Remove] does. The error wraps [ErrUnkillable] if, without cgroup.kill, new processes
// appear all the time.
func (g *Job) Kill() error {
	if g.instance.has.kill {
		if err := g.dirs[0].Write(killFile, "1"); err != nil {
			return fmt.Errorf("kill cgroup: %w", err)
		}
		return nil
	}
	if err := killFrozen(g.dirs[0].Path); err != nil {
		return fmt.Errorf("kill cgroup: %w", err)
	}
	return nil
}
