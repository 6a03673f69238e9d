package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
	"corral/job"
)

// TestConcurrentCalls: concurrent callers each get their own answer, whichever of them receives and in whatever order
// they arrive.
func TestConcurrentCalls(t *testing.T) {
	const many = 64
	for name, order := range map[string]func([]uint32){
		"first asked, first answered": func([]uint32) {},
		"last asked, first answered":  slices.Reverse[[]uint32],
		"half and half":               func(tags []uint32) { slices.Reverse(tags[many/2:]) },
	} {
		t.Run(name, func(t *testing.T) {
			sandboxtest.Leaks(t)
			c, s := supervisor(t)
			var work sync.WaitGroup
			for range many {
				work.Go(func() {
					r, err := c.Run(t.Context(), job.Spec{Repo: "/", Args: []string{"true"}}, streams(t))
					if err != nil || r.Status != job.Success {
						t.Errorf("%+v, %v", r, err)
					}
				})
			}
			var tags []uint32
			for range many {
				head, _, files := next(t, s)
				wire.CloseAll(files)
				tags = append(tags, head.Tag)
			}
			order(tags)
			for _, tag := range tags {
				if err := s.Send(wire.Encode(&wire.Result{Outcome: wire.Exited, Job: fmt.Sprint(tag)}, tag)); err != nil {
					t.Fatal(err)
				}
			}
			work.Wait()
		})
	}
}

// TestReceiverHandsOver: a caller that received and has its answer wakes another one to receive.
func TestReceiverHandsOver(t *testing.T) {
	c, s := supervisor(t)
	var first, second sync.WaitGroup
	ask := func(group *sync.WaitGroup) uint32 {
		group.Go(func() {
			if w, err := c.Hello(); err != nil || w.Instance != "x" {
				t.Errorf("%+v, %v", w, err)
			}
		})
		head, _, _ := next(t, s)
		return head.Tag
	}
	a, b := ask(&first), ask(&second)
	for tag, group := range map[uint32]*sync.WaitGroup{a: &first, b: &second} {
		if err := s.Send(wire.Encode(&wire.Welcome{Instance: "x"}, tag)); err != nil {
			t.Fatal(err)
		}
		group.Wait()
	}
}

// TestBusyCallerBlocksNobody: a caller that is busy with its answer does not block other callers.
func TestBusyCallerBlocksNobody(t *testing.T) {
	sandboxtest.Leaks(t)
	c, s := supervisor(t)
	null := devNull(t)
	var work sync.WaitGroup
	busy, done := make(chan struct{}), make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		if _, err := c.Hello(); err != nil {
			t.Error(err)
		}
	})
	head, _, _ := next(t, s) // that one receives when the job is asked for
	asked := []uint32{head.Tag}
	work.Go(func() {
		spec := job.Spec{Repo: "/", Args: []string{"true"}, Terminal: job.Size{Rows: 1, Cols: 1}}
		r, err := c.Start(spec, job.Stdio{}, func(m *os.File) {
			m.Close()
			close(busy)
			<-done
		})
		if err != nil {
			t.Error(err)
			return
		}
		if got, err := r.Wait(); err != nil || got.Status != job.Success {
			t.Errorf("%+v, %v", got, err)
		}
	})
	run, _, files := next(t, s)
	wire.CloseAll(files)
	for range 2 {
		others.Go(func() {
			if _, err := c.Hello(); err != nil {
				t.Error(err)
			}
		})
		head, _, _ := next(t, s)
		asked = append(asked, head.Tag)
	}
	if err := s.Send(wire.Encode(wire.Empty(wire.OpTerminal), run.Tag), null); err != nil {
		t.Fatal(err)
	}
	<-busy
	for _, tag := range asked {
		if err := s.Send(wire.Encode(&wire.Welcome{}, tag)); err != nil {
			t.Fatal(err)
		}
	}
	others.Wait()
	close(done)
	if err := s.Send(wire.Encode(&wire.Result{Outcome: wire.Exited}, run.Tag)); err != nil {
		t.Fatal(err)
	}
	work.Wait()
}

// TestCanceledCall: a caller that stops waiting blocks nobody, and answers to it are closed.
func TestCanceledCall(t *testing.T) {
	sandboxtest.Leaks(t)
	c, s := supervisor(t)
	null := devNull(t)
	ctx, cancel := context.WithCancel(t.Context())
	var left sync.WaitGroup
	left.Go(func() {
		if _, err := c.ask(ctx, &wire.State{UID: 7}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	given, _, _ := next(t, s)
	cancel()
	left.Wait()
	var work sync.WaitGroup
	for range 3 {
		work.Go(func() {
			if _, err := c.Hello(); err != nil {
				t.Error(err)
			}
		})
		head, _, _ := next(t, s)
		for _, message := range [][]byte{wire.Encode(&wire.Answer{}, given.Tag), wire.Encode(&wire.Welcome{}, head.Tag)} {
			files := []*os.File{null}
			if message[2] == byte(wire.OpWelcome) {
				files = nil
			}
			if err := s.Send(message, files...); err != nil {
				t.Fatal(err)
			}
		}
		work.Wait()
	}
}

// TestErr: Err reports the end of the connection although nobody waits for an answer.
func TestErr(t *testing.T) {
	c, s := supervisor(t)
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	s.Close()
	if err := c.Err(); !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("after the supervisor's end: %v", err)
	}
	c, _ = supervisor(t)
	c.Close()
	if err := c.Err(); !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("after the close: %v", err)
	}
	if _, err := c.Hello(); !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("a request after the close: %v", err)
	}
}
