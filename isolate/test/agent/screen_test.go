package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/clitest"
	"corral/internal/test/sandboxtest"
)

// A seat is the terminal of an agent.
type seat struct{ *os.File }

// Resize implements clitest.Driver.
func (s seat) Resize(rows, cols uint16) error {
	return unix.IoctlSetWinsize(int(s.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
}

// TestScreen: a person works with real agents on a full screen: answers what they ask, resizes the terminal, pastes a task of two lines,
// ends the agent by Ctrl-C or a command, and applies what it changed. The exit code is the agent's, and the terminal is left as it was.
func TestScreen(t *testing.T) {
	for _, tt := range []struct {
		real
		words []string
		asks  []string // what it asks first, with "No, exit" as the first answer of two
		ready string   // what its prompt shows
		quit  []string // the keys that end it: more of them would be for the review
	}{
		{reals[0], []string{"--dangerously-skip-permissions"}, []string{"I trust this folder", "Yes, I accept"}, "/effort", []string{"\x03", "\x03"}},
		{reals[1], []string{"--dangerously-bypass-approvals-and-sandbox"}, nil, "for shortcuts", []string{"/quit", "\r"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			program := tt.installed(t)
			screen := clitest.NewScreen(t, 40, 120)
			master, slave := sandboxtest.Terminal(t)
			before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			screen.Attach(seat{master})
			screen.Resize(40, 120)
			cmd := p.command(append([]string{"agent", "--program", program, tt.name}, tt.words...)...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
			cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
			c := sandboxtest.Start(t, cmd)
			t.Cleanup(func() { slave.Close() }) // and then reading the master ends
			shows := func(what string) {
				t.Helper()
				screen.Await(what, func(v clitest.View) bool { return v.Holds(what) })
			}
			keys := func(list ...string) {
				t.Helper()
				for _, k := range list {
					screen.Type(k)
					time.Sleep(500 * time.Millisecond) // as a person does: keys that come at once are one paste
				}
			}
			for _, what := range tt.asks {
				shows(what)
				keys("", "", "\x1b[B", "\r") // after a moment: it ignores keys that come too early
			}
			shows(tt.ready)
			screen.Resize(30, 90)
			p.mu.Lock()
			p.steps = []string{"echo $((1000 * 1001)) | tee made"}
			p.mu.Unlock()
			sandboxtest.Eventually(t, time.Minute, "the screen shows what was pasted", func() bool { // again, if that came too early
				keys("\x1b[200~the first line\nthe second line\x1b[201~", "")
				return screen.Look().Holds("the second line")
			})
			keys("\r")
			sandboxtest.Eventually(t, time.Minute, "the model has been told what the command printed", func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				said := bodies(p.got)
				return strings.Contains(said, "the second line") && strings.Contains(said, "1001000")
			})
			shows("done")
			keys(tt.quit...)
			shows("[a/d/k/v]")
			screen.Type("a\r")
			if !c.EndsWithin(time.Minute) || c.Code() != 0 {
				t.Errorf("%d", c.Code())
			}
			if b, err := os.ReadFile(filepath.Join(p.repo, "made")); err != nil || string(b) != "1001000\n" {
				t.Errorf("%q, %v; the screen shows %q", b, err, screen.Look().Lines)
			}
			if after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS); err != nil || *after != *before {
				t.Errorf("the terminal was left as %+v, it was %+v: %v", after, before, err)
			}
		})
	}
}
