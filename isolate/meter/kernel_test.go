package meter

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Four multicast groups with 2,502 members; a netlink socket with 5,000 bytes, a listening socket, one connection that has been accepted with as much data as a job may
// have, one that is not accepted with 0x1000 bytes, one in TIME_WAIT; UDP sockets with 0x2000 and 0x100 bytes.
var socketTables = map[string]string{
	"sockstat":  "sockets: used 109\nTCP: inuse 3 orphan 0 tw 10 alloc 1 mem 100000\nUDP: inuse 1 mem 0\nUDPLITE: inuse 0\n",
	"sockstat6": "TCP6: inuse 0\nUDP6: inuse 1\n",
	"netlink": "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n" +
		"000000003c6dd8a2 0   2          00000000 5000     0        0     2        0        27085258\n",
	"tcp": "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:9C41 00000000:0000 0A 00000000:00000001 00:00000000 00000000  1001        0 27085258 1 0 100 0 0 10 0\n" +
		"   1: 0100007F:9C41 0100007F:C350 01 00000000:08000000 00:00000000 00000000  1001        0 27085259 1 0 20 4 30 10 -1\n" +
		"   2: 0100007F:9C41 0100007F:C352 08 00000000:00001000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1\n" +
		"   3: 0100007F:C358 0100007F:9C41 06 00000000:00000000 03:0000176C 00000000     0        0 0 3 0\n",
	"igmp": "Idx\tDevice    : Count Querier\tReporter\n1\tlo        :     2      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n" +
		"\t\t\t\tFB0000E0   500 0:00000000\t\t0\n",
	"igmp6": "1    lo              ff020000000000000000000000000001     1 0000000C 0\n" +
		"1    lo              ff0200000000000000000000000000fb  2000 00000004 0\n",
	"mcfilter": "Idx Device        MCA        SRC    INC    EXC\n  1     lo 0xe00000fb 0x01020304      1      0\n",
	"tcp6":     "is not read: there are no such sockets",
	"udp": "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n" +
		"  12: 00000000:0035 00000000:0000 07 00000000:00002000 00:00000000 00000000     0        0 1234 2 0 0\n",
	"udp6": "  12: 00000000:0035 00000000:0000 07 00000100:00000000 00:00000000 00000000     0        0 1234 2 0 0\n",
}

// TestSocketBytes: what is charged to nobody counts, and nothing else does.
func TestSocketBytes(t *testing.T) {
	dir := t.TempDir() + "/"
	for name, text := range socketTables {
		if err := os.WriteFile(dir+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const want = 2*sourceBytes + 4*groupBytes + 2502*membershipBytes + 10*timeWaitBytes + 5000 + unacceptedBytes + dataFactor*0x1000 + 0x2000 + 0x100
	if n, err := socketBytes(dir); n != want || err != nil {
		t.Errorf("%d bytes, %v; want %d", n, err, want)
	}
	more := strings.Replace(socketTables["tcp"], "00000000:08000000", "00000003:08000004", 1)
	if err := os.WriteFile(dir+"tcp", []byte(more), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := socketBytes(dir); n != want+7 || err != nil {
		t.Errorf("%d bytes, %v; want %d with 7 more than a job's connections may hold", n, err, want+7)
	}
	short := strings.Replace(socketTables["sockstat"], "mem 100000", "mem 100", 1)
	if err := os.WriteFile(dir+"sockstat", []byte(short), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := socketBytes(dir); n != want-unacceptedBytes-dataFactor*0x1000 || err != nil {
		t.Errorf("%d bytes, %v: the connections cannot have many, and were read", n, err)
	}
	groups := strings.Repeat("\t\t\t\tFB0000E0     1 0:00000000\t\t0\n", MaxKernelBytes/groupBytes)
	if err := os.WriteFile(dir+"igmp", []byte(groups), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := socketBytes(dir); !errors.Is(err, errTooMuchToRead) {
		t.Errorf("too many multicast groups: %v", err)
	}
	if err := os.Remove(dir + "igmp"); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat(socketTables["netlink"], maxTable/len(socketTables["netlink"])+1)
	if err := os.WriteFile(dir+"netlink", []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := socketBytes(dir); !errors.Is(err, errTooMuchToRead) {
		t.Errorf("a table that is too long: %v", err)
	}
	if n, err := socketBytes(filepath.Join(dir, "none") + "/"); n != 0 || err != nil {
		t.Errorf("a kernel without networking: %d bytes, %v", n, err)
	}
}

// socketBytes is a survey with the tables.
func socketBytes(dir string) (int64, error) {
	v, err := surveyOf(dir)
	if err != nil {
		return v.uncharged, err
	}
	return v.bytes()
}

// TestKernelOrder: short tables are read first. Jobs with very many sockets do not delay the look at one that uses up memory.
func TestKernelOrder(t *testing.T) {
	_, pidfd, end := sleeper(t)
	defer end()
	var mu sync.Mutex
	var order []int
	job := func(sockets int) *kernelHolder {
		dir := t.TempDir() + "/"
		stat := fmt.Sprintf("TCP: inuse %d orphan 0 tw 0 alloc 1 mem 1000000\n", sockets)
		line := strings.Split(socketTables["tcp"], "\n")[3] + "\n" // not accepted
		seen, err := survey{}, errors.Join(os.WriteFile(dir+"sockstat", []byte(stat), 0o600),
			os.WriteFile(dir+"tcp", []byte(strings.Repeat(line, 10000)), 0o600))
		if err == nil {
			seen, err = surveyOf(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		return &kernelHolder{pidfd: pidfd, group: fakeGroup{}, maxTasks: 10, seen: seen, target: target{end: func() {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, sockets)
		}}}
	}
	if readTables([]*kernelHolder{job(40000), job(30000), job(20000), job(10000)}) {
		t.Error("nobody is blamed")
	}
	for i, sockets := range order { // two at a time: one can be overtaken, by all that begin later
		if len(order) != 4 || sockets > (i+2)*10000 {
			t.Errorf("the order of ends, by number of sockets: %d", order)
		}
	}
}

// TestKernelWatch: a job with more tasks than its limit is ended at the first look, a small one is not, and a
// process that has ended is not judged by its number.
func TestKernelWatch(t *testing.T) {
	pid, pidfd, end := sleeper(t)
	ended := make(chan struct{})
	var w KernelWatch
	many := make([]int, 50)
	for i := range many {
		many[i] = pid
	}
	small := w.Watch(pidfd, fakeGroup{pids: many[:1]}, 1, 10, func() { t.Error("the small job was ended") })
	large := w.Watch(pidfd, fakeGroup{pids: many}, 2, 10, func() { close(ended) })
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the job with many tasks was not ended")
	}
	if small() || !large() {
		t.Error("the wrong job counts as ended")
	}
	end()
	h := &kernelHolder{pidfd: pidfd, group: fakeGroup{pids: many}, maxTasks: 10, target: target{end: func() { t.Error("a job that is gone was ended") }}}
	if !h.check((*kernelHolder).look) || !h.check((*kernelHolder).read) {
		t.Error("a job that is gone is blamed")
	}
}

// sleeper starts a process that does nothing until end is called, which returns when the process has ended.
func sleeper(t *testing.T) (pid int, pidfd *os.File, end func()) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		if err := errors.Join(cmd.Process.Kill(), exitError(cmd.Wait())); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		end()
		t.Fatal(err)
	}
	pidfd = os.NewFile(uintptr(fd), "pidfd")
	t.Cleanup(func() { pidfd.Close() })
	return cmd.Process.Pid, pidfd, end
}

// exitError is nil for a process that was killed.
func exitError(err error) error {
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return nil
	}
	return err
}

// BenchmarkSocketBytes measures a look at the sockets of this network namespace.
func BenchmarkSocketBytes(b *testing.B) {
	for b.Loop() {
		if _, err := socketBytes("/proc/self/net/"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkKernelBytes measures the look at the whole host.
func BenchmarkKernelBytes(b *testing.B) {
	for b.Loop() {
		if _, err := kernelBytes(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestRestAfter: the supervisor rests most of the time after short looks, and after long ones, which jobs can cause, no longer than
// they took.
func TestRestAfter(t *testing.T) {
	for look, want := range map[time.Duration]time.Duration{
		0: 0, 20 * time.Millisecond: 80 * time.Millisecond, 250 * time.Millisecond: time.Second,
		900 * time.Millisecond: time.Second, 6 * time.Second: 6 * time.Second,
	} {
		if got := restAfter(look); got != want {
			t.Errorf("%v after a look of %v, want %v", got, look, want)
		}
	}
}
