package job

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
)

// A live stage has hooks for streamed input and a terminal.
type live struct {
	*stage
	stdin    *os.File
	terminal *os.File
	broken   error
}

func (l *live) Stdin() (*os.File, error) {
	l.note("stdin")
	return l.stdin, l.broken
}

func (l *live) Terminal(master *os.File) {
	l.note("terminal")
	l.terminal = master
}

// TestStreamedInputAndTerminal: streamed input comes from its hook, and a terminal goes to its hook in place of pipes.
func TestStreamedInputAndTerminal(t *testing.T) {
	master, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	size := Size{Rows: 1, Cols: 2}
	broken := errors.New("broken")
	for _, tt := range []struct {
		name    string
		request Request
		broken  error
		streams error
		steps   []string
		err     error
	}{
		{"streamed", Request{Streamed: true, Stdin: "unused"}, nil, nil, []string{"decide", "stdin", "streams", "run", "finish", "discard"}, nil},
		{"broken input", Request{Streamed: true}, broken, nil, []string{"decide", "stdin", "discard"}, broken},
		{"no pipes", Request{Streamed: true}, nil, broken, []string{"decide", "stdin", "streams", "discard"}, broken},
		{"terminal", Request{Terminal: size}, nil, nil, []string{"decide", "run", "terminal", "finish", "discard"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			s := &stage{decision: allowed(), streams: tt.streams}
			l := &live{stage: s, stdin: r, broken: tt.broken}
			s.run = func(_ context.Context, _ Spec, stdio Stdio) (Result, error) {
				if stdio.Terminal != nil {
					stdio.Terminal(master)
				} else if stdio.Stdin != r {
					t.Error("stdin is not the hook's pipe")
				}
				return Result{Status: Success}, nil
			}
			_, err = s.engine().Run(t.Context(), &tt.request, s, Hooks{Stdin: l.Stdin, Terminal: l.Terminal})
			if !errors.Is(err, tt.err) || !slices.Equal(s.steps, tt.steps) {
				t.Errorf("%v, steps %q, want %v, %q", err, s.steps, tt.err, tt.steps)
			}
			if tt.request.Terminal == size && l.terminal != master {
				t.Error("the hook did not receive the terminal")
			}
			if tt.streams != nil && r.Close() == nil {
				t.Error("the job's end of the input was left open")
			}
		})
	}
}

// TestMissingHook: a missing hook that the request requires is an error, and nothing runs.
func TestMissingHook(t *testing.T) {
	for _, r := range []Request{{Streamed: true}, {Terminal: Size{Rows: 1, Cols: 1}}} {
		s := &stage{decision: allowed(), run: succeed}
		if _, err := s.engine().Run(t.Context(), &r, s, Hooks{}); err == nil || !slices.Equal(s.steps, []string{"decide", "discard"}) {
			t.Errorf("%+v: %v, %q", r, err, s.steps)
		}
	}
}

// signaled is a Signaler that does nothing.
type signaled struct{ attempt int }

func (signaled) Signal(int, bool) error { return nil }
func (signaled) End(int) error          { return nil }

// TestStarted: the hook receives the Signaler of each attempt to run the job; without it, Stdio.Started is nil.
func TestStarted(t *testing.T) {
	s := &stage{decision: allowed(), run: func(_ context.Context, _ Spec, stdio Stdio) (Result, error) {
		stdio.Started(signaled{1})
		two, ok := stdio.again(&Request{})
		if !ok {
			t.Fatal("the streams were not duplicated")
		}
		two.Started(signaled{2})
		two.close()
		return Result{Status: Success}, nil
	}}
	var got Signaler
	hooks := Hooks{Started: func(s Signaler) { got = s }}
	if _, err := s.engine().Run(t.Context(), &Request{}, s, hooks); err != nil || got != (signaled{2}) {
		t.Errorf("%v, %v", err, got)
	}
	s.run = func(_ context.Context, _ Spec, stdio Stdio) (Result, error) {
		if stdio.Started != nil {
			t.Error("Stdio.Started is set without a hook")
		}
		return Result{Status: Success}, nil
	}
	if _, err := s.engine().Run(t.Context(), &Request{}, s, Hooks{}); err != nil {
		t.Error(err)
	}
}
