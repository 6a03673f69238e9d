package isolate

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/serve"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// A backend is the supervisor for its server.
type backend struct{ s *Supervisor }

// NewRun returns a run for a job of peer.
func (b backend) NewRun(peer host.Peer) serve.Run { return b.s.newRun(peer) }

// Entries lists the running jobs that peer may see.
func (b backend) Entries(peer host.Peer) []wire.Entry { return b.s.jobs.entries(peer) }

// Command opens the command line of a job.
func (b backend) Command(id string) *os.File { return b.s.jobs.command(id) }

// Denials lists requests that were denied or refused lately.
func (b backend) Denials(peer host.Peer) []wire.Denial { return b.s.recent.of(peer) }

// Denied records a request that a front-end denied.
func (b backend) Denied(peer host.Peer, c job.Claim) error { return b.s.denied(peer, c) }

// Reload reads the configuration again, for root alone, and returns notes for the operator.
func (b backend) Reload(peer host.Peer) ([]string, error) {
	if !peer.MayOperate() {
		return nil, onlyRoot("make the supervisor read its configuration again")
	}
	done, err := b.s.Reload()
	return done.Notes(), err
}

// Drain begins or ends to refuse new jobs and sessions, for root alone.
func (b backend) Drain(peer host.Peer, on bool) error {
	if !peer.MayOperate() {
		return onlyRoot("drain the supervisor")
	}
	b.s.jobs.drain.Store(on)
	b.s.config.Log.Info("drain", "on", on)
	return nil
}

// Kill ends a job of peer's, or for root any job.
func (b backend) Kill(peer host.Peer, id string) error { return b.s.jobs.kill(peer, id) }

func onlyRoot(what string) error {
	return &job.Refusal{Step: "request", Message: "only root may " + what, Hint: "run the command with sudo"}
}

// Recording returns what the audit log has of programs.
func (b backend) Recording() job.Recording { return b.s.config.Audit.Record }

// InstanceName returns the supervisor's instance name.
func (b backend) InstanceName() string { return b.s.InstanceName() }

// NobodyID returns a host user id that no job ever has.
func (b backend) NobodyID() uint32 { return b.s.NobodyID() }

// Facts returns what the supervisor knows about the host without running anything.
func (b backend) Facts() []wire.Fact {
	list := []wire.Fact{{Name: "cgroup layout", Present: true, Detail: b.s.instance.Tree.Layout()}}
	for _, f := range b.s.instance.Tree.Features() {
		list = append(list, wire.Fact{Name: f.Name, Present: f.Present, Detail: f.Without})
	}
	list = append(list, wire.Fact{Name: "open files", Present: true, Detail: strconv.FormatInt(b.s.reloads.now.Load().openFiles(), 10)})
	list = append(list, wire.Fact{Name: "user ids", Present: true, Detail: fmt.Sprintf("%d+%d", b.s.config.UIDBase, b.s.config.UIDSize)})
	list = append(list, wire.Fact{Name: "audit log", Present: true, Detail: b.s.audit.Expiring()})
	list = append(list, wire.Fact{Name: "internal errors", Present: true, Detail: strconv.FormatInt(fault.Contained(), 10)})
	list = append(list, wire.Fact{Name: "exposed", Present: true, Detail: strings.Join(b.s.reloads.now.Load().Exposed, "; ")})
	return append(list, wire.Fact{Name: "profiles", Present: true, Detail: strings.Join(seccomp.Profiles(), " ")})
}
