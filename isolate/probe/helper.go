package probe

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/wire"
)

// prompt is how long a thread waits for a helper, see wire.Conn: several times as long as an answer takes that no file system delays.
// At most MaxAll threads wait at a time, as each waits in a probe.
const prompt = 200 * time.Microsecond

type helper struct {
	conn *wire.Conn
	pid  int

	closing bool      // it is closing descriptors that it passed on, and will report when that is done
	by      payer     // whom that probe is charged to
	since   time.Time // when the closing began
}

// A request is a question to a helper.
type request struct {
	inside.Probe
	fds  []int            // at most one, sent along
	ends func(error) bool // reports whether the helper exits after an answer with this error; nil: after none
}

// exchange sends a request and waits for the answer, for p.Patience at most, and not beyond the supervisor's end.
func (p *Prober) exchange(h *helper, r request) ([]byte, []*os.File, error) {
	h.conn.SetDeadline(time.Now().Add(p.Patience))
	stop := context.AfterFunc(p.ctx, func() { h.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return h.exchange(r)
}

// exchange sends a request and waits for the answer.
func (h *helper) exchange(r request) ([]byte, []*os.File, error) {
	if err := h.conn.SendDescriptors(r.Append(), r.fds...); err != nil {
		return nil, nil, err
	}
	return h.conn.Receive()
}

// takeHelper returns an idle helper or starts one. It skips helpers that are still closing descriptors and abandons those
// for which that takes too long, because otherwise one user would wait for another user's file system.
func (p *Prober) takeHelper() (*helper, error) {
	found, late := p.takeIdle()
	for _, h := range late {
		p.abandonClosing(h)
	}
	if found != nil {
		return found, nil
	}
	return p.start()
}

// takeIdle takes an idle helper, if there is one, and those that take too long to close descriptors.
func (p *Prober) takeIdle() (found *helper, late []*helper) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = slices.DeleteFunc(p.idle, func(h *helper) bool {
		switch {
		case found != nil:
			return false
		case h.ready():
			found = h
			return true
		case time.Since(h.since) > p.Patience:
			late = append(late, h)
			return true
		}
		return false
	})
	return found, late
}

// ready reports, without waiting, whether the helper can take a question. One that has exited cannot.
func (h *helper) ready() bool {
	if h.closing {
		message, err := h.conn.Poll()
		h.closing = err != nil || message == nil
		return !h.closing
	}
	return !h.conn.Ended()
}

// keep keeps a helper for the next probe, or ends it.
func (p *Prober) keep(h *helper) {
	kept := fault.Get(&p.mu, func() bool {
		room := len(p.idle) < maxIdleProbes && p.ctx.Err() == nil
		if room {
			p.idle = append(p.idle, h)
		}
		return room
	})
	switch {
	case kept:
	case h.closing:
		p.abandonClosing(h)
	default:
		h.end()
	}
}

// abandonClosing abandons a helper whose probe has already ended.
func (p *Prober) abandonClosing(h *helper) {
	p.add(h.by, 1, 0)
	p.killStuck(h.by, h)
}

// start starts a helper, which is confined when start returns.
func (p *Prober) start() (*helper, error) {
	ours, theirs, err := wire.PairFor(inside.ProbedSize + wire.MaxMessage)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	defer host.Forking()() // until it has answered, which it does after execve
	attr := &syscall.ProcAttr{
		Dir: "/", Files: []uintptr{host.NoFile, host.NoFile, host.NoFile, theirs.Fd()}, Env: []string{},
		Sys: &syscall.SysProcAttr{Setsid: true}, // a terminal's signals are for the supervisor alone
	}
	pid, err := host.Fork(p.Program, inside.ProbeName, attr)
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start a probe helper: %w", err)
	}
	ours.Prompt = prompt
	h := &helper{conn: ours, pid: pid}
	theirs.Close() // so that the socket closes when the helper exits
	ours.SetDeadline(time.Now().Add(host.SlotPatience))
	answer, files, err := h.exchange(request{Probe: inside.Probe{Kind: inside.ProbeStart, UID: p.User}})
	wire.CloseAll(files)
	if err == nil {
		_, err = inside.ReadProbed(answer)
	}
	if err != nil {
		h.end()
		return nil, fmt.Errorf("start a probe helper: %w", err)
	}
	return h, nil
}

// end kills and reaps a helper that has no probe in progress.
func (h *helper) end() {
	h.conn.Close()
	_ = syscall.Kill(h.pid, syscall.SIGKILL)
	host.Reap(h.pid)
}

// abandon kills a helper that has not answered, and counts it as stuck until it has exited. Nothing waits for that:
// the kernel may not let it exit before its file system answers.
func (p *Prober) abandon(by payer, h *helper) {
	p.Log.Warn("probe helper abandoned: a client's file system does not answer", "uid", by.uid, "entry", by.entry, "pid", h.pid)
	p.killStuck(by, h)
}

// killStuck kills a helper that is counted as busy for a payer, and ends its count once it has exited; until then it counts as stuck.
// ended is closed after that.
func (p *Prober) killStuck(by payer, h *helper) (ended <-chan struct{}) {
	p.add(by, 0, 1)
	done := make(chan struct{})
	p.kill(h, func() {
		p.add(by, -1, -1)
		close(done)
	})
	return done
}

// kill kills a helper, and calls ended in another goroutine once it has exited.
func (p *Prober) kill(h *helper, ended func()) {
	h.conn.Close()
	_ = syscall.Kill(h.pid, syscall.SIGKILL)
	go func() {
		host.AwaitEnd(h.pid)
		host.Reap(h.pid)
		ended()
	}()
}
