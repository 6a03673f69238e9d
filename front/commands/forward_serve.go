package commands

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"corral/front/supervisor"
	"corral/internal/text"
	"corral/job"
)

const (
	// maxConnections is the maximum number of connections at a time. Further ones wait to be accepted.
	maxConnections = 512
	// connectPatience is how long a server of the session may take to accept a connection.
	connectPatience = 10 * time.Second
)

// errSessionEnded is why serve stops when the session has ended.
var errSessionEnded = errors.New("the session has ended")

// serve forwards connections until ctx or the session ends: then it returns nil.
func (w *forwarder) serve(ctx context.Context) error {
	defer w.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, maxConnections)
	var work sync.WaitGroup
	for _, l := range w.listeners {
		work.Go(func() { cancel(w.accept(ctx, l, slots, &work, cancel)) })
	}
	work.Go(func() { cancel(w.awaitEnd(ctx)) })
	<-ctx.Done()
	w.close()
	work.Wait()
	switch err := context.Cause(ctx); {
	case errors.Is(err, errSessionEnded):
		w.say("the session has ended")
		return nil
	case errors.Is(err, context.Canceled):
		return nil
	default:
		return err
	}
}

// accept serves the connections of one listener until ctx ends. Each of them takes one of slots.
func (w *forwarder) accept(
	ctx context.Context, l forwardListener, slots chan struct{}, work *sync.WaitGroup, cancel context.CancelCauseFunc,
) error {
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		work.Go(func() {
			defer func() { <-slots }()
			if err := w.forward(ctx, conn.(*net.TCPConn), l.port); err != nil {
				cancel(err)
			}
		})
	}
}

// forward copies between a connection of the host and a new one to a port of the session. It returns an error only if no
// further connection can succeed.
func (w *forwarder) forward(ctx context.Context, outside *net.TCPConn, port uint16) error {
	defer outside.Close()
	within, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	inside, err := supervisor.ConnectTCP(within, w.ports, w.session.ID, port)
	if err != nil {
		_ = outside.SetLinger(0) // the other end sees a reset, as from a port that nobody listens at
		var r *job.Refusal
		switch {
		case errors.As(err, &r) && r.Step == "session":
			return errSessionEnded
		case errors.Is(err, job.ErrUnavailable):
			return err
		case ctx.Err() == nil:
			w.say(fmt.Sprintf("connection to port %d: %s", port, text.Line(err.Error(), 300)))
		}
		return nil
	}
	defer inside.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = outside.Close()
		_ = inside.Close()
	})
	defer stop()
	joinConns(outside, inside)
	return nil
}

// joinConns copies both ways until both are done. The end of one direction is passed on, and does not end the other one; an
// error ends both.
func joinConns(a, b *net.TCPConn) {
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		both.Go(func() {
			from, to := way[0], way[1]
			_, err := to.ReadFrom(from)
			if err == nil {
				err = to.CloseWrite()
			}
			if err != nil {
				_ = from.Close()
				_ = to.Close()
			}
		})
	}
	both.Wait()
}

// awaitEnd returns when the session has ended, or ctx has.
func (w *forwarder) awaitEnd(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.check):
		}
		list, err := w.sessions.ListSessions(ctx)
		if err != nil {
			return err
		}
		open := false
		for _, s := range list {
			open = open || s.ID == w.session.ID && !s.Kept
		}
		if !open {
			return errSessionEnded
		}
	}
}
