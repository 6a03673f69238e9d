package top

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
	"corral/store/artifact/live"
)

// A fake is a supervisor of a test.
type fake struct {
	jobs   []wire.Entry
	err    error
	killed []string
}

func (f *fake) List() ([]wire.Entry, error) { return append([]wire.Entry(nil), f.jobs...), f.err }

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
		{Job: "job-2", UID: 1000, Started: now - 2e9, CPU: 5e9, Memory: 1 << 20, Repo: "/srv/b", Tool: "ctx_execute", Runtime: "shell"},
		{Job: "job-1", UID: 4242, Started: now - 9e9, CPU: 1e9, Memory: 9 << 20, Repo: "/srv/a\x1b[2J", Tool: "\x1b]0;evil\a", Artifact: "runtime-a"},
		{Job: "job-3", UID: 1000, Started: now, CPU: -1, Memory: -1, Repo: "/srv/c"},
	}
}

// TestList: jobs are shown oldest first or by use, with no control character of a client, in the size of the terminal.
func TestList(t *testing.T) {
	s := newScreen(t, &fake{jobs: entries()}, job.Session{ID: "feedface", Repo: "/srv/s", Jobs: 2, DiskUsed: 5 << 20})
	v := s.m.render()
	for _, want := range []string{"3 jobs, 1 sessions, by age", "job-1", "4242", "9.0 MiB", "ctx_execute shell", "feedface", "/srv/s", `\x1b[2J`, "corral run"} {
		if !strings.Contains(v, want) {
			t.Errorf("no %q in\n%s", want, v)
		}
	}
	if rest := strings.NewReplacer(selected, "", normal, "").Replace(v); strings.ContainsAny(rest, "\x1b\a") {
		t.Errorf("control characters in %q", rest)
	}
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
	if got := s.m.share["job-2"]; got != 1.5 {
		t.Errorf("%v CPUs", got)
	}
	if _, known := s.m.share["job-3"]; known {
		t.Error("the use of a job without a CPU time is shown")
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
	feed := live.New(handle)
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
