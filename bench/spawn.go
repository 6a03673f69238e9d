package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// program is the program of every row.
const program = "/bin/true"

// A spawn starts a program directly, as a shell would.
type spawn struct {
	args  []string
	env   []string // nil means that of this process
	extra string   // a file that is descriptor 3, opened for each run; "" is none
	place *place   // nil means this thread
}

// command returns a spawn of a program with the environment of this process.
func command(args ...string) func() error { return (&spawn{args: args}).run() }

// run returns a function that runs the program and waits for it.
func (s *spawn) run() func() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	said, err2 := nameless()
	if err := errors.Join(err, err2); err != nil {
		return func() error { return err }
	}
	return func() error {
		files := []*os.File{null, null, said}
		if s.extra != "" {
			f, err := os.Open(s.extra)
			if err != nil {
				return err
			}
			defer f.Close()
			files = append(files, f)
		}
		var p *os.Process
		start := func() (err error) {
			p, err = os.StartProcess(s.args[0], s.args, &os.ProcAttr{Env: s.env, Files: files})
			return err
		}
		err := error(nil)
		if s.place != nil {
			err = s.place.do(start)
		} else {
			err = start()
		}
		if err != nil {
			return err
		}
		state, err := p.Wait()
		if err == nil && !state.Success() {
			err = fmt.Errorf("%s: %v: %s", filepath.Base(s.args[0]), state, lastLine(said))
		}
		return err
	}
}

// nameless makes a file without a name, for output of programs.
func nameless() (*os.File, error) {
	f, err := os.CreateTemp("", "corral-bench-")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	defer func() { _ = os.Remove(f.Name()) }()
	return os.OpenFile(f.Name(), os.O_RDWR|os.O_APPEND, 0)
}

// lastLine returns the last line of a file, at most its last KiB.
func lastLine(f *os.File) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	text := make([]byte, 1<<10)
	n, _ := f.ReadAt(text, max(0, info.Size()-int64(len(text))))
	lines := strings.Split(strings.TrimSpace(string(text[:n])), "\n")
	return lines[len(lines)-1]
}

// said returns the first line that a program writes to standard output or error, "" if it cannot be run.
func (s *spawn) said() string {
	var text []byte
	ask := func() error {
		cmd := exec.Command(s.args[0], s.args[1:]...)
		cmd.Env = s.env
		text, _ = cmd.CombinedOutput()
		return nil
	}
	if s.place != nil {
		_ = s.place.do(ask)
	} else {
		_ = ask()
	}
	return strings.TrimSpace(string(firstLine(text)))
}

func firstLine(b []byte) []byte {
	for i, c := range b {
		if c == '\n' {
			return b[:i]
		}
	}
	return b
}

// A place is a thread with a mount namespace of its own, which ends with it: no other process sees files that are mounted
// over the system's there.
type place struct{ work chan func() }

func newPlace() *place {
	p := &place{work: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread and its namespace end with the goroutine
		for f := range p.work {
			f()
		}
	}()
	return p
}

// do calls f on the thread.
func (p *place) do(f func() error) error {
	done := make(chan error)
	p.work <- func() { done <- f() }
	return <-done
}

func (p *place) close() { close(p.work) }

// bare is the first row of every table.
func bare() *Row { return &Row{Name: "bare", Sets: "nothing", Run: command(program)} }
