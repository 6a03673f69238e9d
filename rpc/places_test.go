package rpc

import (
	"errors"
	"syscall"
	"testing"

	"corral/internal/jsonrpc"
	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestPlaces: errors quote what a client or a job wrote escaped, and cut.
func TestPlaces(t *testing.T) {
	sandboxtest.CheckShown(t, []sandboxtest.Place{
		{Name: "unknown method", Lines: 1, Most: 6*maxWord + 200, Shows: func(s string) string {
			return (&client{initialized: true}).serve(&message{method: s}).Message
		}},
		{Name: "client's name", Lines: 1, Most: maxWord + len("…"), Shows: printable},
		{Name: "denied", Lines: 1, Most: 6*maxSaid + 200, Shows: func(s string) string {
			p := &process{launch: launch{family: execFamily}}
			return p.denied(&job.Record{Decision: job.Decision{Reasons: []string{s}}}).Message
		}},
		{Name: "not run", Lines: 1, Most: 6*maxSaid + 200, Shows: func(s string) string {
			p := &process{launch: launch{family: execFamily}}
			return p.unspawned(&job.Refusal{Message: s}).Message
		}},
	})
	if got := jsonrpc.Errorf(jsonrpc.CodeRequest, "%v", errors.New("a\n\x1b[2J\u202e")).Message; got != "a\n"+`\x1b[2J\u202e` {
		t.Errorf("%q", got)
	}
}

// TestNoRoom: a session that the disk has no room for is refused in the supervisor's words, not by the kernel's error alone.
func TestNoRoom(t *testing.T) {
	p := &process{launch: launch{family: execFamily}}
	r := &job.Refusal{Step: "session", Errno: int(syscall.ENOSPC), Message: "no room for a layer", Hint: "end sessions"}
	if got := p.unspawned(r).Message; got != "failed to spawn command: no room for a layer hint: end sessions" {
		t.Errorf("%q", got)
	}
}
