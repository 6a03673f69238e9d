package inside

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// TestWaitingProcessUnprivileged: before the job is known, process 2 has no privileges, cannot be inspected by other
// processes of its user, and has no descriptor of the supervisor or of process 1.
func TestWaitingProcessUnprivileged(t *testing.T) {
	left, _ := pipe(t)
	s := waiting(t, left)
	pid := s.second()
	dir := fmt.Sprintf("/proc/%d", pid)
	id := strconv.Itoa(nobody)
	for key, want := range map[string]string{
		"Uid": strings.Join([]string{id, id, id, id}, "\t"), "Gid": strings.Join([]string{id, id, id, id}, "\t"), "Groups": id,
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "0000000000000000",
		"CapAmb": "0000000000000000", "NoNewPrivs": "1", "SigBlk": "0000000000000000", "SigIgn": "0000000000000000",
		"NSpid": fmt.Sprintf("%d\t2", pid), "NSsid": fmt.Sprintf("%d\t2", pid),
	} {
		if got := strings.TrimSpace(status(dir, key)); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	// Files in /proc/PID belong to root unless the process is dumpable (proc(5)).
	var st unix.Stat_t
	if err := unix.Stat(dir+"/environ", &st); err != nil || st.Uid == nobody {
		t.Errorf("/proc/PID/environ belongs to uid %d (error %v), want root", st.Uid, err)
	}
	open, first := descriptors(t, pid), descriptors(t, s.cmd.Process.Pid)
	if open["4"] == "anon_inode:[landlock-ruleset]" { // on kernels with Landlock
		delete(open, "4")
	}
	if len(open) != 4 || open["0"] != os.DevNull || open["1"] != os.DevNull || open["2"] != os.DevNull {
		t.Errorf("open descriptors %q, want 0 to 2 on /dev/null and a socket", open)
	}
	for n, what := range first {
		if strings.HasPrefix(what, "socket:") && what == open["3"] {
			t.Errorf("it shares descriptor %s of process 1, %s", n, what)
		}
	}
}

// TestWaitingProcessEnds: process 2 ends when process 1 ends, and process 1 when the supervisor does.
func TestWaitingProcessEnds(t *testing.T) {
	for name, end := range map[string]func(*stub){
		"process 1 is killed": func(s *stub) { _ = s.cmd.Process.Kill() },
		"the supervisor ends": (*stub).hangUp,
	} {
		t.Run(name, func(t *testing.T) {
			s := waiting(t)
			fd, err := unix.PidfdOpen(s.second(), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			end(s)
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(sandboxtest.Slow(patience)/time.Millisecond))
			if n != 1 || err != nil {
				t.Errorf("process 2 still runs: poll returned %d, %v", n, err)
			}
		})
	}
}

// TestKilledWaitingProcess: a slot whose process 2 is killed ends.
func TestKilledWaitingProcess(t *testing.T) {
	s := waiting(t)
	if err := unix.Kill(s.second(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := s.reports(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestKilledWaitingProcessReported: a slot whose process 2 is killed at the moment when it gets a plan reports that.
func TestKilledWaitingProcessReported(t *testing.T) {
	s := waiting(t)
	pid := s.second()
	signal := func(pid int, number unix.Signal, state string) {
		t.Helper()
		if err := unix.Kill(pid, number); err != nil {
			t.Fatal(err)
		}
		sandboxtest.Eventually(t, patience, "process has state "+state, func() bool {
			return strings.HasPrefix(status(fmt.Sprintf("/proc/%d", pid), "State"), state)
		})
	}
	signal(s.cmd.Process.Pid, unix.SIGSTOP, "T")
	signal(pid, unix.SIGKILL, "Z")
	_, w := pipe(t)
	p := plan()
	s.send(p.Append(), payload(t, "/bin/true"), w, w)
	if err := s.cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := s.reports(); !slices.Equal(got, []Report{{Failed, uint32(unix.EPIPE), 0, "fork"}}) {
		t.Errorf("%+v", got)
	}
}

// TestFailedStepNamed: a step that fails before the plan ends the slot and is reported by name, for process 1 and process
// 2.
func TestFailedStepNamed(t *testing.T) {
	for _, tt := range []struct {
		prepare Prepare
		want    Report
	}{
		{Prepare{Binds: []Bind{{Source: "/usr", Target: "/dev"}}}, Report{Failed, uint32(unix.ENOENT), 0, "session"}}, // /dev/null
		{Prepare{Binds: []Bind{{Source: "/none", Target: "/dev"}}}, Report{Failed, uint32(unix.ENOENT), 0, "toolchains"}},
	} {
		if got := newStub(t, tt.prepare).reports(); !slices.Equal(got, []Report{tt.want}) {
			t.Errorf("%+v, want %+v", got, tt.want)
		}
	}
}

// TestMalformedPlan: a plan of the wrong size, version, strings or descriptors ends the slot.
func TestMalformedPlan(t *testing.T) {
	good := plan()
	b := good.Append()
	for name, tt := range map[string]struct {
		b     []byte
		files int
	}{
		"short":              {b[:planPaths], 3},
		"two strings":        {b[:len(b)-1], 3},
		"an empty variable":  {append(slices.Clone(b), 0), 3},
		"no name":            {append(slices.Clone(b), "=x\x00"...), 3},
		"no value":           {append(slices.Clone(b), "A=1\x00B\x00"...), 3},
		"no end":             {append(slices.Clone(b[:len(b)-1]), 'x'), 3},
		"another version":    {append([]byte{planVersion + 1}, b[1:]...), 3},
		"a relative path":    {bytes.Replace(b, []byte("/nowhere"), []byte("./nowher"), 1), 3},
		"a long path":        {bytes.Replace(b, []byte("/nowhere"), bytes.Repeat([]byte("/"), pathSize), 1), 3},
		"few descriptors":    {b, 2},
		"many descriptors":   {b, 4},
		"no descriptors":     {b, 0},
		"too large":          {append(slices.Clone(b), make([]byte, planSize)...), 3},
		"more than is taken": {b, 9},
	} {
		t.Run(name, func(t *testing.T) {
			s := waiting(t)
			null, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()
			s.send(tt.b, slices.Repeat([]*os.File{null}, tt.files)...)
			got := s.reports()
			if len(got) != 1 || got[0].Kind != Failed || got[0].Step != "plan" {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestJobDescriptors: the job has its three descriptors and no others, and process 1 keeps no end of its pipes.
func TestJobDescriptors(t *testing.T) {
	out, reports := waiting(t).run(plan(), "/bin/ls", "/proc/self/fd")
	if out != "0\n1\n2\n3\n" { // the last is the directory
		t.Errorf("%q", out)
	}
	if !slices.Equal(reports, []Report{{Kind: Gone}}) {
		t.Errorf("%+v", reports)
	}
}

// TestEnvironment: a job has the variables of its plan, unless its payload has others of the same names.
func TestEnvironment(t *testing.T) {
	for _, tt := range []struct {
		env, more []string
		want      string
	}{
		{nil, nil, ""},
		{nil, []string{"A=1", "B=2=3"}, "A=1\nB=2=3\n"},
		{[]string{"A=0", "AB=0", "C"}, []string{"A=1", "B=2", "C=3", "ABC="}, "A=0\nAB=0\nC\nB=2\nABC=\n"},
		{[]string{"A="}, []string{"A=1", "B=1", "B=2"}, "A=\nB=1\n"},
		{[]string{"A=0"}, nil, "A=0\n"},
	} {
		s, p := waiting(t), plan()
		p.Env = tt.more
		r, w := pipe(t)
		s.send(p.Append(), payloadWith(t, []string{"/usr/bin/env"}, tt.env), w, w)
		w.Close()
		out, err := io.ReadAll(r)
		if s.reports(); err != nil || string(out) != tt.want {
			t.Errorf("%q and %q: %q, want %q, %v", tt.env, tt.more, out, tt.want, err)
		}
	}
}

// TestReports: the stub sends exactly these reports of a job's start and end.
func TestReports(t *testing.T) {
	withStarted := plan()
	withStarted.SayStarted = true
	none := Report{Failed, uint32(unix.ENOENT), 0, "exec"}
	for _, tt := range []struct {
		plan Plan
		argv []string
		want []Report
	}{
		{plan(), []string{"/bin/true"}, []Report{{Kind: Gone}}},
		{plan(), []string{"/bin/sh", "-c", "exit 1"}, []Report{{Kind: Gone, Status: 1 << 8}}},
		{plan(), []string{"/bin/sh", "-c", "kill -9 $$"}, []Report{{Kind: Gone, Status: 9}}},
		{plan(), []string{"/bin/sh", "-c", "sleep 1000 >/dev/null 2>&1 & exit 3"}, []Report{{Kind: Exited, Status: 3 << 8}, {Kind: Gone, Errno: goneLeft, Status: 3 << 8}}},
		{plan(), []string{"/bin/sh", "-c", "p=$(true & echo $!); while [ -d /proc/$p ]; do :; done; exit 3"}, []Report{{Kind: Gone, Status: 3 << 8}}}, // an orphan ends first
		{plan(), []string{"/none"}, []Report{none}},
		{withStarted, []string{"/bin/true"}, []Report{{Kind: Started}, {Kind: Gone}}},
		{withStarted, []string{"/none"}, []Report{none}},
	} {
		if _, got := waiting(t).run(tt.plan, tt.argv...); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %+v, want %+v", tt.argv, got, tt.want)
		}
	}
}

// TestDeadline: the stub ends a job at the plan's own deadline.
func TestDeadline(t *testing.T) {
	p := plan()
	p.Wall = time.Millisecond
	if _, got := waiting(t).run(p, "/bin/sleep", "1000"); !slices.Equal(got, []Report{{Kind: DeadlineOver}}) {
		t.Errorf("%+v", got)
	}
}

// TestOrderSignalsJob: an order delivers a signal to the job's first process.
func TestOrderSignalsJob(t *testing.T) {
	s := waiting(t)
	r, w := pipe(t)
	p := plan()
	s.send(p.Append(), payload(t, "/bin/sh", "-c", "trap 'exit 7' TERM; echo; while :; do sleep 0.01; done"), w, w)
	w.Close()
	if _, err := r.Read(make([]byte, 1)); err != nil { // it has set its trap
		t.Fatal(err)
	}
	s.send(Order{Signal: int(unix.SIGTERM)}.Append())
	got := s.reports()
	if len(got) == 0 || got[len(got)-1] != (Report{Kind: Gone, Status: 7 << 8}) {
		t.Errorf("%+v", got)
	}
}
