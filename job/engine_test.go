package job

import (
	"context"
	"errors"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A stage implements everything around the engine, and records the order of its calls.
type stage struct {
	decision Decision
	decide   error
	audit    error
	streams  error
	run      func(ctx context.Context, spec Spec, stdio Stdio) (Result, error)

	mu     sync.Mutex
	steps  []string
	claims []Claim
	read   sync.WaitGroup
	out    string
}

func (s *stage) note(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, step)
}

func (s *stage) Decide(context.Context, *Request) (Decision, error) {
	s.note("decide")
	return s.decision, s.decide
}

func (s *stage) Denied(ctx context.Context, c Claim, _ Spec) error {
	s.note("audit")
	s.claims = append(s.claims, c)
	return errors.Join(s.audit, ctx.Err())
}

func (s *stage) Run(ctx context.Context, spec Spec, stdio Stdio) (Result, error) {
	s.note("run")
	s.claims = append(s.claims, spec.Claim)
	defer stdio.close()
	return s.run(ctx, spec, stdio)
}

func (s *stage) Handle() string { return "handle" }

func (s *stage) Streams() (stdout, stderr *os.File, err error) {
	s.note("streams")
	if s.streams != nil {
		return nil, nil, s.streams
	}
	r, stdout, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	s.read.Go(func() {
		b, _ := io.ReadAll(r)
		s.out = string(b)
		r.Close()
	})
	stderr, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	return stdout, stderr, err
}

func (s *stage) Written() (stdout, stderr int64) { return 5, 7 }
func (s *stage) Finish(*Record)                  { s.note("finish"); s.read.Wait() }
func (s *stage) Discard()                        { s.note("discard") }

func (s *stage) engine() *Engine {
	return &Engine{Policy: s, Runner: s, Auditor: s, Every: time.Millisecond}
}

func allowed() Decision {
	return Decision{Hash: "h", Code: "c", Args: "a", Spec: Spec{Repo: "/srv/x", Args: []string{"true"}}}
}

func succeed(context.Context, Spec, Stdio) (Result, error) { return Result{Status: Success}, nil }

var request = Request{
	Tool: "runtime_execute", Principal: "user:ada", Session: "s", ID: "1f", Repo: "x", Runtime: "shell", Dir: "sub",
}

func TestEngine(t *testing.T) {
	broken := errors.New("broken")
	refuse := func(step string, errno unix.Errno) func(context.Context, Spec, Stdio) (Result, error) {
		return func(context.Context, Spec, Stdio) (Result, error) {
			return Result{}, &Refusal{Step: step, Errno: int(errno), Message: "no: " + step}
		}
	}
	whole := []string{"decide", "streams", "run", "finish", "discard"}
	stopped := []string{"decide", "streams", "run", "discard"}
	denied := []string{"decide", "audit", "discard"}
	for _, tt := range []struct {
		name   string
		stage  *stage
		steps  []string
		status Status // "" for an error
		rule   string
		says   string // Message, or the last reason
		code   int
	}{
		{"success", &stage{decision: allowed(), run: succeed}, whole, Success, "", "", 0},
		{"denied", &stage{decision: Decision{Rule: "timeout", Reasons: []string{"too long"}}}, denied, Denied, "timeout", "too long", 0},
		{"denied, not written down", &stage{decision: Decision{Rule: "timeout", Reasons: []string{"x"}}, audit: broken}, denied, "", "", "", 0},
		{"missing", &stage{decision: Decision{Missing: "no ruby"}}, denied, Failure, "", "no ruby", 127},
		{"no decision", &stage{decide: broken}, []string{"decide", "discard"}, "", "", "", 0},
		{"no pipes", &stage{decision: allowed(), streams: broken}, []string{"decide", "streams", "discard"}, "", "", "", 0},
		{"no supervisor", &stage{decision: allowed(), run: func(context.Context, Spec, Stdio) (Result, error) { return Result{}, ErrUnavailable }}, stopped, "", "", "", 0},
		{"link out", &stage{decision: allowed(), run: refuse("cwd", unix.EXDEV)}, stopped, Denied, "cwd", `Relative CWD "sub" escapes repository root`, -1},
		{"missing directory", &stage{decision: allowed(), run: refuse("cwd", unix.ENOENT)}, stopped, Denied, "cwd", "Working directory does not exist: sub", -1},
		{"file as directory", &stage{decision: allowed(), run: refuse("cwd", unix.ENOTDIR)}, stopped, Denied, "cwd", "Working directory is not a directory: sub", -1},
		{"closed directory", &stage{decision: allowed(), run: refuse("cwd", unix.EACCES)}, stopped, Denied, "cwd", "Working directory cannot be entered: sub: permission denied", -1},
		{"directory named wrongly", &stage{decision: allowed(), run: refuse("cwd", 0)}, stopped, Denied, "cwd", "no: cwd", -1},
		{"ceiling", &stage{decision: allowed(), run: refuse("limits", 0)}, stopped, Denied, "supervisor", "no: limits", -1},
		{"ceiling with a hint", &stage{decision: allowed(), run: func(context.Context, Spec, Stdio) (Result, error) {
			return Result{}, &Refusal{Step: "limits", Message: "too much", Hint: "ask for less"}
		}}, stopped, Denied, "supervisor", "too much; ask for less", -1},
		{"readonly", &stage{decision: allowed(), run: refuse("workspace", 0)}, stopped, Denied, "supervisor", "no: workspace", -1},
		{"no such hosts", &stage{decision: allowed(), run: refuse("network", 0)}, stopped, Denied, "supervisor", "no: network", -1},
		{"no program", &stage{decision: allowed(), run: refuse("exec", unix.ENOENT)}, stopped, Failure, "", "true: no such program in the jail", 127},
		{"no executable", &stage{decision: allowed(), run: refuse("exec", unix.EACCES)}, stopped, Failure, "", "true cannot be executed: permission denied", 126},
		{"too much code", &stage{decision: allowed(), run: refuse("files", unix.ENOSPC)}, stopped, Failure, "", "no: files", -1},
		{"no room", &stage{decision: allowed(), run: refuse("request", 0)}, stopped, "", "", "", 0},
		{"not served", &stage{decision: allowed(), run: refuse("repo", 0)}, stopped, "", "", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.stage
			r, err := s.engine().Run(t.Context(), &request, s, Hooks{})
			if !slices.Equal(s.steps, tt.steps) {
				t.Errorf("steps %q, want %q", s.steps, tt.steps)
			}
			if tt.status == "" {
				if err == nil || r != nil && r.Status != Denied {
					t.Errorf("%+v, %v", r, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			says := r.Message
			if n := len(r.Decision.Reasons); n > 0 {
				says = r.Decision.Reasons[n-1]
			}
			if ran := slices.Contains(s.steps, "run"); (r.Refusal != nil) != (ran && !slices.Contains(s.steps, "finish")) {
				t.Errorf("refusal %+v", r.Refusal)
			}
			if r.Status != tt.status || r.Decision.Rule != tt.rule || says != tt.says || r.Result.ExitCode != tt.code {
				t.Errorf("%s, rule %q, %q, exit code %d", r.Status, r.Decision.Rule, says, r.Result.ExitCode)
			}
		})
	}
}

// TestClaimIsAudited: the caller and the hashes of the request are in the audit log, whether the request runs or is
// denied.
func TestClaimIsAudited(t *testing.T) {
	want := Claim{
		Tool: "runtime_execute", Principal: "user:ada", Session: "s", Request: "1f", Repo: "x", Runtime: "shell",
		Decision: "h", Code: "c", Args: "a", Artifact: "handle", Network: "npm",
	}
	request := request
	request.Network = "npm"
	s := &stage{decision: allowed(), run: succeed}
	if _, err := s.engine().Run(t.Context(), &request, s, Hooks{}); err != nil || !reflect.DeepEqual(s.claims, []Claim{want}) {
		t.Errorf("%+v, %v", s.claims, err)
	}
	s = &stage{decision: allowed()}
	s.decision.Rule, s.decision.Reasons = "cwd", []string{"out", "and out"}
	want.Artifact, want.Reason = "", "cwd: out"
	if _, err := s.engine().Run(t.Context(), &request, s, Hooks{}); err != nil || !reflect.DeepEqual(s.claims, []Claim{want}) {
		t.Errorf("%+v, %v", s.claims, err)
	}
}

// TestCancelled: a request whose client disconnects while it waits in the queue is recorded, like one that the queue
// refuses.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &stage{decision: allowed()}
	e := s.engine()
	e.Queue = NewQueue(1, 1, time.Hour)
	leave, err := e.Queue.Enter(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Run(ctx, &request, s, Hooks{})
	if err != nil || r.Status != Cancelled || r.Decision.Hash != "h" || !slices.Equal(s.steps, []string{"decide", "audit", "discard"}) {
		t.Errorf("%+v, %v, %q", r, err, s.steps)
	}
	e.Queue = NewQueue(1, 0, 0)
	if _, err := e.Queue.Enter(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if r, err = e.Run(t.Context(), &request, s, Hooks{}); err != nil || r.Status != Denied || r.Decision.Rule != "concurrency" || len(r.Decision.Hash) != 64 {
		t.Errorf("queue full: %+v, %v", r, err)
	}
	leave()
}

// TestStreams: the job's input and output are connected; a process that holds the input open without reading does not
// block Run.
func TestStreams(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	r := request
	r.Stdin = long
	s := &stage{decision: allowed(), run: func(_ context.Context, _ Spec, stdio Stdio) (Result, error) {
		_, err := io.Copy(stdio.Stdout, stdio.Stdin)
		return Result{Status: Success}, err
	}}
	if _, err := s.engine().Run(t.Context(), &r, s, Hooks{}); err != nil || s.out != long {
		t.Errorf("%d bytes of %d came back, %v", len(s.out), len(long), err)
	}
	held := make(chan *os.File, 1)
	s = &stage{decision: allowed(), run: func(_ context.Context, _ Spec, stdio Stdio) (Result, error) {
		fd, err := unix.FcntlInt(stdio.Stdin.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		held <- os.NewFile(uintptr(fd), "held")
		return Result{Status: Success}, err
	}}
	if _, err := s.engine().Run(t.Context(), &r, s, Hooks{}); err != nil {
		t.Error(err)
	}
	(<-held).Close()
}

// TestProgress: the hook is called while the request waits and runs, and not after Run has returned.
func TestProgress(t *testing.T) {
	called := make(chan struct{})
	var once sync.Once
	s := &stage{decision: allowed(), run: func(context.Context, Spec, Stdio) (Result, error) {
		<-called
		return Result{Status: Success}, nil
	}}
	e := s.engine()
	e.Queue = NewQueue(1, 1, time.Hour)
	leave, err := e.Queue.Enter(t.Context(), 0) // the hook is called during the wait, too
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-called
		leave()
	}()
	ended := false
	_, err = e.Run(t.Context(), &request, s, Hooks{Progress: func(elapsed time.Duration, stdout, stderr int64) {
		if ended || elapsed <= 0 || stdout != 5 || stderr != 7 {
			t.Errorf("Progress got %v, %d, %d; ended: %t", elapsed, stdout, stderr, ended)
		}
		once.Do(func() { close(called) })
	}})
	ended = true
	if err != nil {
		t.Error(err)
	}
}
