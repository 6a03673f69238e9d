package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// newTestProber returns a prober and a function that cancels its context, as the end of a supervisor does.
func newTestProber(t testing.TB, patience time.Duration) (p *Prober, end func()) {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root)
	programs, err := host.LoadPrograms(filepath.Dir(sandboxtest.Bin(t, "corral-init")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(programs.Close)
	ctx, end := context.WithCancel(context.Background())
	p, err = New(ctx, Config{
		Program: programs.Stub, User: host.DefaultUIDBase + 1, Patience: patience, Payer: func(uid uint32) uint32 { return uid },
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		end()
		t.Fatal(err)
	}
	return p, end
}

// startProber returns a prober that is closed with the test.
func startProber(t testing.TB) *Prober {
	t.Helper()
	p, end := newTestProber(t, 0)
	t.Cleanup(func() {
		end()
		p.Close()
	})
	return p
}

// TestHeldClosedByAbort: a helper that hangs in closing a descriptor is freed: the file systems of this user that keep
// it are aborted.
func TestHeldClosedByAbort(t *testing.T) {
	files := sandboxtest.StartFileServerInNamespace(t, owner)
	p, end := newTestProber(t, 300*time.Millisecond)
	before := openDescriptors(t)
	conn, client, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	files.SendDetached(t, client, []byte("no message"))
	conn.Guard = func(socket int, _ []byte) ([]byte, []*os.File, error) { return p.Receive(owner, socket) }
	_, received, err := conn.Receive()
	if err != nil || len(received) != 1 {
		t.Fatalf("%d files, %v", len(received), err)
	}
	p.Discard(owner, received...)
	p.HangUp(owner, conn)
	client.Close()
	eventually(t, func() string { return p.closing(before) })
	end()
	p.Close()
}

// TestCloseQueue: the descriptors of one user that wait to be closed are bounded, and so are the helpers; what others have is closed
// meanwhile. A connection that is hung up never waits for those of its user.
func TestCloseQueue(t *testing.T) {
	files := sandboxtest.StartFileServerInNamespace(t, owner)
	p, end := newTestProber(t, 0) // patience is not shortened: the helpers hang
	closer := &p.closer
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
		p.HangUp(owner, send(true))
		eventually(t, func() string { // each has a helper of its own
			closer.mu.Lock()
			defer closer.mu.Unlock()
			if q := closer.payers[userOf(owner)]; q != nil && len(q.waiting) > 0 {
				return "no helper takes it"
			}
			return ""
		})
	}
	const floods = maxWaitingCloses + 100
	for range floods {
		p.HangUp(owner, send(false))
	}
	closer.mu.Lock()
	q := closer.payers[userOf(owner)]
	if q.helpers != maxUserClosing || len(q.waiting) != floods || closer.parked() != floods-maxWaitingCloses {
		t.Errorf("%d helpers, %d connections wait, %d are parked", q.helpers, len(q.waiting), closer.parked())
	}
	closer.mu.Unlock()
	p.HangUp(owner+1, send(false))
	eventually(t, func() string {
		closer.mu.Lock()
		defer closer.mu.Unlock()
		if closer.payers[userOf(owner+1)] != nil {
			return "another user's connection waits"
		}
		return ""
	})
	if waits(t) {
		t.Error("a thread of the supervisor waits for a client's file system")
	}
	closer.mu.Lock()
	closer.fuse = fuse
	closer.abortSoon(userOf(owner), q)
	closer.mu.Unlock()
	eventually(t, func() string { return p.closing(before) })
	end()
	p.Close()
}

// TestStuckProbesOfOthers: users whose helpers hang, however many, keep nobody else from being served.
func TestStuckProbesOfOthers(t *testing.T) {
	p := &Prober{Config: Config{Patience: time.Hour}, ctx: t.Context()} // a user with stuck helpers is refused at once
	for i := range MaxAll {
		p.add(userOf(uint32(1000+i/MaxUser)), 1, 1)
	}
	if err := p.acquire(userOf(1)); err != nil {
		t.Errorf("a user without a stuck helper: %v", err)
	}
	if err := p.acquire(userOf(1000)); err == nil {
		t.Error("a user with as many stuck helpers as there may be is served")
	}
	for i := range MaxAll - 1 {
		if err := p.acquire(userOf(uint32(2 + i/MaxUser))); err != nil {
			t.Fatalf("look %d: %v", i, err)
		}
	}
	p.Patience = time.Millisecond
	if err := p.acquire(userOf(999)); err == nil {
		t.Error("more looks are under way than there may be")
	}
}

// TestUnreceived: what a client has sent and nobody has received is closed with its connection, and by a helper if descriptors are
// among it.
func TestUnreceived(t *testing.T) {
	p := startProber(t)
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
		p.HangUp(owner, conn)
		if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil { // waits for the last descriptor of the other end
			t.Errorf("the pipe: %d, %v", n, err)
		}
		r.Close()
		client.Close()
	}
}

// TestProber: a helper and the cached path return the same, and errors are the kernel's.
func TestProber(t *testing.T) {
	p := startProber(t)
	repo := newRepo(t)
	link := filepath.Join(filepath.Dir(repo), "link")
	if err := os.Symlink(repo, link); err != nil {
		t.Fatal(err)
	}
	dir := opened(t, repo)
	cached, err := p.Identify(owner, dir)
	if err != nil || cached.UID != owner || cached.Mode&unix.S_IFMT != unix.S_IFDIR {
		t.Errorf("%+v, %v", cached, err)
	}
	found, err := p.FileSystem(owner, dir)
	var fs unix.Statfs_t
	if failed := unix.Statfs(repo, &fs); failed != nil || err != nil || identityOf(found) != cached || found.FSType != fs.Type || found.FreeFiles == 0 {
		t.Errorf("%+v, want %+v; %v, %v", found, cached, err, failed)
	}
	for path, want := range map[string]error{
		repo: nil, link: unix.ELOOP, repo + "/none": unix.ENOENT, "/dev/null": unix.ENOTDIR, "/proc/self/cwd": unix.ELOOP,
	} {
		f, _, err := p.OpenDir(owner, path)
		if f != nil {
			f.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if p.all != (count{}) || len(p.payers) != 0 {
		t.Errorf("probes in progress: %+v, %v", p.all, p.payers)
	}
}

// TestProbeHelper: a helper has no rights except to traverse directories, is reused, and is replaced when it ends.
func TestProbeHelper(t *testing.T) {
	p := startProber(t)
	h, err := p.takeHelper()
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.pid))
	if err != nil {
		t.Fatal(err)
	}
	user := p.User
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
	if _, err := p.FileSystem(owner, dir); err != nil {
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
	if _, err := p.FileSystem(owner, dir); err != nil {
		t.Errorf("after its end: %v", err)
	}
	if len(p.idle) != 1 || p.idle[0] == h {
		t.Error("the helper was not replaced")
	}
}

// BenchmarkProbe compares a probe by a helper with one answered from the kernel's memory.
func BenchmarkProbe(b *testing.B) {
	p := startProber(b)
	repo := newRepo(b)
	b.Run("helper", func(b *testing.B) {
		for b.Loop() {
			question := inside.Probe{Kind: inside.ProbeOpen, Flags: unix.O_DIRECTORY, Path: repo}
			if err := p.acquire(userOf(owner)); err != nil {
				b.Fatal(err)
			}
			_, files, err := p.ask(userOf(owner), question)
			if err != nil {
				b.Fatal(err)
			}
			wire.CloseAll(files)
		}
	})
	b.Run("memory", func(b *testing.B) {
		for b.Loop() {
			f, _, err := p.OpenDir(owner, repo)
			if err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	})
}

// closing says what of clients' descriptors is not closed yet, "" if nothing is. before is the number of this process's.
func (p *Prober) closing(before int) string {
	p.closer.mu.Lock()
	users, parked := len(p.closer.payers), p.closer.parked()
	p.closer.mu.Unlock()
	p.mu.Lock()
	all := p.all
	p.mu.Unlock()
	list, err := os.ReadDir("/proc/self/fd")
	if users > 0 || parked > 0 || all != (count{}) || err != nil || len(list) > before+maxIdleProbes {
		return fmt.Sprintf("%d users have something to close, %d connections are parked, looks: %+v, %d descriptors after %d", users, parked, all, len(list), before)
	}
	return ""
}
