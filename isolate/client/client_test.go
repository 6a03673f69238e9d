package client

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
	"corral/job"
)

// supervisor returns a client and the other end of its connection.
func supervisor(t testing.TB) (*Client, *wire.Conn) {
	t.Helper()
	ours, file, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := wire.NewConn(file)
	if err != nil {
		t.Fatal(err)
	}
	c := New(ours)
	c.record = new(job.RecordHash)
	t.Cleanup(func() {
		c.Close()
		theirs.Close()
	})
	return c, theirs
}

// streams returns the files that a job writes to; the output is discarded.
func streams(t *testing.T) job.Stdio {
	t.Helper()
	var s job.Stdio
	for _, to := range []**os.File{&s.Stdout, &s.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		*to = w
	}
	return s
}

// devNull returns a file to pass.
func devNull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// next receives one message from a client.
func next(t *testing.T, conn *wire.Conn) (wire.Header, []byte, []*os.File) {
	t.Helper()
	message, files, err := conn.Receive()
	if err != nil {
		t.Error(err)
		return wire.Header{}, nil, nil
	}
	head, body, err := wire.ReadHeader(message)
	if err != nil {
		t.Error(err)
	}
	return head, body, files
}

// TestRequest: all fields and descriptors of a job reach the supervisor.
func TestRequest(t *testing.T) {
	sandboxtest.Leaks(t)
	c, s := supervisor(t)
	spec := job.Spec{
		Repo: t.TempDir(), Dir: "a/b", Args: []string{"true", "x"}, Env: []string{"A=b"}, Workspace: job.ReadOnly, Profile: "strict",
	}
	for n, f := range spec.Limits.Fields() {
		*f.Value = int64(n + 1)
	}
	for _, tt := range []struct {
		name   string
		byPath bool
		change func(*job.Spec, *job.Stdio)
		flags  uint32
		files  int
	}{
		{"by descriptor", false, func(*job.Spec, *job.Stdio) {}, wire.FlagReadOnly | wire.FlagRepo, 4},
		{"by path", true, func(*job.Spec, *job.Stdio) {}, wire.FlagReadOnly, 3},
		{"no repository", false, func(s *job.Spec, _ *job.Stdio) { s.Workspace = job.NoRepo }, wire.FlagNoRepo | wire.FlagRepo, 4},
		{"terminal", true, func(s *job.Spec, _ *job.Stdio) { s.Terminal = job.Size{Rows: 2, Cols: 3} }, wire.FlagReadOnly | wire.FlagTerminal, 1},
		{"input", true, func(_ *job.Spec, o *job.Stdio) { o.Stdin, _ = os.Open(os.DevNull) }, wire.FlagReadOnly | wire.FlagStdin, 4},
	} {
		spec, stdio := spec, streams(t)
		tt.change(&spec, &stdio)
		c.ByPath = tt.byPath
		run, err := c.Start(spec, stdio, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stdio.Stdout.Write(nil); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: the job's end of a pipe stays open: %v", tt.name, err)
		}
		head, body, files := next(t, s)
		got, err := wire.Decode[wire.Run](body)
		want := wire.Run{
			Flags: tt.flags, Limits: spec.Limits, Rows: spec.Terminal.Rows, Cols: spec.Terminal.Cols, Profile: "strict", Repo: spec.Repo, Dir: "a/b",
		}
		if err != nil || head.Op != wire.OpRun || got != want || len(files) != tt.files || len(files) != got.Descriptors() {
			t.Errorf("%s: %+v with %d descriptors, %v; want %+v with %d", tt.name, got, len(files), err, want, tt.files)
		}
		if !wire.Sealed(files[0]) {
			t.Errorf("%s: the payload is not sealed", tt.name)
		}
		wire.CloseAll(files)
		if err := s.Send(wire.Encode(&wire.Result{Outcome: wire.Exited}, head.Tag)); err != nil {
			t.Error(err)
		}
		if r, err := run.Wait(); err != nil || r.Status != job.Success {
			t.Errorf("%s: %+v, %v", tt.name, r, err)
		}
	}
}

// TestResult: the supervisor's result is converted to a job.Result or a *job.Refusal.
func TestResult(t *testing.T) {
	const kill = int(unix.SIGKILL)
	for _, tt := range []struct {
		name string
		m    wire.Result
		want job.Result // of it Status, ExitCode, Signal, Limit, Sensitive
	}{
		{"success", wire.Result{Outcome: wire.Exited}, job.Result{Status: job.Success}},
		{"exit code", wire.Result{Outcome: wire.Exited, WaitStatus: 7 << 8}, job.Result{Status: job.Failure, ExitCode: 7}},
		{"signal", wire.Result{Outcome: wire.Exited, WaitStatus: 15}, job.Result{Status: job.Failure, ExitCode: -1, Signal: 15}},
		{"core", wire.Result{Outcome: wire.Exited, WaitStatus: 6 | 0x80}, job.Result{Status: job.Failure, ExitCode: -1, Signal: 6}},
		{"deadline", wire.Result{Outcome: wire.Deadline}, job.Result{Status: job.Timeout, ExitCode: -1, Signal: kill}},
		{"killed", wire.Result{Outcome: wire.Killed}, job.Result{Status: job.Cancelled, ExitCode: -1, Signal: kill}},
		{"vanished", wire.Result{Outcome: wire.Vanished}, job.Result{Status: job.Lost, ExitCode: -1, Signal: kill}},
		{"disk", wire.Result{Outcome: wire.OverDisk}, job.Result{Status: job.Failure, ExitCode: -1, Signal: kill, Limit: job.LimitDisk}},
		{"memory", wire.Result{Outcome: wire.Vanished, OOM: true}, job.Result{Status: job.Failure, ExitCode: -1, Signal: kill, Limit: job.LimitMemory}},
		{"memory of all jobs", wire.Result{Outcome: wire.Vanished, OOM: true, UserMemory: 1}, job.Result{Status: job.Failure, ExitCode: -1, Signal: kill, Limit: job.LimitUserMemory, UserMemory: 1}},
		{"memory of a child", wire.Result{Outcome: wire.Exited, WaitStatus: 9, OOM: true}, job.Result{Status: job.Failure, ExitCode: -1, Signal: kill, Limit: job.LimitMemory}},
		{"memory at the deadline", wire.Result{Outcome: wire.Deadline, OOM: true}, job.Result{Status: job.Timeout, ExitCode: -1, Signal: kill, Limit: job.LimitMemory}},
		{"processes", wire.Result{Outcome: wire.Exited, PIDsMax: true}, job.Result{Status: job.Success, Limit: job.LimitPIDs}},
		{"memory before processes", wire.Result{Outcome: wire.Vanished, OOM: true, PIDsMax: true}, job.Result{Status: job.Failure, ExitCode: -1, Signal: kill, Limit: job.LimitMemory}},
		{"paths", wire.Result{Outcome: wire.Exited, Sensitive: "a\x00b\nc\x00"}, job.Result{Status: job.Success, Sensitive: []string{"a", "b\nc"}}},
	} {
		got, err := result(tt.m)
		if err != nil || !reflect.DeepEqual(got, job.Result{
			Status: tt.want.Status, ExitCode: tt.want.ExitCode, Signal: tt.want.Signal, Limit: tt.want.Limit, UserMemory: tt.want.UserMemory, Sensitive: tt.want.Sensitive,
		}) {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
	}
	got, err := result(wire.Result{
		Outcome: wire.Exited, Wall: 1, CPU: 2, User: 3, System: 4, PeakMemory: 5, PeakPIDs: 6, ReadBytes: 7, WriteBytes: 8,
		Job: "job-1", Cgroup: "v2", More: 9, Incomplete: true,
	})
	want := job.Result{
		ID: "job-1", Status: job.Success, Cgroup: "v2", SensitiveMore: 9, SensitiveIncomplete: true,
		Usage: job.Usage{Wall: 1, CPU: 2, User: 3, System: 4, PeakMemory: 5, PeakPIDs: 6, ReadBytes: 7, WriteBytes: 8},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	var refusal *job.Refusal
	if _, err := result(wire.Result{Outcome: wire.Refused, Step: "cwd", Errno: 18, Message: "no", Hint: "do"}); !errors.As(err, &refusal) ||
		*refusal != (job.Refusal{Step: "cwd", Errno: 18, Message: "no", Hint: "do"}) {
		t.Errorf("%#v", err)
	}
}

// TestLost: every waiting call fails when the connection ends, and later requests return the same error.
func TestLost(t *testing.T) {
	c, s := supervisor(t)
	run, err := c.Start(job.Spec{Repo: t.TempDir(), Args: []string{"true"}}, streams(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, files := next(t, s)
	wire.CloseAll(files)
	s.Close()
	if r, err := run.Wait(); !errors.Is(err, job.ErrUnavailable) || r.Status != job.Lost {
		t.Errorf("%+v, %v", r, err)
	}
	_, listed := c.List()
	_, asked := c.Facts()
	_, greeted := c.Hello()
	_, ran := c.Run(context.Background(), job.Spec{Repo: t.TempDir(), Args: []string{"true"}}, streams(t))
	for what, err := range map[string]error{"list": listed, "facts": asked, "hello": greeted, "run": ran} {
		if !errors.Is(err, job.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestUnknownAnswers: answers to unknown calls are ignored and their descriptors closed; a malformed one is an error.
func TestUnknownAnswers(t *testing.T) {
	sandboxtest.Leaks(t)
	c, s := supervisor(t)
	null := devNull(t)
	answered := make(chan struct{})
	defer func() { <-answered }()
	go func() {
		defer close(answered)
		head, _, _ := next(t, s)
		for _, message := range [][]byte{
			wire.Encode(wire.Empty(wire.OpEnd), head.Tag+7),
			wire.Encode(&wire.Fact{Name: "a"}, head.Tag),
			wire.Encode(&wire.Fact{Name: "b"}, head.Tag),
			wire.Encode(wire.Empty(wire.OpEnd), head.Tag),
		} {
			if err := s.Send(message, null); err != nil {
				t.Error(err)
			}
		}
		head, _, _ = next(t, s)
		if err := s.Send(append(wire.Encode(wire.Empty(wire.OpFact), head.Tag), "nonsense"...)); err != nil {
			t.Error(err)
		}
	}()
	if facts, err := c.Facts(); err != nil || len(facts) != 2 || facts[1].Name != "b" {
		t.Errorf("%+v, %v", facts, err)
	}
	if _, err := c.Facts(); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("malformed answer: %v", err)
	}
}

// TestCancel: the end of the context kills the job, and Run returns its result.
func TestCancel(t *testing.T) {
	c, s := supervisor(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	go func() {
		head, _, files := next(t, s)
		wire.CloseAll(files)
		cancel()
		signal, body, _ := next(t, s)
		if m, err := wire.Decode[wire.Signal](body); err != nil || signal.Tag != head.Tag || m.Number != 0 {
			t.Errorf("%+v, %+v, %v", signal, m, err)
		}
		if err := s.Send(wire.Encode(&wire.Result{Outcome: wire.Killed}, head.Tag)); err != nil {
			t.Error(err)
		}
	}()
	r, err := c.Run(ctx, job.Spec{Repo: t.TempDir(), Args: []string{"true"}}, streams(t))
	if err != nil || r.Status != job.Cancelled {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestStartRefuses: an invalid request is refused by the client, and the job's streams are closed.
func TestStartRefuses(t *testing.T) {
	sandboxtest.Leaks(t)
	c, _ := supervisor(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, step string
		spec       job.Spec
	}{
		{"no program", "payload", job.Spec{Repo: "/tmp"}},
		{"no directory", "repo", job.Spec{Repo: "/no/such/directory", Args: []string{"true"}}},
		{"a file", "repo", job.Spec{Repo: file, Args: []string{"true"}}},
		{"a path that is cut", "repo", job.Spec{Repo: "/tmp" + strings.Repeat("/.", wire.MaxPath/2), Args: []string{"true"}}},
		{"a directory that is cut", "cwd", job.Spec{Repo: "/tmp", Dir: strings.Repeat("./", wire.MaxPath/2) + "no", Args: []string{"true"}}},
		{"a profile that is cut", "profile", job.Spec{Repo: "/tmp", Profile: strings.Repeat("x", wire.MaxName+1), Args: []string{"true"}}},
	} {
		stdio := streams(t)
		_, err := c.Start(tt.spec, stdio, nil)
		var refusal *job.Refusal
		if !errors.As(err, &refusal) || refusal.Step != tt.step {
			t.Errorf("%s: %v", tt.name, err)
		}
		if _, err := stdio.Stderr.Write(nil); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: a stream is open", tt.name)
		}
	}
}

// TestDial: Dial wraps job.ErrUnavailable and names the socket.
func TestDial(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no-socket")
	if _, err := Dial(path); !errors.Is(err, job.ErrUnavailable) || !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

// TestStarted: the caller can signal the job as soon as it was requested.
func TestStarted(t *testing.T) {
	sandboxtest.Leaks(t)
	c, s := supervisor(t)
	c.ByPath = true
	stdio := streams(t)
	started := make(chan job.Signaler, 1)
	stdio.Started = func(s job.Signaler) { started <- s }
	done := make(chan error, 1)
	go func() {
		_, err := c.Run(t.Context(), job.Spec{Repo: "/srv/app", Args: []string{"true"}}, stdio)
		done <- err
	}()
	head, _, files := next(t, s)
	wire.CloseAll(files)
	signaler := <-started
	for _, want := range []wire.Signal{{Number: 15}, {Number: 2, Everyone: true}} {
		if err := signaler.Signal(int(want.Number), want.Everyone); err != nil {
			t.Fatal(err)
		}
		h, body, _ := next(t, s)
		if got, err := wire.Decode[wire.Signal](body); err != nil || h.Op != wire.OpSignal || h.Tag != head.Tag || got != want {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if err := s.Send(wire.Encode(&wire.Result{Outcome: wire.Exited}, head.Tag)); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
