package clitest

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hinshun/vt10x"

	"corral/internal/test/sandboxtest"
)

// Term is the value of TERM for programs on a Screen.
const Term = "xterm"

// A Driver is the other end of a program's terminal. Read returns the program's output, and an error after its end; Write
// types.
type Driver interface {
	io.ReadWriter
	// Resize sets the size of the terminal.
	Resize(rows, cols uint16) error
}

// A Screen shows the output of a program.
type Screen struct {
	t testing.TB
	d Driver

	done chan struct{} // closed when d has been read to its end

	mu      sync.Mutex
	term    vt10x.Terminal  // guarded by mu
	rest    []byte          // guarded by mu: the first bytes of an incomplete rune
	answers strings.Builder // guarded by mu: the emulator's answers to queries of the program
	log     []byte          // guarded by mu: the last bytes of output, for messages
	ended   bool            // guarded by mu: the output has ended
	changed chan struct{}   // guarded by mu: closed at the next change
}

// NewScreen returns a screen of that size. At the end of the test, after the clean-ups registered later, such as the program's,
// it waits for the end of the attached Driver.
func NewScreen(t testing.TB, rows, cols uint16) *Screen {
	t.Helper()
	s := &Screen{t: t, changed: make(chan struct{}), done: make(chan struct{})}
	s.term = vt10x.New(vt10x.WithSize(int(cols), int(rows)), vt10x.WithWriter(&s.answers))
	t.Cleanup(func() {
		if s.d != nil {
			<-s.done
		}
	})
	return s
}

// Attach connects the screen to d. It is called once, before Type and Resize.
func (s *Screen) Attach(d Driver) {
	s.d = d
	go func() {
		defer close(s.done)
		s.read()
	}()
}

func (s *Screen) read() {
	buffer := make([]byte, 32<<10)
	for {
		n, err := s.d.Read(buffer)
		if answer := s.show(buffer[:n], err != nil); answer != "" {
			_, _ = io.WriteString(s.d, answer)
		}
		if err != nil {
			return
		}
	}
}

// show passes output to the emulator, in whole runes, and returns its answers.
func (s *Screen) show(b []byte, ended bool) (answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const kept = 4 << 10
	s.log = append(s.log, b...)
	s.log = s.log[max(0, len(s.log)-kept):]
	b = append(s.rest, b...)
	whole := len(b)
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				whole -= n
			}
			break
		}
	}
	_, _ = s.term.Write(b[:whole])
	s.rest = append([]byte(nil), b[whole:]...)
	s.ended = ended
	answer = s.answers.String()
	s.answers.Reset()
	close(s.changed)
	s.changed = make(chan struct{})
	return answer
}

// Type presses keys of a VT100: "\r" is Enter, "\x03" is Ctrl-C.
func (s *Screen) Type(keys string) {
	s.t.Helper()
	if _, err := io.WriteString(s.d, keys); err != nil {
		s.t.Fatalf("typing %q: %v", keys, err)
	}
}

// Resize changes the size of the screen and of the program's terminal.
func (s *Screen) Resize(rows, cols uint16) {
	s.t.Helper()
	s.mu.Lock()
	s.term.Resize(int(cols), int(rows))
	s.mu.Unlock()
	if err := s.d.Resize(rows, cols); err != nil {
		s.t.Fatalf("resize to %d rows of %d: %v", rows, cols, err)
	}
}

// A View is a snapshot of a screen.
type View struct {
	Lines    []string // all lines, without trailing blanks
	Row, Col int      // position of the cursor, counted from 0
	Ended    bool     // the output has ended
}

// Line returns the line at row, counted from 0 at the top or from -1 at the bottom, or "" if there is none.
func (v View) Line(row int) string {
	if row < 0 {
		row += len(v.Lines)
	}
	if row < 0 || row >= len(v.Lines) {
		return ""
	}
	return v.Lines[row]
}

// Has reports whether one of the lines equals text.
func (v View) Has(text string) bool {
	for _, line := range v.Lines {
		if line == text {
			return true
		}
	}
	return false
}

// Holds reports whether text is in one of the lines.
func (v View) Holds(text string) bool {
	for _, line := range v.Lines {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
}

// Prompt returns the line that the cursor is in.
func (v View) Prompt() string { return v.Line(v.Row) }

// Look returns the current View.
func (s *Screen) Look() View {
	v, _ := s.look()
	return v
}

func (s *Screen) look() (View, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cols, rows := s.term.Size()
	cursor := s.term.Cursor()
	v := View{Lines: make([]string, rows), Row: cursor.Y, Col: cursor.X, Ended: s.ended}
	line := make([]rune, cols)
	for y := range rows {
		for x := range cols {
			line[x] = max(s.term.Cell(x, y).Char, ' ')
		}
		v.Lines[y] = strings.TrimRight(string(line), " ")
	}
	return v, s.changed
}

// Await waits until ok accepts the View. what describes the expectation, for messages.
func (s *Screen) Await(what string, ok func(View) bool) {
	s.t.Helper()
	timeout := time.After(sandboxtest.Slow(30 * time.Second))
	for {
		v, changed := s.look()
		if ok(v) {
			return
		}
		if v.Ended {
			s.t.Fatalf("the program ended before the screen showed %s:\n%s", what, s.dump(v))
		}
		select {
		case <-changed:
		case <-timeout:
			s.t.Fatalf("the screen does not show %s:\n%s", what, s.dump(v))
		}
	}
}

// Shows waits for a line that equals text.
func (s *Screen) Shows(text string) {
	s.t.Helper()
	s.Await(fmt.Sprintf("the line %q", text), func(v View) bool { return v.Has(text) })
}

// Prompts waits until the cursor's line equals text, except for trailing blanks, and the cursor is at its end.
func (s *Screen) Prompts(text string) {
	s.t.Helper()
	s.Await(fmt.Sprintf("the cursor after %q", text), func(v View) bool {
		return v.Prompt() == strings.TrimRight(text, " ") && v.Col == utf8.RuneCountInString(text)
	})
}

// Ends waits for the end of the output.
func (s *Screen) Ends() {
	s.t.Helper()
	s.Await("the program's end", func(v View) bool { return v.Ended })
}

// dump returns a view as text, followed by the last bytes of output.
func (s *Screen) dump(v View) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for y, line := range v.Lines {
		fmt.Fprintf(&b, "%3d|%s\n", y, line)
	}
	fmt.Fprintf(&b, "cursor in row %d, column %d\n%q", v.Row, v.Col, s.log)
	return b.String()
}
