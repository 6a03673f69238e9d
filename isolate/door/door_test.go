package door

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"corral/egress/control"
	"corral/internal/log"
	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// TestMain: the test binary is also a corral-egress, which does what the name of a door says.
func TestMain(m *testing.M) {
	if os.Args[0] == Program {
		fake()
		os.Exit(0)
	}
	os.Exit(sandboxtest.PrivateMounts(m))
}

// slowness is how long a process that reads slowly takes for a message.
const slowness = 20 * time.Millisecond

// floodLines is how many lines a process writes that was taken over.
const floodLines = 20_000

// floodLine looks like a line of the supervisor's own.
const floodLine = `{"level":"ERROR","msg":"job ended","uid":0}` + "\x1b[2J"

// fake answers as corral-egress does, or as one that was taken over.
func fake() {
	send := func(kind control.Kind, door uint64, text string) {
		_ = unix.Sendto(3, control.Reply{Kind: kind, Door: door, Text: text}.Encode(), 0, nil)
	}
	names := map[uint64]string{}
	slow := false
	b := make([]byte, control.MaxMessage)
	for {
		if slow {
			time.Sleep(slowness)
		}
		n, _, _, _, err := unix.Recvmsg(3, b, make([]byte, 256), 0)
		if n <= 0 || err != nil {
			return
		}
		m, err := control.Read(b[:n])
		if err != nil {
			os.Exit(2)
		}
		switch m := m.(type) {
		case control.Open:
			names[m.Door] = m.Name
			if m.Again {
				names[m.Door] += ", again"
			}
			fakeOpen(m, send)
			slow = slow || m.Name == "reads slowly"
		case control.Update:
			names[m.Door] += string(m.Rules)
		case control.Report:
			send(control.KindReported, m.Door, "report of "+names[m.Door])
		case control.Close:
			text := "end of " + names[m.Door]
			if names[m.Door] == "status" {
				text = status()
			}
			if names[m.Door] != "mute at the end" {
				send(control.KindReported, m.Door, text)
			}
		}
	}
}

func fakeOpen(m control.Open, send func(control.Kind, uint64, string)) {
	switch m.Name {
	case "mute":
		return
	case "dies":
		os.Exit(1)
	case "refuses":
		send(control.KindOpened, m.Door, "no rule allows "+m.Ask+"\nhint: add it")
		return
	}
	send(control.KindOpened, m.Door, "")
	switch m.Name {
	case "stops to read":
		time.Sleep(time.Hour)
	case "dies later":
		os.Exit(1)
	case "floods the log":
		_, _ = os.Stderr.WriteString(strings.Repeat(floodLine+"\n", floodLines) + strings.Repeat("x", 3*maxLine))
	case "repeats itself":
		for range 2 * maxStrange {
			send(control.KindReported, 1<<40, "of a door that is closed")
		}
	case "talks":
		send(control.KindReported, m.Door, "nobody asked")
	case "lies about its size":
		_ = unix.Sendto(3, make([]byte, 3), 0, nil)
	case "sends a descriptor":
		_ = unix.Sendmsg(3, []byte{byte(control.KindOpened)}, unix.UnixRights(3), nil, 0)
	}
}

// status returns what the process is and may do, as the kernel has it.
func status() string {
	var facts []string
	b, _ := os.ReadFile("/proc/thread-self/status")
	for _, line := range strings.Split(string(b), "\n") {
		name, value, _ := strings.Cut(line, ":\t")
		switch name {
		case "CapPrm", "CapEff", "CapInh", "CapAmb", "Groups", "NSpid":
			facts = append(facts, name+"="+strings.TrimSpace(value))
		}
	}
	score, _ := os.ReadFile("/proc/self/oom_score_adj")
	priority, _ := unix.Getpriority(unix.PRIO_PROCESS, 0)
	open, _ := os.ReadDir("/proc/self/fd")
	var st unix.Stat_t
	_ = unix.Fstat(4, &st)
	return strings.Join(append(facts, fmt.Sprintf("uid=%d pid=%d oom=%s nice=%d files=%d filter=%d env=%v",
		os.Getuid(), os.Getpid(), strings.TrimSpace(string(score)), 20-priority, len(open), st.Size, os.Environ())), " ")
}

// testDoors are doors with the sockets of their requests, which must stay open until the doors are closed.
type testDoors struct {
	*Doors
	sockets []*os.File
}

// newTestDoors returns doors with the fake corral-egress.
func newTestDoors(t *testing.T) *testDoors {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Cgroups)
	sandboxtest.Leaks(t)
	i, err := host.OpenInstance(fmt.Sprintf("door-%d", os.Getpid()), host.DefaultUIDBase, host.DefaultUIDSize)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		Instance: i, Log: slog.New(slog.DiscardHandler), Patience: sandboxtest.Slow(time.Second), Pause: time.Millisecond,
		Program: func() (*os.File, error) {
			b, err := os.ReadFile("/proc/self/exe")
			if err != nil {
				return nil, err
			}
			return wire.Seal(Program, b, 0o111)
		},
		Filter: func(store bool) (*os.File, error) {
			size := 8
			if store {
				size = 16
			}
			return wire.Seal("filter", make([]byte, size), 0)
		},
	}
	d := &testDoors{Doors: New(c)}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), i.Close()); err != nil {
			t.Error(err)
		}
		wire.CloseAll(d.sockets)
	})
	return d
}

// rules returns the Access of an Opening that never changes.
func rules(text string) func() control.Access {
	return func() control.Access { return access(text) }
}

func access(rules string) control.Access { return control.Access{Rules: json.RawMessage(rules)} }

// opening returns a request for a door with sockets of this test.
func (d *testDoors) opening(t *testing.T, name string) Opening {
	t.Helper()
	o := Opening{Payer: 1000, Name: name, Access: rules("{}"), Ask: "npm"}
	for range control.OpenDescriptors {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		o.Sockets = append(o.Sockets, os.NewFile(uintptr(fd), "socket"))
	}
	d.sockets = append(d.sockets, o.Sockets...)
	return o
}

// TestDoors: doors of a user share a process. Its user has no account, and it has neither a capability nor the supervisor's standing with
// the scheduler and the OOM killer. Reports and refusals reach the caller as they are.
func TestDoors(t *testing.T) {
	d := newTestDoors(t)
	o := d.opening(t, "other")
	now := "{}"
	o.Access = func() control.Access { return access(now) }
	other, err := d.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := other.Report(); got != "report of other" {
		t.Errorf("%q", got)
	}
	now = "5"
	d.Update()
	if got := other.Close(); got != "end of other5" {
		t.Errorf("after an update: %q", got)
	}
	door, err := d.Open(d.opening(t, "status"))
	if err != nil {
		t.Fatal(err)
	}
	got := door.Close()
	for _, want := range []string{
		"CapPrm=0000000000000000", "CapEff=0000000000000000", "CapInh=0000000000000000", "CapAmb=0000000000000000", "Groups= ",
		fmt.Sprintf("uid=%d ", d.base+1), " pid=1 ", "oom=500", "nice=0", "filter=8", "env=[GOMEMLIMIT=402653184 CORRAL_CONNECTIONS=256,1792]",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	_, err = d.Open(d.opening(t, "refuses"))
	if refusal := (*job.Refusal)(nil); !errors.As(err, &refusal) || refusal.Step != "network" || refusal.Message != "no rule allows npm" || refusal.Hint != "add it" {
		t.Errorf("%v", err)
	}
}

// TestUsersHaveProcesses: another user's doors are in another process, with another user id.
func TestUsersHaveProcesses(t *testing.T) {
	d := newTestDoors(t)
	ids := map[string]bool{}
	for payer := range uint32(3) {
		o := d.opening(t, "status")
		o.Payer = 1000 + payer
		door, err := d.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(door.Close(), " uid=")
		id, _, _ := strings.Cut(rest, " ")
		ids[id] = true
	}
	if len(ids) != 3 {
		t.Errorf("the processes of three users have the ids %v", ids)
	}
}

// TestEgressFails: a process that does not answer, dies, or sends a message without a request, costs its own user the doors until it was started
// again, and the supervisor nothing.
func TestEgressFails(t *testing.T) {
	d := newTestDoors(t)
	for _, name := range []string{"mute", "dies"} {
		if _, err := d.Open(d.opening(t, name)); err == nil {
			t.Errorf("a door whose process %s was opened", name)
		}
	}
	for _, name := range []string{"dies later", "talks", "lies about its size", "sends a descriptor", "repeats itself", "mute at the end"} {
		bad, err := d.Open(d.opening(t, name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := bad.Close(); got != control.Lost() && got != "end of "+name && got != "nobody asked" || name == "repeats itself" && got != control.Lost() {
			t.Errorf("%s: %q", name, got)
		}
		sandboxtest.Eventually(t, 20*time.Second, "a door opens after one that "+name, func() bool {
			door, err := d.Open(d.opening(t, "good"))
			return err == nil && door.Close() == "end of good"
		})
	}
}

// TestOpenAgain: doors outlive the process that answers for them.
func TestOpenAgain(t *testing.T) {
	d := newTestDoors(t)
	door, err := d.Open(d.opening(t, "lasting"))
	if err != nil {
		t.Fatal(err)
	}
	bad, err := d.Open(d.opening(t, "dies later"))
	if err != nil {
		t.Fatal(err)
	}
	bad.Close()
	sandboxtest.Eventually(t, 20*time.Second, "the door is open again", func() bool { return door.Report() == "report of lasting, again" })
}

// TestPauseEnds: however often the process has ended, a door that is asked for meanwhile waits for the next one and opens.
func TestPauseEnds(t *testing.T) {
	d := newTestDoors(t)
	d.Pause = d.Patience / 16
	for n := range 8 {
		door, err := d.Open(d.opening(t, "dies later"))
		if err != nil {
			t.Fatalf("after %d ends: %v", n, err)
		}
		door.Close()
	}
}

// TestDoorsConcurrently: many jobs open and close doors at once, while the operator changes the rules.
func TestDoorsConcurrently(t *testing.T) {
	d := newTestDoors(t)
	o := d.opening(t, "one of many")
	var work sync.WaitGroup
	for range 20 {
		work.Go(func() {
			for range 20 {
				door, err := d.Open(o)
				if err != nil {
					t.Error(err)
					return
				}
				if got := door.Close(); !strings.HasPrefix(got, "end of one of many") {
					t.Errorf("%q", got)
				}
			}
		})
	}
	for range 20 {
		d.Update()
	}
	work.Wait()
}

// long are rules that few messages of fit in a socket.
var long = `{"x":"` + strings.Repeat("x", 40<<10) + `"}`

// TestUpdateReachesOthers: what the process of one user does not read delays no new rules of other users.
func TestUpdateReachesOthers(t *testing.T) {
	d := newTestDoors(t)
	d.Patience = time.Hour
	var round atomic.Int64
	o := d.opening(t, "good")
	o.Access = func() control.Access { return access(strconv.FormatInt(round.Load(), 10)) }
	good, err := d.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	var bad []*Door
	for n := range uint32(6) {
		o := d.opening(t, "stops to read")
		o.Payer, o.Access = 1001+n, rules(long)
		door, err := d.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		bad = append(bad, door)
	}
	const rounds = 30 // more than a socket holds messages
	var work sync.WaitGroup
	for n := int64(1); n <= rounds; n++ {
		round.Store(n)
		work.Go(d.Update) // it waits for the processes that read nothing
		sandboxtest.Eventually(t, 20*time.Second, "other users' rules while a process reads nothing", func() bool {
			return strings.HasSuffix(good.Report(), strconv.FormatInt(n, 10))
		})
	}
	if bad[0].egress.mu.TryLock() {
		t.Error("the socket of a process that reads nothing holds all messages")
		bad[0].egress.mu.Unlock()
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		work.Wait()
	}()
	for waiting := true; waiting; { // the mutexes are held: the processes are found without them, also those that are started again
		for _, pid := range sandboxtest.Children(t, os.Getpid()) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		select {
		case <-ended:
			waiting = false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestSlowReaderEnds: a process that reads each message in time, but takes long for all, is ended.
func TestSlowReaderEnds(t *testing.T) {
	d := newTestDoors(t)
	const many = 150 // the socket is full most of the time
	var doors []*Door
	for n := range many {
		o := d.opening(t, "one of many")
		if n == many-1 {
			o.Name = "reads slowly"
		}
		o.Access = rules(long)
		door, err := d.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		doors = append(doors, door)
	}
	d.Patience = 12 * slowness // not before: on a busy machine a door takes longer to open
	e := doors[0].egress
	e.mu.Lock()
	before := e.now
	e.mu.Unlock()
	d.Update()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now == before {
		t.Error("the process was not ended")
	}
}

// TestUpdateWaits: when Update returns, a process has done what the new rules say, or it has ended.
func TestUpdateWaits(t *testing.T) {
	d := newTestDoors(t)
	d.Patience = 3 * time.Second // the good one must answer within it
	o := d.opening(t, "stops to read")
	door, err := d.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	e := door.egress
	e.mu.Lock()
	before := e.now
	e.mu.Unlock()
	d.Update()
	if err := unix.Kill(before.pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the process that did not answer: %v", err)
	}
	var round atomic.Int64
	door.Close()
	o = d.opening(t, "good")
	o.Payer, o.Access = 1001, func() control.Access { return access(strconv.FormatInt(round.Load(), 10)) }
	if door, err = d.Open(o); err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		round.Store(int64(n))
		d.Update()
		if got := door.Report(); !strings.HasSuffix(got, strconv.Itoa(n)) {
			t.Errorf("after update %d: %q", n, got)
		}
	}
}

// TestNumbers: a process is told how many connections jobs may have, and has memory for them.
func TestNumbers(t *testing.T) {
	d := newTestDoors(t)
	for payer, tt := range map[uint32]struct {
		connections Connections
		want        string
		memory      int64
	}{
		1000: {Connections{}, "CORRAL_CONNECTIONS=256,1792", 512 << 20},
		1001: {Connections{Job: 3000, User: 10_000}, "CORRAL_CONNECTIONS=3000,10000", 1025 << 20},
		1002: {Connections{Job: 1, User: 64}, "CORRAL_CONNECTIONS=1,64", 512 << 20},
	} {
		d.Connections = tt.connections
		d.Connections.Complete()
		o := d.opening(t, "status")
		o.Payer = payer
		door, err := d.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if got := door.Close(); !strings.Contains(got, tt.want) {
			t.Errorf("no %q in %q", tt.want, got)
		}
		if got := d.Connections.memory(); got != tt.memory {
			t.Errorf("%v: %d bytes of memory, want %d", tt.connections, got, tt.memory)
		}
	}
}

// TestStore: the process of a user gets a store if it is to keep packages, with the filter for that, and another process takes its place if
// the configuration says something else meanwhile.
func TestStore(t *testing.T) {
	d := newTestDoors(t)
	var keep atomic.Int64
	var fails atomic.Bool
	d.Keep = func(payer uint32) int64 {
		if payer != 1000 {
			return 0
		}
		return keep.Load()
	}
	kept := t.TempDir()
	d.Store = func(payer, uid uint32, keep int64) (*os.File, int64, error) {
		if fails.Load() || payer != 1000 || uid <= d.base {
			return nil, 0, unix.ENOSPC
		}
		dir, err := os.Open(kept)
		return dir, keep - 1, err
	}
	is := func(what string, payer uint32, want string, not ...string) {
		t.Helper()
		o := d.opening(t, "status")
		o.Payer = payer
		got := ""
		sandboxtest.Eventually(t, 20*time.Second, what+": "+want, func() bool {
			door, err := d.Open(o)
			if err != nil {
				return false
			}
			got = door.Close()
			return strings.Contains(got, want)
		})
		for _, never := range not {
			if strings.Contains(got, never) {
				t.Errorf("%s: %q in %q", what, never, got)
			}
		}
	}
	const store = "CORRAL_STORE_SIZE="
	is("no registry", 1000, " filter=8 ", store)
	keep.Store(1 << 20)
	d.Update()
	is("a registry", 1000, " filter=16 ")
	is("a registry", 1000, store+"1048575")
	is("another user", 1001, " filter=8 ", store)
	keep.Store(2 << 20)
	d.Update()
	is("another bound", 1000, store+"2097151")
	fails.Store(true)
	keep.Store(3 << 20)
	d.Update()
	is("no directory", 1000, " filter=8 ", store)
}

// TestLog: lines of a process get into the supervisor's log as values beside their user, as far as their rate allows; the others are
// counted.
func TestLog(t *testing.T) {
	d := newTestDoors(t)
	var b bytes.Buffer
	d.Log = log.New(&b, slog.LevelInfo, false)
	door, err := d.Open(d.opening(t, "floods the log"))
	if err != nil {
		t.Fatal(err)
	}
	if got := door.Report(); got != "report of floods the log" { // it has written all
		t.Errorf("%q", got)
	}
	door.Close()
	d.mu.Lock()
	e := d.users[1000]
	d.mu.Unlock()
	e.stop()
	d.work.Wait()
	written, omitted := logged(t, b.String())
	if all := written + omitted; written < MaxLines/2 || all != floodLines+3 {
		t.Errorf("%d lines and %d omitted, of %d", written, omitted, floodLines+3)
	}
}

// TestLogRate: whatever a process writes, its user's lines are not more than the maximum in any second, and none is lost uncounted.
func TestLogRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		var out bytes.Buffer
		l := &lineLog{payer: 1000, log: log.New(writerFunc(func(line []byte) (int, error) {
			at = append(at, time.Now())
			return out.Write(line)
		}), slog.LevelInfo, false)}
		sent := 0
		for start := time.Now(); time.Since(start) < 10*time.Second; sent++ {
			l.write(floodLine + "\n")
			if sent%100 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		l.end()
		for n := MaxLines; n < len(at); n++ {
			if d := at[n].Sub(at[n-MaxLines]); d < time.Second {
				t.Fatalf("%d lines in %v", MaxLines+1, d)
			}
		}
		if written, omitted := logged(t, out.String()); written < 10*MaxLines/2 || written+omitted != sent {
			t.Errorf("%d lines and %d omitted, of %d", written, omitted, sent)
		}
	})
}

// logged returns how many lines of floodLine's process are in the supervisor's log, and how many it says were omitted. Each line of the log
// must be the supervisor's.
func logged(t *testing.T, log string) (written, omitted int) {
	t.Helper()
	for text := range strings.Lines(log) {
		var line struct {
			Level, Msg   string
			UID, Omitted int
			Line         *string
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Level != "INFO" || line.Msg != Program || line.UID != 1000 ||
			line.Line != nil && *line.Line != floodLine && strings.Trim(*line.Line, "x") != "" {
			t.Fatalf("%v: %q", err, text)
		}
		omitted += line.Omitted
		if line.Line != nil {
			written++
		}
	}
	return written, omitted
}

// A writerFunc is a function that writes.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
