package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/rpc"
)

// echo answers each message with the principal and the message.
func echo(ctx context.Context, conn rpc.Conn, who rpc.Caller) error {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	for {
		text, err := conn.Read()
		if errors.Is(err, rpc.ErrTooLong) {
			text = []byte("too long")
		} else if err != nil {
			return err
		}
		if err := conn.Write(append([]byte(who.Principal+" "), text...)); err != nil {
			return err
		}
	}
}

// ownDir returns a directory that ListenUnix accepts.
func ownDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "corral-transport-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestListenUnix(t *testing.T) {
	dir := ownDir(t)
	path := func(name string) string { return filepath.Join(dir, name) }
	listening := func(name string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path(name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	listening("used")
	_ = listening("stale").Close()
	packets, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path("packets"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	if err := errors.Join(
		os.WriteFile(path("file"), nil, 0o600), os.Symlink(path("nowhere"), path("link")), os.Mkdir(path("open"), 0o700),
		os.Chmod(path("open"), 0o770), os.Mkdir(path("open/own"), 0o700), os.Mkdir(path("sticky"), 0o700),
		os.Chmod(path("sticky"), 0o777|os.ModeSticky), os.Symlink(path("open"), path("way")),
	); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, want string // substring of the error, "" for success
		mode       os.FileMode
	}{
		{"new", "", 0o600},
		{"for-all", "", 0o666},
		{"sticky/new", "", 0o600},
		{"stale", "", 0o600},
		{"used", "another server is listening on", 0o600},
		{"packets", "another program uses", 0o600},
		{"file", "is not a socket", 0o600},
		{"link", "is not a socket", 0o600},
		{"open/new", "can be written to by others", 0o600},
		{"open/own/new", "can be written to by others", 0o600},
		{"way/own/new", "can be written to by others", 0o600},
		{"none/new", "no such file", 0o600},
		{"file/new", "is not a directory", 0o600},
	} {
		s, err := ListenUnix(path(tt.name), tt.mode)
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		info, err := os.Lstat(path(tt.name))
		if err != nil || info.Mode() != os.ModeSocket|tt.mode {
			t.Errorf("%s: %v, %v", tt.name, info, err)
		}
		_ = s.Close()
		if _, err := os.Lstat(path(tt.name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s still exists: %v", tt.name, err)
		}
	}
}

// TestListenUnixOthers checks that files of another user are neither removed nor trusted.
func TestListenUnixOthers(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	dir := ownDir(t)
	theirs := filepath.Join(dir, "theirs")
	_ = os.Mkdir(theirs, 0o755)
	socket := filepath.Join(dir, "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if err := errors.Join(os.Lchown(theirs, 61300, 61300), os.Lchown(socket, 61300, 61300)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{theirs + "/new": "belongs to user 61300", socket: "belongs to another user"} {
		if s, err := ListenUnix(path, 0o600); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", path, s, err)
		}
	}
	if _, err := os.Lstat(socket); err != nil {
		t.Error(err)
	}
}

// TestListenUnixLocked checks that a flock on the directory, which everybody who can read it may take, does not prevent
// the creation of a socket.
func TestListenUnixLocked(t *testing.T) {
	dir := ownDir(t)
	held, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	s, err := ListenUnix(filepath.Join(dir, "socket"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 || list[0].Name() != "socket" {
		t.Errorf("the directory has %v, %v", list, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestLockFile checks that a file that other users can lock, or that was removed meanwhile, is not accepted as a lock.
func TestLockFile(t *testing.T) {
	file := filepath.Join(ownDir(t), "lock")
	f, err := lockFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockFile(file); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("second lock: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = lockFile(file); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for name, change := range map[string]func() error{
		"for others to read": func() error { return os.Chmod(file, 0o644) },
		"a link":             func() error { return errors.Join(os.Remove(file), os.Symlink("/dev/null", file)) },
		"a directory":        func() error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if f, err := lockFile(file); err == nil {
			f.Close()
			t.Errorf("%s: locked", name)
		}
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		f, err := lockFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

// TestListenUnixAtOnce checks that exactly one of many servers gets the path of a dead server's socket.
func TestListenUnixAtOnce(t *testing.T) {
	path := filepath.Join(ownDir(t), "socket")
	for range 20 {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close()
		const many = 8
		made := make(chan *Socket, many)
		for range many {
			go func() {
				s, _ := ListenUnix(path, 0o600) // it fails if another one has the path
				made <- s
			}()
		}
		var got []*Socket
		for range many {
			if s := <-made; s != nil {
				got = append(got, s)
			}
		}
		if len(got) != 1 {
			t.Fatalf("%d servers got the path", len(got))
		}
		if c, err := net.Dial("unix", path); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
		_ = got[0].Close()
	}
}

// TestSocketOfAnother checks that Close does not remove a socket that replaced its own.
func TestSocketOfAnother(t *testing.T) {
	path := filepath.Join(ownDir(t), "socket")
	s, err := ListenUnix(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600), s.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// onUnix starts a server, and returns the path of its socket and a function that stops it.
func onUnix(t *testing.T, serve Handler) (path string, end func() error) {
	t.Helper()
	path = filepath.Join(ownDir(t), "socket")
	s, err := ListenUnix(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- ServeUnix(ctx, s, UnixOptions{Log: silent(), Principal: func(uid uint32) string { return fmt.Sprintf("user:%d", uid) }}, serve)
	}()
	t.Cleanup(cancel)
	return path, func() error {
		cancel()
		return within(t, ended)
	}
}

// within returns the value received from c within a limit.
func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(sandboxtest.Slow(time.Minute)):
		t.Fatal("timed out")
	}
	panic("not reached")
}

func TestServeUnix(t *testing.T) {
	sandboxtest.Leaks(t)
	path, end := onUnix(t, echo)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "hello\n"+strings.Repeat("x", rpc.MaxMessage+1)+"\nagain\n")
	answers := bufio.NewReader(conn)
	me := fmt.Sprintf("user:%d ", os.Getuid())
	for _, want := range []string{"hello\n", "too long\n", "again\n"} {
		if got, err := answers.ReadString('\n'); err != nil || got != me+want {
			t.Errorf("%q, %v", got, err)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if _, err := answers.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket still exists: %v", err)
	}
}

// TestUnixShare checks the maximum number of connections of a user, and that ending one makes room for another.
func TestUnixShare(t *testing.T) {
	var served atomic.Int32
	path, end := onUnix(t, func(ctx context.Context, conn rpc.Conn, who rpc.Caller) error {
		served.Add(1)
		return echo(ctx, conn, who)
	})
	dial := func() net.Conn {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var conns []net.Conn
	for range maxPerClient {
		conns = append(conns, dial())
	}
	sandboxtest.Eventually(t, 20*time.Second, "all are served", func() bool { return served.Load() == maxPerClient })
	if n, err := dial().Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("connection above the maximum: %d, %v", n, err)
	}
	conns[0].Close()
	sandboxtest.Eventually(t, 20*time.Second, "another is served", func() bool {
		_, err := io.WriteString(dial(), "x\n")
		return err == nil && served.Load() > maxPerClient
	})
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestAllowed(t *testing.T) {
	o := &UnixOptions{Peers: []uint32{61301}}
	for uid, want := range map[uint32]bool{0: true, uint32(os.Getuid()): true, 61301: true, 61302: false} {
		if got := o.allowed(uid); got != want {
			t.Errorf("%d: %t", uid, got)
		}
	}
}

// TestUnixStalled checks that a client that does not read delays no other, and that its connection can be ended.
func TestUnixStalled(t *testing.T) {
	path, end := onUnix(t, func(ctx context.Context, conn rpc.Conn, _ rpc.Caller) error {
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		for {
			if err := conn.Write(make([]byte, 64<<10)); err != nil {
				return err
			}
		}
	})
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, 20*time.Second, "much waits", func() bool {
		var n int
		_ = raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
		return err == nil && n >= 64<<10
	})
	if err := end(); err != nil {
		t.Error(err)
	}
}
