package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/isolate/probe"
	"corral/isolate/wire"
)

// An outcome is the result of opening a session.
type outcome struct {
	number int
	err    error
}

// openAll opens n sessions concurrently, as front-ends of the owner that pass a descriptor of dir.
func openAll(s *Supervisor, n int, dir *os.File) <-chan outcome {
	done := make(chan outcome, n)
	for i := range n {
		go func() {
			_, err := s.sessions.OpenAdmitted(host.Peer{UID: owner}, wire.Open{Flags: wire.FlagRepo | wire.FlagReadOnly, Repo: dir.Name()}, dir, nil)
			done <- outcome{i, err}
		}()
	}
	return done
}

// next returns the next outcome. It fails the test if none comes, because the supervisor then waits for a file
// system.
func next(t *testing.T, done <-chan outcome) error {
	t.Helper()
	select {
	case o := <-done:
		return o.err
	case <-time.After(sandboxtest.Slow(30 * time.Second)):
		t.Fatal("the supervisor waits for a client's file system")
		return nil
	}
}

// threads returns the number of threads of this process.
func threads(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// fewThreads fails the test if the number of threads grew with the number of openings.
func fewThreads(t *testing.T, before, openings int) {
	t.Helper()
	if now := threads(t); now > before+openings/2 {
		t.Errorf("%d threads after %d openings, %d before", now, openings, before)
	}
}

// TestStalledOverlay: the supervisor does not wait for a file system that a client serves in namespaces of its own
// below an overlay, which queries it on every access.
func TestStalledOverlay(t *testing.T) {
	files := sandboxtest.StartFileServerInNamespace(t, owner)
	f := newFront(t)
	files.Stall(t)
	const n = 40
	before := threads(t)
	done := openAll(f.s, n, files.Overlay)
	for range n {
		refusedAt(t, "a directory on a stalled overlay", next(t, done), "repo", 0)
	}
	fewThreads(t, before, n)
	if f.Sh("echo works") != "works" {
		t.Error("a job of the same user does not work")
	}
}

// TestStalledDirectory: what only a stalled file system knows is queried by a helper that is abandoned. The number of
// these is limited per user, and other users are not affected.
func TestStalledDirectory(t *testing.T) {
	const stranger = 1002
	files := sandboxtest.StartFileServer(t, owner)
	f := newFront(t, func(c *Config) { c.switches.probing = 500 * time.Millisecond })
	other := frontOf(t, f.s, connect(t, f.s, host.Peer{UID: stranger}), filepath.Join(t.TempDir(), "repo"))
	mkdir(t, other.Repo, stranger)
	dir := opened(t, files.Dir+"/dir")
	files.Stall(t)
	before := threads(t)
	done := openAll(f.s, probe.MaxUser, dir)
	for range probe.MaxUser {
		if err := next(t, done); err == nil || !strings.Contains(err.Error(), "has not answered for 500ms") {
			t.Errorf("%v", err)
		}
	}
	const more = 40
	done = openAll(f.s, more, dir)
	for range more {
		if err := next(t, done); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("of %d directories", probe.MaxUser)) {
			t.Errorf("more than the maximum: %v", err)
		}
	}
	fewThreads(t, before, more)
	if other.Sh("echo works") != "works" {
		t.Error("a job of another user does not work")
	}
	files.End()
	eventually(t, func() string {
		if err := next(t, openAll(f.s, 1, dir)); err != nil && strings.Contains(err.Error(), "too many probes") {
			return err.Error()
		}
		return ""
	})
	if f.Sh("echo works") != "works" {
		t.Error("a job of the user does not work, though its file system has answered")
	}
}

// TestCloseWithStalledProbe: the end of the supervisor waits for no file system.
func TestCloseWithStalledProbe(t *testing.T) {
	files := sandboxtest.StartFileServer(t, owner)
	c := config(t)
	c.switches.probing = time.Hour
	c.Log = nil // the end of the session cannot be recorded, because the audit log is closed
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	dir := opened(t, files.Dir+"/dir")
	files.Stall(t)
	done := openAll(s, 1, dir)
	files.AwaitRequest(t)
	closed := make(chan outcome, 1)
	go func() { closed <- outcome{err: s.Close()} }()
	if err := next(t, closed); err != nil {
		t.Error(err)
	}
	if err := next(t, done); !errors.Is(err, host.ErrEnding) {
		t.Errorf("the session: %v", err)
	}
}

// TestForeignDescriptor: the supervisor never receives a file that a client has opened on its own file system.
// Closing it would query that file system, and so would starting a process, which closes inherited descriptors.
func TestForeignDescriptor(t *testing.T) {
	files := sandboxtest.StartFileServer(t, owner)
	f := newFront(t)
	conn, client, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	message := wire.Run{Flags: wire.FlagTerminal, Repo: f.Repo, Rows: 1, Cols: 1}
	files.SendFile(t, client, wire.Encode(&message, 1))
	files.Stall(t)
	served := make(chan outcome, 1)
	go func() {
		f.s.ServeConn(conn, host.Peer{UID: owner})
		served <- outcome{}
	}()
	if err := next(t, served); err != nil {
		t.Error(err)
	}
	if f.Sh("echo works") != "works" {
		t.Error("a job of the same user does not work")
	}
	if op := files.AwaitRequest(t); op != sandboxtest.FuseFlush || waits(t) {
		t.Errorf("request %d: a thread of the supervisor waits for its answer", op)
	}
}

// TestDetached: no thread of the supervisor closes the last descriptor of a client's file system, which can take as long as the
// client wants; neither does the process when it ends.
func TestDetached(t *testing.T) {
	files := sandboxtest.StartFileServerInNamespace(t, owner)
	c := config(t)
	c.switches.probing = time.Hour
	c.Log = nil
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * probe.MaxUser {
		conn, client, err := wire.Pair()
		if err != nil {
			t.Fatal(err)
		}
		message := []byte("no message")
		if i%3 == 1 {
			message = wire.Encode(&wire.Open{Flags: wire.FlagRepo | wire.FlagReadOnly, Repo: "/detached"}, 1)
		}
		files.SendDetached(t, client, message)
		served := make(chan outcome, 1)
		go func() {
			if i%3 == 2 { // as one that is refused, and has not been read
				s.probes.HangUp(owner, conn)
			} else {
				<-s.serveConn(conn, host.Peer{UID: owner}, nil)
			}
			served <- outcome{}
		}()
		if i%3 == 1 {
			if err := unix.Shutdown(int(client.Fd()), unix.SHUT_WR); err != nil {
				t.Fatal(err)
			}
		}
		if err := next(t, served); err != nil {
			t.Error(err)
		}
		client.Close()
	}
	if waits(t) {
		t.Error("a thread of the supervisor waits for a client's file system")
	}
	dir := opened(t, "/")
	if _, err := s.probes.FileSystem(owner+1, dir); err != nil {
		t.Errorf("another user: %v", err)
	}
	dir.Close()
	closed := make(chan outcome, 1)
	go func() { closed <- outcome{err: s.Close()} }()
	if err := next(t, closed); err != nil {
		t.Error(err)
	}
	if waits(t) {
		t.Error("a thread of the supervisor waits for a client's file system at its end")
	}
}

// TestDetachedAborted: a helper that hangs in such a close is freed. The file systems of this user that keep it are aborted.
func TestDetachedAborted(t *testing.T) {
	files := sandboxtest.StartFileServerInNamespace(t, owner)
	s := supervise(t, func(c *Config) { c.switches.probing = 300 * time.Millisecond })
	before := openDescriptors(t)
	conn, client, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	files.SendDetached(t, client, []byte("no message"))
	<-s.serveConn(conn, host.Peer{UID: 100005, Holder: owner}, nil) // a subordinate id of the user who has mounted it
	client.Close()
	eventually(t, func() string {
		if n := openDescriptors(t); n > before+4 { // idle helpers are kept
			return fmt.Sprintf("%d descriptors after %d", n, before)
		}
		return ""
	})
}
