package isolate

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// A request is a Run message that a correct front-end may not send.
type request struct {
	wire.Run
	files []*os.File
}

// goodRequest returns a valid request that runs true, for tests to modify.
func (f *front) goodRequest() *request {
	f.T.Helper()
	payload, err := wire.NewPayload([]string{"/bin/true"}, environment)
	if err != nil {
		f.T.Fatal(err)
	}
	read, write := f.Pipe()
	files := []*os.File{payload, write, write, opened(f.T, f.Repo)}
	f.T.Cleanup(func() { wire.CloseAll(append(files, read)) })
	return &request{wire.Run{Flags: wire.FlagRepo, Repo: f.Repo}, files}
}

// send sends a request on a connection of its own and returns the result, or an error if the connection ended.
func (f *front) send(q *request) (wire.Result, error) {
	f.T.Helper()
	conn := dial(f.T, f.s, host.Peer{UID: owner})
	if err := conn.Send(wire.Encode(q, 9), q.files...); err != nil {
		return wire.Result{}, err
	}
	return answer(conn)
}

func answer(conn *wire.Conn) (wire.Result, error) {
	message, files, err := conn.Receive()
	wire.CloseAll(files)
	if err != nil {
		return wire.Result{}, err
	}
	_, body, err := wire.ReadHeader(message)
	if err != nil {
		return wire.Result{}, err
	}
	return wire.Decode[wire.Result](body)
}

// TestRefusedRequests: requests that conform to the protocol but are refused; later ones on the same supervisor work.
func TestRefusedRequests(t *testing.T) {
	f := newFront(t, func(c *Config) { c.Ceilings = job.Limits{Memory: 1 << 30, Wall: time.Minute} })
	f.Sh("mkfifo fifo; mkdir dir; echo x >file") // requests no limits, so none above a ceiling
	for _, tt := range []struct {
		name  string
		spoil func(*request)
		step  string // "" for none
	}{
		{"nothing", func(q *request) { q.Limits.Wall = time.Minute; q.Limits.Memory = 1 << 30 }, ""},
		{"open payload", func(q *request) { q.files[0] = memfd(t) }, "payload"},
		{"a file as payload", func(q *request) { q.files[0] = open(t, f.Repo+"/file") }, "request"},
		{"a pipe as payload", func(q *request) { q.files[0] = q.files[1] }, "payload"},
		{"a file as output", func(q *request) { q.files[1] = open(t, f.Repo+"/file") }, "request"},
		{"a FIFO as output", func(q *request) { q.files[1] = open(t, f.Repo+"/fifo") }, "request"},
		{"a device as output", func(q *request) { q.files[2] = open(t, "/dev/null") }, "request"},
		{"another's pipe as output", func(q *request) { q.files[1] = rootsPipe(t) }, "request"},
		{"a directory as output", func(q *request) { q.files[2] = open(t, f.Repo) }, "request"},
		{"a file as directory", func(q *request) { q.files[3] = opened(t, f.Repo+"/file") }, "repo"},
		{"a directory that is open", func(q *request) { q.files[3] = open(t, f.Repo) }, "request"},
		{"a pipe as directory", func(q *request) { q.files[3] = q.files[1] }, "repo"},
		{"another's directory", func(q *request) { q.files[3] = opened(t, "/usr") }, "repo"},
		{"negative limit", func(q *request) { q.Limits.PIDs = -7 }, "limits"},
		{"absurd limit", func(q *request) { q.Limits.Memory = 1 << 62 }, "limits"},
		{"limit that overflows", func(q *request) { q.Limits.Wall = 1<<63 - 1 }, "limits"},
		{"above a ceiling", func(q *request) { q.Limits.Memory = 1<<30 + 1 }, "limits"},
		{"no limit under a ceiling", func(q *request) { q.Limits.Wall = -1 }, "limits"},
		{"unknown profile", func(q *request) { q.Profile = "none" }, "profile"},
		{"the scanner's profile", func(q *request) { q.Profile = "scanner" }, "profile"},
		{"hosts that no rule allows", func(q *request) { q.Network = "npm" }, "network"},
		{"no hosts", func(q *request) { q.Network = "none" }, ""},
		{"absolute directory", func(q *request) { q.Dir = "/etc" }, "cwd"},
		{"directory with NUL", func(q *request) { q.Dir = "dir\x00/../.." }, "cwd"},
		{"path with NUL", func(q *request) { q.Repo = f.Repo + "\x00x" }, ""}, // the descriptor counts
	} {
		q := f.goodRequest()
		q.Limits.Wall = time.Minute
		q.Limits.Memory = 64 << 20
		tt.spoil(q)
		r, err := f.send(q)
		switch {
		case err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.step == "" && (r.Outcome != wire.Exited || r.WaitStatus != 0):
			t.Errorf("%s: %+v", tt.name, r)
		case tt.step != "" && (r.Outcome != wire.Refused || r.Step != tt.step || r.Message == ""):
			t.Errorf("%s: %+v, want a refusal at %s", tt.name, r, tt.step)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(f.Repo+"/fifo", &st); err != nil || st.Uid != owner {
		t.Errorf("the FIFO belongs to %d, %v", st.Uid, err)
	}
}

// open opens for reading and writing where possible, so that opening a FIFO does not block.
func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		f, err = os.Open(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// rootsPipe returns a pipe that the client did not create.
func rootsPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { wire.CloseAll([]*os.File{r, w}) })
	return w
}

// memfd returns a payload that its sender can still change.
func memfd(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("open", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "open")
	if _, err := f.Write(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestBrokenProtocol: a message that violates the protocol ends its connection, and nothing else.
func TestBrokenProtocol(t *testing.T) {
	f := sharedFront(t)
	q := f.goodRequest()
	run := wire.Encode(q, 1)
	for _, tt := range []struct {
		name    string
		message []byte
		files   []*os.File
	}{
		{"a descriptor short", run, q.files[:3]},
		{"a descriptor more", run, append(q.files[:4:4], q.files[0])},
		{"no descriptors", run, nil},
		{"half a message", run[:len(run)/2], q.files},
		{"two messages", append(run[:len(run):len(run)], run...), q.files},
		{"descriptors with Hello", wire.Encode(wire.Empty(wire.OpHello), 1), q.files[:1]},
		{"an answer", wire.Encode(wire.Empty(wire.OpResult), 1), nil},
		{"an unknown operation", wire.Encode(wire.Empty(99), 1), nil},
		{"a signal of nobody's", wire.Encode(&wire.Signal{Number: 200}, 1), nil},
		{"another version", append([]byte{run[0] + 1}, run[1:]...), q.files},
		{"noise", []byte("GET / HTTP/1.1\r\n\r\n"), nil},
		{"a long message", make([]byte, wire.MaxMessage+1), nil},
	} {
		conn := dial(t, f.s, host.Peer{UID: owner})
		if err := conn.Send(tt.message, tt.files...); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if message, _, err := conn.Receive(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %x, %v", tt.name, message, err)
		}
	}
	if got := f.Sh("echo well"); got != "well" {
		t.Errorf("%q", got)
	}
}

// TestDuplicateTag: a tag that is in use ends the connection with its jobs.
func TestDuplicateTag(t *testing.T) {
	f := sharedFront(t)
	stay := f.goodRequest()
	payload, err := wire.NewPayload([]string{"/bin/sleep", "1000"}, environment)
	if err != nil {
		t.Fatal(err)
	}
	defer payload.Close()
	stay.files[0] = payload
	for name, second := range map[string]func(conn *wire.Conn) error{
		"a tag twice": func(conn *wire.Conn) error { return conn.Send(wire.Encode(stay, 1), stay.files...) },
	} {
		conn := dial(t, f.s, host.Peer{UID: owner})
		if err := conn.Send(wire.Encode(stay, 1), stay.files...); err != nil {
			t.Fatal(err)
		}
		if err := second(conn); err != nil {
			t.Fatal(err)
		}
		if _, err := answer(conn); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	eventually(t, func() string { return strings.Join(f.list(f.C), ", ") })
}

// TestTooManyJobs: more jobs than a connection or a supervisor may have are refused.
func TestTooManyJobs(t *testing.T) {
	f := newFront(t, func(c *Config) { c.MaxJobs = 1 })
	l := f.Waiting()
	_, err := f.Try(f.Spec("true"))
	refusedAt(t, "a second job", err, "request", 0)
	if err := l.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.End(); err != nil {
		t.Error(err)
	}
	f.Sh("true")
}
