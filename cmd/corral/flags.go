package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"

	"corral/internal/directory"
	"corral/internal/nearest"
	"corral/isolate/wire"
	"corral/job"
)

const runUsage = `corral run runs a program in a jail: it sees the repository, the system's programs, and nothing else of the host.

Usage: corral run [OPTIONS] [--] PROGRAM [ARG]...

  --repo DIR            the repository; it is the working directory (default the current directory)
  --cwd DIR             working directory in it, relative to it or absolute
  --workspace MODE      direct: the job writes to the repository (default); readonly: it cannot; overlay: it writes to a
                        copy, of which what changed is kept for corral changes, under the name that standard error has;
                        none: the job sees no repository, and works in /tmp
  --protect WHAT        leave read-only what is sensitive: hooks, or all: and git directories as a whole (default none)
  --profile NAME        of system calls: default, or strict (no ptrace, and more removed)
  --session ID          run it in that session, see corral session; its repository and workspace hold

  --timeout 30s         end the job then (default none)
  --memory 1GiB         of all its processes together (default 2GiB); there is no swap
  --cpus 1.5            CPUs (default all)
  --pids 256            processes and threads (default 512)
  --disk SIZE           what it may add to the repository (default no limit)
  --inodes N            files it may add to it (default no limit)
  --file-size SIZE      the largest file (default no limit)
  --nofile N            open files of a process (default 4096)
  --tmp SIZE            each of /tmp, /var/tmp, /home, /dev/shm (default 512MiB)

  --env NAME=VALUE      set a variable; repeatable. Nothing else of your environment is passed
  --env-pass NAME       pass a variable of yours; repeatable
  --stdin               pass standard input (default: pass a pipe or a file; from a terminal or a device it is empty)
  --no-stdin            do not: it is empty
  --tty                 give the job a terminal of its own, joined to yours
  --output-limit SIZE   drop what is beyond, of each stream (default none, with --json 10MiB)
  --json                print one JSON object instead: status, exitCode, stdout, stderr, usage, ...

  --supervisor SOCKET   use the supervisor there (default ` + "`/run/corral/corral.sock`" + `; root starts one of its own)
  --toolchain DIR       show DIR read-only in the jail; root only, repeatable
  --account USER        root without sudo: whose directories they are, which are opened with that user's rights (default:
                        root's; with sudo they are always those of who called it)

Exit code: the job's; 128+n when signal n ended it; 124 at the timeout; 126 or 127 when PROGRAM cannot be executed or is
not there; 125 when corral itself failed. Why a job ended early, and which sensitive paths it changed, is on standard
error.
`

type runOptions struct {
	changes      string // the session whose layer with changes was kept
	keepErr      error  // why it was not
	workspaceSet bool   // the command line names the workspace
	spec         job.Spec
	supervisor   string
	account      string
	toolchains   []string
	stdin        bool
	noStdin      bool
	tty          bool
	json         bool
	limit        int64 // of each output stream, -1 none
	set          []string
	pass         []string
	cwd          string
}

// parseRun reads the command line of run. flag.ErrHelp is a request for the usage text. With an error there may be
// options, which say how to print it.
func parseRun(args []string) (*runOptions, error) {
	o := &runOptions{limit: -2}
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	for name, to := range map[string]*string{
		"repo": &o.spec.Repo, "cwd": &o.cwd, "profile": &o.spec.Profile, "supervisor": &o.supervisor, "session": &o.spec.Session,
		"account": &o.account,
	} {
		f.Func(name, "", nonEmpty(to))
	}
	f.BoolVar(&o.stdin, "stdin", false, "")
	f.BoolVar(&o.noStdin, "no-stdin", false, "")
	f.BoolVar(&o.tty, "tty", false, "")
	f.BoolVar(&o.json, "json", false, "")
	f.Func("workspace", "", func(s string) (err error) {
		o.workspaceSet = true
		if s == job.NoRepo.String() {
			o.spec.Workspace = job.NoRepo
			return nil
		}
		o.spec.Workspace, err = job.ParseWorkspace(s)
		return err
	})
	f.Func("protect", "", func(s string) (err error) {
		o.spec.Protect, err = job.ParseProtection(s)
		return err
	})
	l := &o.spec.Limits
	f.Func("timeout", "", func(s string) (err error) {
		l.Wall, err = job.ParseDuration(s)
		return err
	})
	f.Func("cpus", "", func(s string) (err error) {
		l.MilliCPUs, err = job.ParseCPUs(s)
		return err
	})
	for name, to := range map[string]*int64{
		"memory": &l.Memory, "disk": &l.Disk, "file-size": &l.FileSize, "tmp": &l.Tmp, "output-limit": &o.limit,
	} {
		f.Func(name, "", parseInto(to, job.ParseSize))
	}
	for name, to := range map[string]*int64{"pids": &l.PIDs, "inodes": &l.Inodes, "nofile": &l.OpenFiles} {
		f.Func(name, "", parseInto(to, job.ParseCount))
	}
	for name, to := range map[string]*[]string{"env": &o.set, "env-pass": &o.pass, "toolchain": &o.toolchains} {
		f.Func(name, "", func(s string) error {
			*to = append(*to, s)
			return nil
		})
	}
	if err := parseFlags(f, args); err != nil {
		return nil, err
	}
	o.spec.Args = f.Args()
	return o, o.complete()
}

// parseFlags calls f.Parse, and says what is wrong in the words of the usage text.
func parseFlags(f *flag.FlagSet, args []string) error {
	return nearest.ParseFlags(f, args, "corral "+f.Name())
}

// nonEmpty sets *to to a name. An empty one is a variable that was not set in somebody's script, and no request for the
// default.
func nonEmpty(to *string) func(string) error {
	return func(s string) error {
		if s == "" {
			return errors.New("it is empty")
		}
		*to = s
		return nil
	}
}

func parseInto(to *int64, parse func(string) (int64, error)) func(string) error {
	return func(s string) (err error) {
		*to, err = parse(s)
		return err
	}
}

// complete checks what is not about one option alone, and resolves the directories' names.
func (o *runOptions) complete() error {
	switch {
	case len(o.spec.Args) == 0:
		return errors.New("no program given\nhint: corral run -- PROGRAM [ARG]")
	case o.stdin && o.noStdin:
		return errors.New("--stdin and --no-stdin do not go together")
	case o.json && o.tty:
		return errors.New("--json and --tty do not go together: a terminal's output is for people")
	case o.spec.Workspace == job.NoRepo && o.cwd != "":
		return errors.New("--cwd and --workspace none do not go together: there is no repository to have a directory in")
	case o.spec.Workspace == job.NoRepo && o.spec.Protect != job.ProtectNone:
		return errors.New("--protect and --workspace none do not go together: there is no repository to protect something in")
	case o.limit != -2 && o.tty:
		return errors.New("--output-limit and --tty do not go together: what a terminal shows cannot be cut")
	}
	if o.limit == -2 {
		o.limit = -1
		if o.json {
			o.limit = 10 << 20
		}
	}
	if err := o.spec.Limits.Check(); err != nil {
		return err
	}
	if err := o.directories(); err != nil {
		return err
	}
	var err error
	o.spec.Env, err = environment(o.set, o.pass, o.tty)
	return err
}

// directories makes the repository's name absolute, and the working directory's relative to it. Both are names only: who
// opens them decides.
func (o *runOptions) directories() error {
	if o.spec.Session != "" && o.spec.Repo == "" {
		return o.inSession()
	}
	named, err := filepath.Abs(o.spec.Repo) // as the shell calls it, and --cwd may
	if err != nil {
		return err
	}
	if o.spec.Repo, err = directory.Absolute(o.spec.Repo); err != nil {
		return err
	}
	for i, dir := range o.toolchains {
		if o.toolchains[i], err = directory.Absolute(dir); err != nil {
			return err
		}
	}
	if !filepath.IsAbs(o.cwd) {
		o.spec.Dir = filepath.Clean(o.cwd)
	} else if o.spec.Dir, err = relative(o.cwd, named, o.spec.Repo); err != nil {
		return err
	}
	if o.spec.Dir == ".." || strings.HasPrefix(o.spec.Dir, "../") {
		return fmt.Errorf("working directory %q is not in the repository %q", o.cwd, o.spec.Repo)
	}
	if len(o.spec.Dir) > wire.MaxPath {
		return fmt.Errorf("working directory %.40q...: %d bytes, more than %d", o.spec.Dir, len(o.spec.Dir), wire.MaxPath)
	}
	return nil
}

// inSession takes the working directory as it is: only the session knows what it lies in.
func (o *runOptions) inSession() error {
	if o.spec.Dir = o.cwd; o.cwd != "" {
		o.spec.Dir = filepath.Clean(o.cwd)
	}
	if len(o.spec.Dir) > wire.MaxPath {
		return fmt.Errorf("working directory %.40q...: %d bytes, more than %d", o.spec.Dir, len(o.spec.Dir), wire.MaxPath)
	}
	return nil
}

// errnoOf is the kernel's word in err, without the operation and the path, or err.
func errnoOf(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// relative returns dir relative to the repository, which may be named as it was given or by its real path.
func relative(dir, named, real string) (string, error) {
	for _, base := range []string{named, real} {
		if rel, err := filepath.Rel(base, dir); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return rel, nil
		}
	}
	return "", fmt.Errorf("working directory %q is not in the repository %q", dir, real)
}
