package isolate

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
)

// TestSubUIDs: usage of a subordinate id is charged to the holder of its range, and invalid lines of /etc/subuid are
// ignored.
func TestSubUIDs(t *testing.T) {
	dir := t.TempDir()
	s := &subordinates{subuid: filepath.Join(dir, "subuid"), passwd: filepath.Join(dir, "passwd"), log: slog.New(slog.DiscardHandler)}
	const passwd = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\nbob:x:1001:1001::/:\nbroken:x\nodd:x:many:1::/:\nada:x:7:7::/:\n"
	for _, tt := range []struct {
		name, subuid string
		want         map[uint32]uint32
	}{
		{"none", "", map[uint32]uint32{0: 0, 1000: 0, 100000: 0}},
		{
			"two users", "ada:100000:65536\nbob:165536:65536\n",
			map[uint32]uint32{0: 0, 99999: 0, 100000: 1000, 165535: 1000, 165536: 1001, 231071: 1001, 231072: 0, 1000: 0},
		},
		{"several ranges, not sorted", "ada:300000:10\nbob:200000:10\nada:100000:10", map[uint32]uint32{100009: 1000, 100010: 0, 200005: 1001, 300000: 1000}},
		{"number", "1234:100000:10\n", map[uint32]uint32{100001: 1234}},
		{"no account here", "carol:100000:10\ncarol:200000:10\ndave:300000:1\n", map[uint32]uint32{100005: 100000, 200005: 100000, 300000: 0}},
		{"root's", "root:100000:1000000000\nada:200000:10\n", map[uint32]uint32{100000: 0, 200001: 1000}},
		{"root's by number", "0:100000:10\n", map[uint32]uint32{100000: 0}},
		{"one within another", "ada:100000:1000\nbob:100100:10\n", map[uint32]uint32{100099: 1000, 100105: 1001, 100110: 1000, 100999: 1000, 101000: 0}},
		{"with root in it", "ada:0:10\n", map[uint32]uint32{0: 0, 1: 1000, 9: 1000}},
		{"root alone in it", "ada:0:1\n", map[uint32]uint32{0: 0, 1: 0}},
		{"its own holder in it", "ada:1000:10\n", map[uint32]uint32{1000: 0, 1001: 1000}},
		{"of a subordinate", "ada:100000:10\n100005:200000:10\n", map[uint32]uint32{200001: 1000}},
		{"in a circle", "1000:1001:1\n1001:1000:1\n", map[uint32]uint32{1000: 1000, 1001: 1001}},
		{"to the end", "ada:4294967290:100\n", map[uint32]uint32{4294967289: 0, 4294967295: 1000}},
		{
			"odd lines", "# ada:1:2\n\n  bob:100000:10  \r\nada\nada:1\n:200000:10\nada:-1:10\nada:300000:0\nada:300000:99999999999\nada:4294967296:1\nada:x:1\n" +
				"ada:300000:1:1\nada:0x10:1\nada: 300000:1\n" + strings.Repeat("x", 1<<17) + ":1:1\nada:500000:10",
			map[uint32]uint32{100003: 1001, 200000: 0, 300000: 0, 16: 0, 500001: 1000},
		},
	} {
		if err := os.WriteFile(s.subuid, []byte(tt.subuid), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.passwd, []byte(passwd), 0o600); err != nil {
			t.Fatal(err)
		}
		s.seen = [2]fileVersion{} // the file may have been written within one tick
		for uid, want := range tt.want {
			if got := s.holder(uid); got != want {
				t.Errorf("%s: %d is held by %d, want %d", tt.name, uid, got, want)
			}
		}
	}
}

// TestSubUIDsReread: the files are read again after a change, and only up to the bounds.
func TestSubUIDsReread(t *testing.T) {
	dir := t.TempDir()
	s := &subordinates{subuid: filepath.Join(dir, "subuid"), passwd: filepath.Join(dir, "passwd"), log: slog.New(slog.DiscardHandler)}
	replace := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, uid, holder uint32) {
		t.Helper()
		if got := s.holder(uid); got != holder {
			t.Errorf("%s: %d is held by %d, want %d", what, uid, got, holder)
		}
	}
	want("no file", 100005, 0)
	replace(s.subuid, "ada:100000:10\n")
	want("no account", 100005, 100000)
	replace(s.passwd, "ada:x:1000:1000::/:\n")
	want("an account", 100005, 1000)
	replace(s.subuid, "bob:100000:10\n")
	want("another's", 100005, 100000)
	if err := os.Remove(s.subuid); err != nil {
		t.Fatal(err)
	}
	want("removed", 100005, 0)

	replace(s.subuid, "7:100000:10\n"+strings.Repeat("#\n", maxSubUIDBytes/2-8)+"7:200000:10\n7:300000:10\n")
	want("before the bound", 100005, 7)
	want("beyond it", 300005, 0)
	var many strings.Builder
	for i := range maxSubUIDRanges + 1 {
		fmt.Fprintf(&many, "7:%d:1\n", 1_000_000+i)
	}
	replace(s.subuid, many.String())
	want("the last of as many as may be", 1_000_000+maxSubUIDRanges-1, 7)
	want("one more", 1_000_000+maxSubUIDRanges, 0)

	if err := os.Remove(s.subuid); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(s.subuid, 0o600); err != nil {
		t.Fatal(err)
	}
	want("a FIFO", 100005, 0)
}

// TestPayer: usage is charged to the holder of the range, and permissions stay those of the id.
func TestPayer(t *testing.T) {
	for _, tt := range []struct {
		peer Peer
		want uint32
	}{{Peer{}, 0}, {Peer{UID: 1000}, 1000}, {Peer{UID: 100005, holder: 1000}, 1000}} {
		if got := tt.peer.payer(); got != tt.want {
			t.Errorf("%+v: %d", tt.peer, got)
		}
	}
	var d denialLimiter
	s := &Supervisor{config: Config{MaxJobs: 9, MaxPerUser: 2}, jobs: map[string]*run{}, perUser: map[uint32]int{}}
	for i, want := range []bool{true, true, false} {
		r := &run{id: fmt.Sprint(i), peer: Peer{UID: 100000 + uint32(i), holder: 1000}}
		if err := s.register(r); (err == nil) != want {
			t.Errorf("job %d: %v", i, err)
		}
		if want {
			defer s.unregister(r)
		}
	}
	now := fileTime()
	for i := range denialBurst {
		if ok, _ := d.allow(Peer{UID: 100000 + uint32(i), holder: 1000, Account: &directory.Account{}}.denialKey(), now); !ok {
			t.Fatalf("denial %d was not allowed", i)
		}
	}
	if ok, _ := d.allow(Peer{UID: 200000, holder: 1000}.denialKey(), now); ok {
		t.Error("another id of the same user has denials of its own")
	}
	if who := s.who(Peer{UID: 100005, holder: 1000}, ""); who.Peer != 100005 || who.Payer != 1000 {
		t.Errorf("%+v", who)
	}
}

// asMany connects as several users of a range, each in a process that stays in the group, and prints how many were
// served.
const asMany = `
import ctypes, os, socket, sys
path, hello, group, users = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
os.setgroups([group]); os.setresgid(65534, 65534, 65534)
if ctypes.CDLL(None, use_errno=True).unshare(0x10000000): raise OSError(ctypes.get_errno(), "unshare")
print("ready", flush=True); sys.stdin.readline()
served = 0
for n in range(1, users + 1):
    r, w = os.pipe()
    if os.fork() == 0:
        os.setresuid(n, n, n)
        try:
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(path); s.send(hello)
            got = s.recv(65536)
        except (ConnectionError, BrokenPipeError): got = b""
        except OSError as e: print(e, file=sys.stderr); os._exit(1)
        os.write(w, b"y" if got else b"n"); os.close(w)
        sys.stdin.readline(); os._exit(0)
    os.close(w); served += os.read(r, 1) == b"y"
print(served, flush=True)
`

// TestSubUIDsAttack: a user who connects with many subordinate ids through the group's socket is limited to one
// user's connections.
func TestSubUIDsAttack(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Program("python3"))
	const group, first, users, most = 54321, 0x6ff00000, 12, 3
	for _, tt := range []struct {
		subuid string
		want   int
	}{{fmt.Sprintf("%d:%d:1000\n", owner, first), most}, {"", users}} {
		subuid := filepath.Join(t.TempDir(), "subuid")
		put(t, subuid, tt.subuid, 0o600, 0)
		s := supervise(t, func(c *Config) { c.MaxPerUser, c.subuid = most, subuid })
		dir := t.TempDir()
		for _, d := range []string{dir, filepath.Dir(dir)} {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(dir, "socket")
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 0, group); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o660); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- s.Serve(l) }()

		ctx, cancel := context.WithCancel(context.Background())
		hello := hex.EncodeToString(wire.Empty(wire.OpHello, 1))
		cmd := exec.CommandContext(ctx, "python3", "-c", asMany, path, hello, fmt.Sprint(group), fmt.Sprint(users))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		lines.Scan()
		// As newuidmap(1) does for the holder of the range.
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/uid_map", cmd.Process.Pid), fmt.Appendf(nil, "0 %d 1\n1 %d %d\n", owner, first, users), 0); err != nil {
			t.Error(err)
		}
		if _, err := fmt.Fprintln(in); err != nil {
			t.Error(err)
		}
		lines.Scan()
		if got := lines.Text(); got != fmt.Sprint(tt.want) {
			t.Errorf("%q: %s of %d users are served, want %d", tt.subuid, got, users, tt.want)
		}
		in.Close()
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		cancel()
		l.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
