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
	"corral/isolate/inside"
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
			_, err := s.openAdmitted(host.Peer{UID: owner}, wire.Open{Flags: wire.FlagRepo | wire.FlagReadOnly, Repo: dir.Name()}, dir, nil)
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
	if f.sh("echo works") != "works" {
		t.Error("a job of the same user does not work")
	}
}

// TestStalledDirectory: what only a stalled file system knows is queried by a helper that is abandoned. The number of
// these is limited per user, and other users are not affected.
func TestStalledDirectory(t *testing.T) {
	const stranger = 1002
	files := sandboxtest.StartFileServer(t, owner)
	f := newFront(t, func(c *Config) { c.probing = 500 * time.Millisecond })
	other := &front{t, f.s, connect(t, f.s, host.Peer{UID: stranger}), filepath.Join(t.TempDir(), "repo")}
	mkdir(t, other.repo, stranger)
	dir := opened(t, files.Dir+"/dir")
	files.Stall(t)
	before := threads(t)
	done := openAll(f.s, maxUserProbes, dir)
	for range maxUserProbes {
		if err := next(t, done); err == nil || !strings.Contains(err.Error(), "has not answered for 500ms") {
			t.Errorf("%v", err)
		}
	}
	f.s.probes.mu.Lock()
	f.s.probes.patience = time.Hour // refusals must not wait now
	f.s.probes.mu.Unlock()
	const more = 40
	done = openAll(f.s, more, dir)
	for range more {
		if err := next(t, done); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("of %d directories", maxUserProbes)) {
			t.Errorf("more than the maximum: %v", err)
		}
	}
	fewThreads(t, before, more)
	if other.sh("echo works") != "works" {
		t.Error("a job of another user does not work")
	}
	files.End()
	eventually(t, func() string {
		f.s.probes.mu.Lock()
		defer f.s.probes.mu.Unlock()
		if f.s.probes.all != (probeCount{}) {
			return fmt.Sprintf("%+v", f.s.probes.all)
		}
		return ""
	})
	if f.sh("echo works") != "works" {
		t.Error("a job of the user does not work, though its file system has answered")
	}
}

// TestCloseWithStalledProbe: the end of the supervisor waits for no file system.
func TestCloseWithStalledProbe(t *testing.T) {
	files := sandboxtest.StartFileServer(t, owner)
	c := config(t)
	c.probing = time.Hour
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
	message := wire.Run{Flags: wire.FlagTerminal, Repo: f.repo, Rows: 1, Cols: 1}
	files.SendFile(t, client, message.Append(1))
	files.Stall(t)
	served := make(chan outcome, 1)
	go func() {
		f.s.ServeConn(conn, host.Peer{UID: owner})
		served <- outcome{}
	}()
	if err := next(t, served); err != nil {
		t.Error(err)
	}
	f.s.mu.Lock()
	if n := f.s.hostile[owner]; n != 1 {
		t.Errorf("%d hostile messages are counted, want 1", n)
	}
	f.s.mu.Unlock()
	if f.sh("echo works") != "works" {
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
	c.probing = time.Hour
	c.Log = nil
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * maxUserClosing {
		conn, client, err := wire.Pair()
		if err != nil {
			t.Fatal(err)
		}
		message := []byte("no message")
		if i%3 == 1 {
			message = (&wire.Open{Flags: wire.FlagRepo | wire.FlagReadOnly, Repo: "/detached"}).Append(1)
		}
		files.SendDetached(t, client, message)
		served := make(chan outcome, 1)
		go func() {
			if i%3 == 2 { // as one that is refused, and has not been read
				s.probes.hangUp(owner, conn)
			} else {
				<-s.serveConn(conn, host.Peer{UID: owner})
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
	if _, err := s.probes.fileSystem(owner+1, dir); err != nil {
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
	s := supervise(t, func(c *Config) { c.probing = 300 * time.Millisecond })
	before := openDescriptors(t)
	conn, client, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	files.SendDetached(t, client, []byte("no message"))
	<-s.serveConn(conn, host.Peer{UID: 100005, Holder: owner}) // a subordinate id of the user who has mounted it
	client.Close()
	eventually(t, func() string { return s.closing(before) })
}

// closing says what of clients' descriptors is not closed yet, "" if nothing is. before is the number of this process's.
func (s *Supervisor) closing(before int) string {
	s.probes.closer.mu.Lock()
	users, parked := len(s.probes.closer.users), s.probes.closer.parked()
	s.probes.closer.mu.Unlock()
	s.probes.mu.Lock()
	all := s.probes.all
	s.probes.mu.Unlock()
	list, err := os.ReadDir("/proc/self/fd")
	if users > 0 || parked > 0 || all != (probeCount{}) || err != nil || len(list) > before+maxIdleProbes {
		return fmt.Sprintf("%d users have something to close, %d connections are parked, looks: %+v, %d descriptors after %d", users, parked, all, len(list), before)
	}
	return ""
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestCloseQueue: the descriptors of one user that wait to be closed are bounded, and so are the helpers; what others have is closed
// meanwhile. A connection that is hung up never waits for those of its user.
func TestCloseQueue(t *testing.T) {
	files := sandboxtest.StartFileServerInNamespace(t, owner)
	c := config(t)
	c.Log = nil // patience is not shortened: the helpers hang
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	closer := &s.probes.closer
	closer.mu.Lock()
	fuse := closer.fuse
	closer.fuse = nil // nothing is aborted
	closer.mu.Unlock()
	before := openDescriptors(t)
	send := func(detached bool) *wire.Conn {
		conn, client, err := wire.Pair()
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if detached {
			files.SendDetached(t, client, []byte("x"))
			return conn
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Sendmsg(int(client.Fd()), []byte("x"), unix.UnixRights(int(w.Fd())), nil, 0); err != nil {
			t.Fatal(err)
		}
		r.Close()
		w.Close()
		return conn
	}
	for range maxUserClosing {
		s.probes.hangUp(owner, send(true))
		eventually(t, func() string { // each has a helper of its own
			closer.mu.Lock()
			defer closer.mu.Unlock()
			if q := closer.users[owner]; q != nil && len(q.waiting) > 0 {
				return "no helper takes it"
			}
			return ""
		})
	}
	const floods = maxWaitingCloses + 100
	for range floods {
		s.probes.hangUp(owner, send(false))
	}
	closer.mu.Lock()
	q := closer.users[owner]
	if q.helpers != maxUserClosing || len(q.waiting) != floods || closer.parked() != floods-maxWaitingCloses {
		t.Errorf("%d helpers, %d connections wait, %d are parked", q.helpers, len(q.waiting), closer.parked())
	}
	closer.mu.Unlock()
	s.probes.hangUp(owner+1, send(false))
	eventually(t, func() string {
		closer.mu.Lock()
		defer closer.mu.Unlock()
		if closer.users[owner+1] != nil {
			return "another user's connection waits"
		}
		return ""
	})
	if waits(t) {
		t.Error("a thread of the supervisor waits for a client's file system")
	}
	closer.mu.Lock()
	closer.fuse = fuse
	closer.abortSoon(owner, q)
	closer.mu.Unlock()
	eventually(t, func() string { return s.closing(before) })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// waits says whether a thread of this process waits where no signal reaches it, for longer than a disk takes.
func waits(t *testing.T) bool {
	t.Helper()
	for range 100 {
		if !uninterruptible(t) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

func uninterruptible(t *testing.T) bool {
	t.Helper()
	list, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range list {
		b, _ := os.ReadFile(file) // empty if the thread has exited
		if _, state, _ := strings.Cut(string(b), ") "); strings.HasPrefix(state, "D") {
			return true
		}
	}
	return false
}

// TestStuckProbesOfOthers: users whose helpers hang, however many, keep nobody else from being served.
func TestStuckProbesOfOthers(t *testing.T) {
	p := &prober{patience: time.Millisecond, ctx: t.Context()}
	for i := range maxProbes {
		p.count(uint32(1000+i/maxUserProbes), 1, 1)
	}
	if err := p.acquire(1); err != nil {
		t.Errorf("a user without a stuck helper: %v", err)
	}
	if err := p.acquire(1000); err == nil {
		t.Error("a user with as many stuck helpers as there may be is served")
	}
	for i := range maxProbes - 1 {
		if err := p.acquire(uint32(2 + i/maxUserProbes)); err != nil {
			t.Fatalf("look %d: %v", i, err)
		}
	}
	if err := p.acquire(999); err == nil {
		t.Error("more looks are under way than there may be")
	}
}

// TestUnreceived: what a client has sent and nobody has received is closed with its connection, and by a helper if descriptors are
// among it.
func TestUnreceived(t *testing.T) {
	s := supervise(t)
	for _, descriptors := range []bool{false, true} {
		conn, client, err := wire.Pair()
		if err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var rights []byte
		if descriptors {
			rights = unix.UnixRights(int(w.Fd()))
		}
		if err := unix.Sendmsg(int(client.Fd()), []byte("x"), rights, nil, 0); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if got := holdsDescriptors(conn); got != descriptors {
			t.Errorf("descriptors %v: holdsDescriptors returns %v", descriptors, got)
		}
		s.probes.hangUp(owner, conn)
		if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil { // waits for the last descriptor of the other end
			t.Errorf("the pipe: %d, %v", n, err)
		}
		r.Close()
		client.Close()
	}
}

// TestHostileUserRefused: after too many messages with foreign descriptors, connections of their user are refused.
func TestHostileUserRefused(t *testing.T) {
	s := &Supervisor{config: Config{MaxPerUser: 9}, connections: map[uint32]int{}, hostile: map[uint32]int{}}
	for range maxHostile {
		if !s.connect(owner, 1) {
			t.Fatal("refused too early")
		}
		s.noteHostile(owner)
	}
	if s.connect(owner, 1) {
		t.Error("one more connection")
	}
	if !s.connect(owner+1, 1) {
		t.Error("another user is refused")
	}
	s.connected = maxConnections
	if s.connect(owner+1, 1) {
		t.Error("more connections than the maximum")
	}
}

// TestOpeningsBounded: the number of sessions being opened is bounded per user and in all.
func TestOpeningsBounded(t *testing.T) {
	s := &Supervisor{opening: map[uint32]int{}}
	for range maxUserOpenings {
		if err := s.beginOpening(owner); err != nil {
			t.Fatal(err)
		}
	}
	refusedAt(t, "one more of a user", s.beginOpening(owner), "session", 0)
	n := maxUserOpenings
	for user := uint32(owner + 1); n < maxOpenings; user++ {
		for k := 0; k < maxUserOpenings && n < maxOpenings; k++ {
			if err := s.beginOpening(user); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	refusedAt(t, "one more of all", s.beginOpening(1), "session", 0)
	s.endOpening(owner)
	if err := s.beginOpening(owner); err != nil {
		t.Error(err)
	}
}

// TestProber: a helper and the cached path return the same, and errors are the kernel's.
func TestProber(t *testing.T) {
	s := supervise(t)
	p := &s.probes
	repo := newRepo(t)
	link := filepath.Join(filepath.Dir(repo), "link")
	if err := os.Symlink(repo, link); err != nil {
		t.Fatal(err)
	}
	dir := opened(t, repo)
	cached, err := p.identify(owner, dir)
	if err != nil || cached.uid != owner || cached.mode&unix.S_IFMT != unix.S_IFDIR {
		t.Errorf("%+v, %v", cached, err)
	}
	found, err := p.fileSystem(owner, dir)
	var fs unix.Statfs_t
	if failed := unix.Statfs(repo, &fs); failed != nil || err != nil || identityOf(found) != cached || found.FSType != fs.Type || found.FreeFiles == 0 {
		t.Errorf("%+v, want %+v; %v, %v", found, cached, err, failed)
	}
	for path, want := range map[string]error{
		repo: nil, link: unix.ELOOP, repo + "/none": unix.ENOENT, "/dev/null": unix.ENOTDIR, "/proc/self/cwd": unix.ELOOP,
	} {
		f, _, err := p.openDir(owner, path)
		if f != nil {
			f.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if p.all != (probeCount{}) || len(p.users) != 0 {
		t.Errorf("probes in progress: %+v, %v", p.all, p.users)
	}
}

// TestProbeHelper: a helper has no rights except to traverse directories, is reused, and is replaced when it ends.
func TestProbeHelper(t *testing.T) {
	s := supervise(t)
	p := &s.probes
	h, err := p.helper()
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.pid))
	if err != nil {
		t.Fatal(err)
	}
	user := s.NobodyID() + 1
	for _, want := range []string{
		fmt.Sprintf("Uid:\t%d\t%d\t%d\t%d\n", user, user, user, user), "Groups:\t \n",
		"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000004\n", "CapEff:\t0000000000000004\n", "CapAmb:\t0000000000000000\n",
		"NoNewPrivs:\t1\n", "Seccomp:\t2\n", "Threads:\t1\n",
	} {
		if !strings.Contains(string(status), want) {
			t.Errorf("no %q in its status: %s", want, status)
		}
	}
	if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.pid)); err != nil || len(fds) != 1 {
		t.Errorf("%d descriptors, %v", len(fds), err)
	}
	p.keep(h)
	dir := opened(t, newRepo(t))
	if _, err := p.fileSystem(owner, dir); err != nil {
		t.Error(err)
	}
	if len(p.idle) != 1 || p.idle[0] != h {
		t.Error("the helper was not reused")
	}
	if err := unix.Kill(h.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if h.conn.Ended() {
			return ""
		}
		return "the helper has not exited"
	})
	if _, err := p.fileSystem(owner, dir); err != nil {
		t.Errorf("after its end: %v", err)
	}
	if len(p.idle) != 1 || p.idle[0] == h {
		t.Error("the helper was not replaced")
	}
}

// BenchmarkProbe compares a probe by a helper with one answered from the kernel's memory.
func BenchmarkProbe(b *testing.B) {
	s := supervise(b)
	repo := newRepo(b)
	b.Run("helper", func(b *testing.B) {
		for b.Loop() {
			question := inside.Probe{Kind: inside.ProbeOpen, Flags: unix.O_DIRECTORY, Path: repo}
			if err := s.probes.acquire(owner); err != nil {
				b.Fatal(err)
			}
			_, files, err := s.probes.ask(owner, question)
			if err != nil {
				b.Fatal(err)
			}
			wire.CloseAll(files)
		}
	})
	b.Run("memory", func(b *testing.B) {
		for b.Loop() {
			f, _, err := s.probes.openDir(owner, repo)
			if err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	})
}
