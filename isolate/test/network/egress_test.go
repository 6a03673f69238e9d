package network

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/egress/control"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
)

// egresses returns the processes of corral-egress that this test process has started.
func egresses(t *testing.T) (pids []int) {
	t.Helper()
	for _, pid := range sandboxtest.Children(t, os.Getpid()) {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(line) == "corral-egress\x00" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestEgressKilled: when the process dies, its connections end, and the doors of jobs that run are open again soon. Nothing is open meanwhile.
func TestEgressKilled(t *testing.T) {
	w := newWorld(t, func(c *isolate.Config) { c.Log = nil }) // it logs the death as an error
	l := w.Launch(w.Spec("perl", "-e", `use Socket; $| = 1; $at = sockaddr_in(5432, inet_aton("db.example.org"));
		socket S, PF_INET, SOCK_STREAM, 0; connect S, $at or die $!; print "ready\n"; $n = sysread S, $x, 9; print "ended: ", $n ? $n : 0, "\n";
		for (1..200) {
			select undef, undef, undef, 0.05; $a = gethostbyname "db.example.org" or next;
			socket S, PF_INET, SOCK_STREAM, 0; connect S, sockaddr_in(5432, $a) or next; syswrite S, "again\n"; sysread S, $x, 9 and print($x), last
		}`))
	for _, pid := range egresses(t) {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := l.End(); err != nil || d.Out != "ready\nended: 0\nagain\n" || d.Network == nil || !d.Network.Lost || d.Network.Connections != 1 {
		t.Errorf("%q, reached %+v, %v", d.Out, d.Network, err)
	}
	if got := w.sh(fetch); got != fetched {
		t.Errorf("a later job: %q", got)
	}
}

// whereService asks where a service is, as apt-get does before it looks up the host itself.
const whereService = `perl -MSocket -e 'socket S, PF_INET, SOCK_DGRAM, 0; connect S, sockaddr_in(53, inet_aton "127.0.0.1");
	send S, pack("n6", 7, 256, 1, 0, 0, 0) . "\5_http\4_tcp\3web\7example\3net\0" . pack("nn", 33, 1), 0; recv S, $x, 999, 0'`

// TestSummary: the audit log says what a job reached. That a service has no record of where it is was not denied: its host may be allowed.
func TestSummary(t *testing.T) {
	var state string
	w := newWorld(t, func(c *isolate.Config) { state = c.StateDir })
	w.sh(fetch + "; curl -sS https://denied.example.net/; " + whereService)
	var found string
	sandboxtest.Eventually(t, 10*time.Second, "the audit log has what was reached", func() bool {
		files, _ := filepath.Glob(filepath.Join(state, "audit", "*"))
		for _, path := range files {
			b, _ := os.ReadFile(path)
			for _, line := range strings.Split(string(b), "\n") {
				var r struct{ Event, Network, Reached string }
				if json.Unmarshal([]byte(line), &r) == nil && r.Reached != "" {
					found = r.Reached
				}
			}
		}
		return found != ""
	})
	s, err := control.ReadSummary(found)
	if err != nil || s.Connections != 1 || s.Denied == 0 || len(s.Denials) != 1 || s.Denials[0].Name != "denied.example.net" || s.BytesDown < 100 || s.BytesUp < 100 {
		t.Errorf("%s: %v", found, err)
	}
}

// TestNothingLeft: whatever ends a job, its door is gone, and no connection of it stays.
func TestNothingLeft(t *testing.T) {
	w := newWorld(t)
	spec := w.Spec("perl", "-e", `use Socket; socket S, PF_INET, SOCK_STREAM, 0; connect S, sockaddr_in(5432, inet_aton("db.example.org")) or die $!;
		$| = 1; print "ready\n"; sleep 100`)
	spec.Limits.Wall = 5 * time.Second // until then, it must have connected
	l := w.Launch(spec)
	if _, err := l.End(); err != nil {
		t.Error(err)
	}
	sandboxtest.Eventually(t, 10*time.Second, "the connection is closed", func() bool {
		b, err := os.ReadFile("/proc/net/tcp")
		return err == nil && !strings.Contains(string(b), fmt.Sprintf(":%04X 01", 5432))
	})
}

// TestLargePackets: the loopback interface of a job with a door carries large packets, where the kernel has them.
func TestLargePackets(t *testing.T) {
	w := newWorld(t)
	const asleep = `$| = 1; print "ready\n"; sleep 100 # until the interface was looked at`
	l := w.Launch(w.Spec("perl", "-e", asleep))
	var link []syscall.NetlinkRouteAttr
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		if line, _ := os.ReadFile(path); string(line) == "perl\x00-e\x00"+asleep+"\x00" {
			link, err = loopbackAttributes(filepath.Join(filepath.Dir(path), "ns/net"))
		}
	}
	if err != nil || len(link) == 0 {
		t.Fatalf("%d attributes of the interface, %v", len(link), err)
	}
	for _, a := range link {
		if a.Attr.Type == 63 && binary.NativeEndian.Uint32(a.Value) != 8*65535 { // IFLA_GSO_IPV4_MAX_SIZE, since Linux 6.3
			t.Errorf("packets of up to %d bytes", binary.NativeEndian.Uint32(a.Value))
		}
	}
	if err := l.Kill(); err != nil {
		t.Error(err)
	}
	if _, err := l.End(); err != nil {
		t.Error(err)
	}
}

// loopbackAttributes returns what rtnetlink(7) says of the loopback interface of a network namespace.
func loopbackAttributes(namespace string) (list []syscall.NetlinkRouteAttr, err error) {
	f, err := os.Open(namespace)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sandboxtest.OnThread(func() {
		if err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return
		}
		var table []byte
		if table, err = syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC); err != nil {
			return
		}
		var messages []syscall.NetlinkMessage
		if messages, err = syscall.ParseNetlinkMessage(table); err == nil {
			list, err = syscall.ParseNetlinkRouteAttr(&messages[0]) // there is no other interface
		}
	})
	return list, err
}
