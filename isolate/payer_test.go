package isolate

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"corral/internal/directory"
	"corral/internal/test/sandboxtest"
	"corral/isolate/cell"
	"corral/isolate/host"
	"corral/isolate/wire"
)

// TestPayerCharged: jobs, denied requests and audit records of subordinate ids count on the holder of their range.
func TestPayerCharged(t *testing.T) {
	var d denialLimiter
	s := &Supervisor{jobs: newJobTable(9, 2, &cell.Jails{})}
	for i, want := range []bool{true, true, false} {
		r := &run{id: fmt.Sprint(i), peer: host.Peer{UID: 100000 + uint32(i), Holder: 1000}}
		if err := s.jobs.register(r); (err == nil) != want {
			t.Errorf("job %d: %v", i, err)
		}
		if want {
			defer s.jobs.unregister(r)
		}
	}
	now := host.FileTime()
	for i := range denialBurst {
		if ok, _ := d.allow(denialKey(host.Peer{UID: 100000 + uint32(i), Holder: 1000, Account: &directory.Account{}}), now); !ok {
			t.Fatalf("denial %d was not allowed", i)
		}
	}
	if ok, _ := d.allow(denialKey(host.Peer{UID: 200000, Holder: 1000}), now); ok {
		t.Error("another id of the same user has denials of its own")
	}
	if who := s.who(host.Peer{UID: 100005, Holder: 1000}, ""); who.Peer != 100005 || who.Payer != 1000 {
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
	const group, first, most = 54321, 0x6ff00000, 3
	const bound, users = most + maxUserAsking, most + maxUserAsking + 5
	for _, tt := range []struct {
		subuid string
		want   int
	}{{fmt.Sprintf("%d:%d:1000\n", owner, first), bound}, {"", users}} {
		subuid := filepath.Join(t.TempDir(), "subuid")
		put(t, subuid, tt.subuid, 0o600, 0)
		s := supervise(t, func(c *Config) { c.MaxPerUser, c.switches.subuid = most, subuid })
		path := filepath.Join(sandboxtest.OpenDir(t), "socket")
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
		hello := hex.EncodeToString(wire.Encode(wire.Empty(wire.OpHello), 1))
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
