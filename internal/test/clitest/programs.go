package clitest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// A Session is a program on a terminal.
type Session interface {
	Driver
	// Wait waits for the program's end and returns its exit code, 128+n for signal n.
	Wait() int
}

// A Start starts a program in the directory repo on a terminal of that size, with env in addition to the usual environment
// of jobs. It ends the program at the end of the test.
type Start func(t *testing.T, repo string, args, env []string, rows, cols uint16) Session

// A Program is an interactive program with a dialogue.
type Program struct {
	Name  string
	Args  []string
	Needs []sandboxtest.Need // in addition to the program
	Env   []string
	Files map[string]string // contents of files in its working directory, by name
	Rows  uint16
	Cols  uint16
	Exit  int
	// Play runs the dialogue, from the program's start to its end. Repo is its working directory.
	Play func(s *Screen, repo string)
}

// Programs are those that a terminal is tested with: lines, jobs, and a whole screen. Each is resized while it runs.
func Programs() []Program {
	shell := []string{"bash", "--norc", "--noprofile", "-i"}
	prompt := []string{"PS1=> ", "HISTFILE="}
	return []Program{
		{Name: "bash, line editing", Args: shell, Env: prompt, Rows: 24, Cols: 60, Exit: 3, Play: bashEditing},
		{
			Name: "bash, job control", Args: shell, Env: prompt, Needs: []sandboxtest.Need{sandboxtest.Program("perl")},
			Files: map[string]string{"ticker": ticker}, Rows: 24, Cols: 80, Play: bashJobs,
		},
		{Name: "vi", Args: []string{"vi", "poem"}, Rows: 12, Cols: 60, Play: vi},
	}
}

// RunPrograms runs the dialogues of programs, each in a directory that repo creates.
func RunPrograms(t *testing.T, programs []Program, repo func(*testing.T) string, start Start) {
	t.Helper()
	for _, p := range programs {
		t.Run(p.Name, func(t *testing.T) {
			sandboxtest.Require(t, append(p.Needs, sandboxtest.Program(p.Args[0]))...)
			dir := repo(t)
			for name, text := range p.Files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			s := NewScreen(t, p.Rows, p.Cols)
			session := start(t, dir, p.Args, append([]string{"TERM=" + Term}, p.Env...), p.Rows, p.Cols)
			s.Attach(session)
			p.Play(s, dir)
			s.Ends()
			if code := session.Wait(); code != p.Exit {
				t.Errorf("exit code %d, want %d\n%s", code, p.Exit, s.dump(s.Look()))
			}
		})
	}
}

// Keys that consist of several bytes.
const (
	up   = "\x1b[A"
	left = "\x1b[D"
)

// after waits until the line above the cursor's is last and the cursor is at the end of prompt. Tests must not type before:
// input that arrives while a shell hands the terminal over may be lost, with corral or without.
func (s *Screen) after(last, prompt string) {
	s.t.Helper()
	s.Await(fmt.Sprintf("%q after %q", prompt, last), func(v View) bool {
		return v.Line(v.Row-1) == last && v.Prompt() == strings.TrimRight(prompt, " ") && v.Col == len(prompt)
	})
}

func bashEditing(s *Screen, _ string) {
	s.Prompts("> ")
	s.Type("cho one")
	s.Prompts("> cho one")
	s.Type("\x01e")    // Ctrl-A: go to the start of the line
	s.Type("\x05 two") // Ctrl-E: go to its end
	s.Prompts("> echo one two")
	s.Type("\r")
	s.after("one two", "> ")
	s.Type("echo keep drop" + strings.Repeat(left, len(" drop")))
	s.Await("the cursor before what is dropped", func(v View) bool {
		return v.Prompt() == "> echo keep drop" && v.Col == len("> echo keep")
	})
	s.Type("\x0b") // Ctrl-K: cut to the end of the line
	s.Prompts("> echo keep")
	s.Type("\r")
	s.after("keep", "> ")
	s.Type(up)
	s.Prompts("> echo keep")
	s.Type(up)
	s.Prompts("> echo one two")
	s.Type("\x15\r") // Ctrl-U: discard the line
	s.after(">", "> ")
	s.Type("\x12ke") // Ctrl-R: the line with "ke"
	s.Await("the line that is searched for", func(v View) bool { return v.Prompt() == "(reverse-i-search)`ke': echo keep" })
	s.Type("\x05er") // end of the search
	s.Prompts("> echo keeper")
	s.Type("\r")
	s.Shows("keeper")
	s.after("keeper", "> ")
	s.Type("stty size; echo $LINES/$COLUMNS\r")
	s.Shows("24 60")
	s.after("24/60", "> ")
	s.Resize(20, 100)
	long := "echo " + strings.Repeat("0123456789", 8)
	s.Type(long) // more than a line of 60 columns
	s.Prompts("> " + long)
	s.Type("\x15stty size; echo $LINES/$COLUMNS\r") // Ctrl-U
	s.Shows("20 100")
	s.after("20/100", "> ")
	s.Type("exit 3\r")
}

// ticker prints a line when it is in the foreground: input before that goes to the shell. It is a single process, because a
// shell that is stopped between fork and exec behaves differently.
const ticker = `$| = 1; $SIG{CONT} = sub { print "back\n" }; print "here\n"; select undef, undef, undef, 1 while 1`

func bashJobs(s *Screen, _ string) {
	s.Prompts("> ")
	s.Type("sleep 1000 &\r")
	s.Await("the job's number", func(v View) bool { return strings.HasPrefix(v.Line(v.Row-1), "[1] ") && v.Prompt() == ">" })
	s.Type("jobs\r")
	s.after("[1]+  Running                 sleep 1000 &", "> ")
	s.Type("kill %1; wait %1; echo status $?\r")
	s.after("status 143", "> ")
	s.Type("perl ticker\r")
	s.after("here", "")
	s.Type("\x1a") // Ctrl-Z
	s.after("[1]+  Stopped                 perl ticker", "> ")
	s.Type("fg\r")
	s.after("back", "")
	s.Resize(30, 90)
	s.Type("\x1a")
	s.after("[1]+  Stopped                 perl ticker", "> ")
	s.Type("bg\r")
	s.Shows("[1]+ perl ticker &")
	s.Await("the job and the shell, in either order", func(v View) bool {
		said := strings.Join(v.Lines[:v.Row+1], "\n")
		_, said, _ = strings.Cut(said, "[1]+ perl ticker &\n")
		return said == "> back\n" || said == "back\n>"
	})
	s.Type("stty size\r")
	s.Shows("30 90")
	s.Type("kill %1; wait %1; perl ticker\r")
	s.after("here", "")
	s.Type("\x03") // Ctrl-C
	s.after("^C", "> ")
	s.Type("echo cat; cat\r")
	s.after("cat", "")
	s.Type("through cat\r")
	s.Await("what was typed, and what came of it", func(v View) bool {
		return v.Prompt() == "" && v.Line(v.Row-1) == "through cat" && v.Line(v.Row-2) == "through cat"
	})
	s.Type("\x1c") // Ctrl-\
	s.after("^\\Quit", "> ")
	s.Type("echo cat; cat\r") // the first output appears when the shell has handed the terminal over
	s.after("cat", "")
	s.Type("\x04") // Ctrl-D
	s.after("cat", "> ")
	s.Type("\x04")
}

func vi(s *Screen, repo string) {
	empty := func(v View, rows int) bool { // the tildes below the text's end
		for row := 1; row < rows-1; row++ {
			if v.Line(row) != "~" {
				return false
			}
		}
		return len(v.Lines) == rows
	}
	s.Await("an empty text", func(v View) bool { return v.Line(0) == "" && empty(v, 12) && strings.Contains(v.Line(-1), "poem") })
	s.Type("iroses are red")
	s.Await("what was typed", func(v View) bool { return v.Line(0) == "roses are red" && v.Row == 0 && v.Col == len("roses are red") })
	s.Type("\x1b:w\r")
	s.Await("that it is written", func(v View) bool { return strings.Contains(v.Line(-1), "written") })
	if got, err := os.ReadFile(filepath.Join(repo, "poem")); string(got) != "roses are red\n" {
		s.t.Errorf("the file contains %q (%v)", got, err)
	}
	// If SIGWINCH arrives right before vi waits for a key, vi handles it only after that key, on any terminal.
	s.Resize(20, 90)
	s.Type("h")
	s.Await("the text on the larger screen", func(v View) bool { return v.Line(0) == "roses are red" && empty(v, 20) })
	s.Type(":set lines? columns?\r")
	s.Await("the new size", func(v View) bool { return v.Holds("lines=20") && v.Holds("columns=90") })
	s.Type("\r")
	// vi must wait for a key again: otherwise it reads both keys at once, and the signal comes after them.
	s.Await("the text again", func(v View) bool { return v.Line(0) == "roses are red" && empty(v, 20) })
	s.Resize(8, 40)
	s.Type("h")
	s.Await("the text on the smaller screen", func(v View) bool { return v.Line(0) == "roses are red" && empty(v, 8) })
	s.Type(":q\r")
}
