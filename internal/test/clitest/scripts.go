// Package clitest has the two ways in which command lines are tested: scripts (RunScripts), and a person at a terminal
// (NewScreen). Only tests import it.
//
// RunScripts runs scripts that call the built programs and check the results. Scripts are txtar archives in the
// language of github.com/rogpeppe/go-internal/testscript, that of the scripts of cmd/go.
//
// Each script has a directory of its own, $WORK, which every user can read and which contains its home directory,
// configuration and state. It inherits nothing of the tester's environment, such as XDG_CONFIG_HOME and CORRAL_*. The
// programs are in PATH. Scripts run in parallel.
//
// Commands beyond the library's:
//
//	[!] exits CODE [-user=UID] PROGRAM [ARGUMENT...]
//		Run a program, which must end with exactly this exit code, or 128+n if signal n ends it; exec only
//		distinguishes zero and nonzero. With -user, run it with that user and group id and without privileges.
//	[!] stdout-is [LINE...], stderr-is [LINE...]
//		The program has written exactly these lines, or nothing if none is given.
//	capture NAME PATTERN
//		Set a variable to the match of the pattern's first group in standard output and standard error.
//	require NEED...
//		Require needs of the machine, as sandboxtest.Require does: root, jails, a file system fs:NAME, a program
//		program:NAME.
//
// A Screen simulates a person: it types, resizes, and reads the screen that a terminal emulator renders from the output of programs.
// The programs and their dialogues are in a table (Programs), so that every front-end that gives jobs a terminal is tested in the
// same way: it provides a Start.
package clitest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"corral/internal/test/sandboxtest"
)

// A Suite is a directory of scripts with their common settings.
type Suite struct {
	Dir      string             // directory of the scripts, *.txtar
	Env      []string           // variables, as NAME=value
	Files    map[string]string  // additional files in $WORK, such as usage texts to compare with
	Commands map[string]Command // by name
}

// A Command implements a command of scripts. Names of files are relative to dir. It returns variables for the script, as
// NAME=value.
type Command func(t testing.TB, dir string, args []string) []string

// system is the part of PATH with the system's programs.
const system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// RunScripts runs each script of the suite as a subtest.
func RunScripts(t *testing.T, s Suite) {
	t.Helper()
	mask := syscall.Umask(0o022) // files of scripts must be readable by every user
	t.Cleanup(func() { syscall.Umask(mask) })
	work := t.TempDir()
	if err := os.Chmod(filepath.Dir(work), 0o755); err != nil {
		t.Fatal(err)
	}
	p := player{suite: s, bin: filepath.Dir(sandboxtest.Bin(t, "corral"))}
	p.public = sync.OnceValues(func() (string, error) { return publish(p.bin, filepath.Join(work, "bin")) })
	commands := map[string]func(*testscript.TestScript, bool, []string){
		"exits":     p.exits,
		"stdout-is": func(ts *testscript.TestScript, neg bool, lines []string) { is(ts, neg, "stdout", lines) },
		"stderr-is": func(ts *testscript.TestScript, neg bool, lines []string) { is(ts, neg, "stderr", lines) },
		"capture":   capture,
		"require":   require,
	}
	for name, command := range s.Commands {
		commands[name] = func(ts *testscript.TestScript, _ bool, args []string) {
			for _, v := range command(tester(ts), ts.MkAbs("."), args) {
				name, value, _ := strings.Cut(v, "=")
				ts.Setenv(name, value)
			}
		}
	}
	testscript.Run(t, testscript.Params{
		// The library leaves its directory behind if only some of the scripts are run.
		Dir: s.Dir, WorkdirRoot: work, Setup: p.setup, Cmds: commands, Condition: condition, RequireUniqueNames: true,
	})
}

type player struct {
	suite  Suite
	bin    string                 // directory of the built programs
	public func() (string, error) // returns a directory with copies of the programs that users start
}

// setup prepares the directory and the environment of one script.
func (p *player) setup(env *testscript.Env) error {
	for name, text := range p.suite.Files {
		if err := os.WriteFile(filepath.Join(env.WorkDir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	home := filepath.Join(env.WorkDir, "home")
	if err := os.MkdirAll(home, 0o755); err != nil { // the script's archive may have created it
		return err
	}
	if err := os.Chmod(filepath.Join(env.WorkDir, ".tmp"), 0o1777); err != nil {
		return err
	}
	env.Values[testerKey{}] = env.T()
	env.Vars = append(env.Vars, "PATH="+p.bin+":"+system, "HOME="+home)
	env.Vars = append(env.Vars, p.suite.Env...)
	return nil
}

// testerKey is the key of a script's testing.TB.
type testerKey struct{}

func tester(ts *testscript.TestScript) testing.TB { return ts.Value(testerKey{}).(testing.TB) }

// publish copies the programs that users start to a directory that every user can enter: the tree may be private.
func publish(from, to string) (string, error) {
	err := os.Mkdir(to, 0o755)
	for _, name := range []string{"corral", "corral-front"} {
		err = errors.Join(err, sandboxtest.CopyProgram(filepath.Join(from, name), filepath.Join(to, name)))
	}
	return to, err
}

func (p *player) exits(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE [-user=UID] PROGRAM [ARGUMENT...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	args = args[1:]
	if uid, found := strings.CutPrefix(args[0], "-user="); found {
		public, err := p.public()
		ts.Check(err)
		args = append([]string{"setpriv", "--reuid=" + uid, "--regid=" + uid, "--clear-groups"}, args[1:]...)
		if file := filepath.Join(public, args[4]); filepath.Base(file) == args[4] && exists(file) {
			args[4] = file
		}
	}
	got, err := code(ts.Exec(args[0], args[1:]...))
	ts.Check(err)
	if (got == want) == neg {
		ts.Fatalf("exit code %d", got)
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// code returns the exit code of an ended program.
func code(err error) (int, error) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}

func is(ts *testscript.TestScript, neg bool, stream string, lines []string) {
	want := strings.Join(append(lines, ""), "\n")
	if got := ts.ReadFile(stream); (got == want) == neg {
		ts.Fatalf("%s is %q, compared with %q", stream, got, want)
	}
}

func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture NAME PATTERN")
	}
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	found := pattern.FindStringSubmatch(ts.ReadFile("stdout") + ts.ReadFile("stderr"))
	if len(found) < 2 {
		ts.Fatalf("no match of %s with a group", pattern)
	}
	ts.Setenv(args[0], found[1])
}

// needs are the needs that scripts can name.
var needs = map[string]sandboxtest.Need{"root": sandboxtest.Root}

func require(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: require NEED...")
	}
	t := tester(ts)
	for _, arg := range args {
		kind, name, _ := strings.Cut(arg, ":")
		switch {
		case needs[arg] != nil:
			sandboxtest.Require(t, needs[arg])
		case arg == "jails":
			sandboxtest.RequireJails(t)
		case kind == "fs":
			sandboxtest.Require(t, sandboxtest.FileSystem(name))
		case kind == "program":
			sandboxtest.Require(t, sandboxtest.Program(name))
		default:
			ts.Fatalf("unknown need %q", arg)
		}
	}
}

// condition evaluates a condition in brackets before a line of a script.
func condition(name string) (bool, error) {
	if need := needs[name]; need != nil {
		return need() == nil, nil
	}
	return false, fmt.Errorf("unknown condition %q", name)
}
