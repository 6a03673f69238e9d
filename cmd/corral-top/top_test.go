package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
	"corral/job"
	"corral/store/artifact"
)

// A fake is a supervisor of a test.
type fake struct {
	jobs   []wire.Entry
	err    error
	killed []string
	denied []wire.Denial
}

func (f *fake) Denials() ([]wire.Denial, error) { return f.denied, nil }

func (f *fake) ListCommands() ([]wire.Entry, error) {
	return append([]wire.Entry(nil), f.jobs...), f.err
}

func (f *fake) Kill(id string) error {
	f.killed = append(f.killed, id)
	if id == "job-3" {
		return errors.New("no job job-3")
	}
	return nil
}

// A screen is a model that a test types to.
type screen struct {
	t *testing.T
	m model
}

func newScreen(t *testing.T, f *fake, sessions ...job.Session) *screen {
	t.Helper()
	from := source{supervision: f, sessions: func() ([]job.Session, error) { return sessions, nil }, uid: 1000}
	s := &screen{t, newModel(from, time.Second)}
	s.send(tea.WindowSizeMsg{Width: 120, Height: 20})
	s.send(s.m.Init()())
	return s
}

// send updates the model, and returns the message of its command if that is about a job, else nil.
func (s *screen) send(msg tea.Msg) tea.Cmd {
	s.t.Helper()
	next, cmd := s.m.Update(msg)
	s.m = next.(model)
	return cmd
}

func (s *screen) press(keys ...string) tea.Cmd {
	s.t.Helper()
	var cmd tea.Cmd
	for _, k := range keys {
		msg := tea.KeyPressMsg{Text: k, Code: []rune(k)[0]}
		for code, name := range map[rune]string{tea.KeyDown: "down", tea.KeyUp: "up", tea.KeyEnter: "enter", tea.KeyEscape: "esc"} {
			if k == name {
				msg = tea.KeyPressMsg{Code: code}
			}
		}
		cmd = s.send(msg)
	}
	return cmd
}

// selectedRow returns the row that is shown in negative.
func (s *screen) selectedRow() string {
	s.t.Helper()
	_, rest, _ := strings.Cut(s.m.render(), selected)
	line, _, _ := strings.Cut(rest, normal)
	return line
}

func entries() []wire.Entry {
	now := time.Now().UnixNano()
	return []wire.Entry{
		{Job: "job-2", UID: 1000, Started: now - 2e9, CPU: 5e9, Memory: 1 << 20, Repo: "/srv/b", Tool: "ctx_execute", Runtime: "shell", Command: "sh -c 'make \x1b[31mall'"},
		{Job: "job-1", UID: 4242, Started: now - 9e9, CPU: 1e9, Memory: 9 << 20, Repo: "/srv/a\x1b[2J", Tool: "\x1b]0;evil\a", Artifact: "runtime-a"},
		{Job: "job-3", UID: 1000, Started: now, CPU: -1, Memory: -1, Repo: "/srv/c"},
	}
}

// TestList: jobs are shown oldest first or by use, with no control character of a client, in the size of the terminal.
func TestList(t *testing.T) {
	s := newScreen(t, &fake{jobs: entries()}, job.Session{ID: "feedface", Repo: "/srv/s", Jobs: 2, DiskUsed: 5 << 20})
	v := s.m.render()
	for _, want := range []string{"3 jobs, 1 sessions, 0 denied lately, by age", "job-1", "4242", "9.0 MiB", "ctx_execute shell", "feedface", "/srv/s", `\x1b[2J`, "corral run", "sh -c…", "job-1 in ", "its command is not known"} {
		if !strings.Contains(v, want) {
			t.Errorf("no %q in\n%s", want, v)
		}
	}
	if rest := strings.NewReplacer(selected, "", normal, "").Replace(v); strings.ContainsAny(rest, "\x1b\a") {
		t.Errorf("control characters in %q", rest)
	}
	if s.press("down"); !strings.Contains(s.m.render(), `job-2 in /srv/b: sh -c 'make \x1b[31mall'`) {
		t.Errorf("the command of the chosen job is not shown:\n%s", s.m.render())
	}
	s.press("up")
	if !strings.HasPrefix(s.selectedRow(), "job-1 ") {
		t.Errorf("selected %q", s.selectedRow())
	}
	if s.press("s"); strings.Index(s.m.render(), "job-2") > strings.Index(s.m.render(), "job-1") {
		t.Error("not sorted by CPU time")
	}
	if s.press("s"); strings.Index(s.m.render(), "job-1") > strings.Index(s.m.render(), "job-2") {
		t.Error("not sorted by memory")
	}
	for _, size := range []tea.WindowSizeMsg{{Width: 20, Height: 5}, {Width: 1, Height: 2}, {Width: 300, Height: 60}} {
		s.send(size)
		lines := strings.Split(s.m.render(), "\n")
		if len(lines) != size.Height {
			t.Errorf("%d lines of %d", len(lines), size.Height)
		}
		for _, line := range lines {
			if n := len([]rune(strings.NewReplacer(selected, "", normal, "").Replace(line))); n > size.Width {
				t.Errorf("%d columns of %d: %q", n, size.Width, line)
			}
		}
	}
}

// TestShare: the CPUs in use are those between two lists.
func TestShare(t *testing.T) {
	f := &fake{jobs: entries()}
	s := newScreen(t, f)
	f.jobs[0].CPU += 1.5e9
	s.send(listed{at: s.m.now.Add(time.Second), jobs: f.jobs})
	if got := s.m.share["job-2"]; len(got) != 1 || got[0] != 1.5 {
		t.Errorf("%v CPUs", got)
	}
	if _, known := s.m.share["job-3"]; known {
		t.Error("the use of a job without a CPU time is shown")
	}
}

// TestFilter: what is typed selects jobs, sessions and denied requests, in letters of any case; escape shows all again.
func TestFilter(t *testing.T) {
	f := &fake{jobs: entries(), denied: []wire.Denial{
		{At: time.Now().UnixNano(), UID: 1000, Tool: "run", Repo: "app", Reason: "cwd: \x1b]0;evil\a is outside"},
		{At: time.Now().UnixNano(), UID: 1000, Job: "job-9", Repo: "/srv/z", Reason: "too many jobs"},
	}}
	s := newScreen(t, f, job.Session{ID: "feedface", Repo: "/srv/s"}, job.Session{ID: "0badcafe", Repo: "/srv/make"})
	s.press("/", "M", "A", "K", "x")
	if v := s.m.render(); !strings.Contains(v, "0 of 3 jobs") || !strings.Contains(v, "show what contains: MAKx_") {
		t.Errorf("while typing:\n%s", v)
	}
	s.send(tea.KeyPressMsg{Code: tea.KeyBackspace})
	s.press("E", "enter")
	v := s.m.render()
	for text, want := range map[string]bool{"job-2": true, "job-1 ": false, "1 of 3 jobs": true, "0badcafe": true, "feedface": false, "evil": false, "contains MAKE": true} {
		if strings.Contains(v, text) != want {
			t.Errorf("%q: %v in\n%s", text, !want, v)
		}
	}
	if s.press("s", "esc"); !strings.Contains(s.m.render(), "3 jobs, 2 sessions, 2 denied lately") {
		t.Errorf("not all:\n%s", s.m.render())
	}
	v = s.m.render()
	if first, second := strings.Index(v, "too many jobs"), strings.Index(v, `cwd: \x1b]0;evil\a is outside`); first < 0 || second < first {
		t.Errorf("the denied requests:\n%s", v)
	}
	s.press("/")
	s.press(strings.Split(strings.Repeat("x", 2*maxFilter), "")...)
	if n := len(s.m.filter); n != maxFilter {
		t.Errorf("a filter of %d bytes", n)
	}
}

// TestTrend: the CPUs of a job between the last lists are bars. The highest bar is one CPU or more.
func TestTrend(t *testing.T) {
	for _, tt := range []struct {
		shares []float64
		want   string
	}{{nil, ""}, {[]float64{0, 0.5, 1}, "▁▅█"}, {[]float64{4, 1, 2, 0.01}, "█▃▅▁"}} {
		if got := trend(tt.shares); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.shares, got, tt.want)
		}
	}
	f := &fake{jobs: entries()}
	s := newScreen(t, f)
	for n := range 2 * trendLength {
		f.jobs[0].CPU += int64(n) * 1e8
		s.send(listed{at: s.m.now.Add(time.Second), jobs: append([]wire.Entry(nil), f.jobs...)})
	}
	if n := len(s.m.share["job-2"]); n != trendLength || !strings.Contains(s.m.render(), "█") {
		t.Errorf("%d numbers:\n%s", n, s.m.render())
	}
}

// TestEnd: a job is ended after a confirmation only, the one that was selected, also if the list changes meanwhile.
func TestEnd(t *testing.T) {
	f := &fake{jobs: entries()}
	s := newScreen(t, f)
	s.press("down", "x")
	if !strings.Contains(s.m.render(), "end job-2? y") {
		t.Errorf("no question:\n%s", s.m.render())
	}
	if cmd := s.press("n"); cmd != nil || f.killed != nil {
		t.Error("ended without y")
	}
	s.press("x")
	s.send(listed{at: time.Now(), jobs: entries()[1:]})
	s.send(s.press("y")())
	if len(f.killed) != 1 || f.killed[0] != "job-2" || !strings.Contains(s.m.render(), "job-2 was ended") {
		t.Errorf("ended %q:\n%s", f.killed, s.m.render())
	}
	s.press("down", "down", "x")
	s.send(s.press("y")())
	if !strings.Contains(s.m.render(), "no job job-3") {
		t.Errorf("the error is not shown:\n%s", s.m.render())
	}
}

// TestFollow: output of one's own job is shown, escaped and at its end; others are explained.
func TestFollow(t *testing.T) {
	f := &fake{jobs: entries()}
	s := newScreen(t, f)
	if s.press("f"); !strings.Contains(s.m.render(), "another user's: corral logs -f job-1") {
		t.Errorf("another user's:\n%s", s.m.render())
	}
	if s.press("down", "enter"); !strings.Contains(s.m.render(), "the output of job-2 is not stored") {
		t.Errorf("not stored:\n%s", s.m.render())
	}
	handle := fmt.Sprint("runtime-top-", rand.Uint64())
	feed := artifact.NewFeed(handle)
	defer feed.End()
	for n := range 50 {
		feed.Write(fmt.Appendf(nil, "line %d \x1b[31m\n", n))
	}
	s.m.jobs[s.m.index()].Artifact, s.m.jobs[s.m.index()].UID = handle, uint32(os.Geteuid())
	s.m.from.uid = uint32(os.Geteuid())
	if s.press("enter") == nil || s.m.follow == nil {
		t.Fatal("not followed")
	}
	sandboxtest.Eventually(t, 10*time.Second, "the end of the output", func() bool {
		s.send(glance{s.m.follow})
		return strings.Contains(s.m.render(), "line 49")
	})
	if v := s.m.render(); strings.Contains(v, "line 3 ") || strings.Contains(v, "\x1b") || len(strings.Split(v, "\n")) != 20 {
		t.Errorf("%q", v)
	}
	feed.End()
	sandboxtest.Eventually(t, 10*time.Second, "the end of the job", func() bool { return strings.Contains(s.m.render(), "the job has ended") })
	if s.press("esc"); s.m.follow != nil || !strings.Contains(s.m.render(), "JOB ") {
		t.Error("no way back")
	}
}

// TestLost: the program ends with the reason when the supervisor is gone.
func TestLost(t *testing.T) {
	f := &fake{jobs: entries()}
	s := newScreen(t, f)
	f.err = errors.New("the supervisor ended")
	cmd := s.send(s.m.list())
	if s.m.fatal == nil || cmd == nil {
		t.Fatal("it goes on")
	}
	if _, quits := cmd().(tea.QuitMsg); !quits {
		t.Error("it does not quit")
	}
}
