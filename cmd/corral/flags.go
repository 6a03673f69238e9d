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
	"corral/isolate/client"
	"corral/isolate/wire"
	"corral/job"
	"corral/policy/ask"
)

type runOptions struct {
	changes      string // id of the session whose layer was kept because it has changes; "" if none was
	keepErr      error  // why it could not be kept
	workspaceSet bool   // the command line names the workspace
	spec         job.Spec
	supervisor   string
	account      string
	toolchains   []string
	stdin        bool
	noStdin      bool
	tty          bool
	json         bool
	background   bool
	limit        int64 // of each output stream, -1 none
	set          []string
	pass         []string
	cwd          string
	key, keyOf   string // see embed.Options
	named        string // name of a lasting session, which is opened unless it is there
	home         bool   // the job has a session of its own in any case, whose home directory other jobs see
	// entered, if set, is called when the job's session is open, and ended when the job has ended there.
	entered func(*client.Client) error
	ended   func(*client.Client)
	closed  bool // ended has closed the session
}

// parseRun parses the command line of run. It returns flag.ErrHelp if the usage text is requested. The options may be
// non-nil together with an error: they then say how to print it.
func parseRun(args []string) (*runOptions, error) {
	o := &runOptions{limit: -2}
	f := o.flags()
	if err := parseFlags(f, args); err != nil {
		return nil, err
	}
	o.spec.Args = f.Args()
	return o, o.complete()
}

// flags returns the options of run, which set those of o.
func (o *runOptions) flags() *flag.FlagSet {
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
	f.BoolVar(&o.background, "background", false, "")
	f.Func("workspace", "", func(s string) (err error) {
		o.workspaceSet = true
		if s == job.NoRepo.String() {
			o.spec.Workspace = job.NoRepo
			return nil
		}
		if o.spec.Workspace, err = job.ParseWorkspace(s); err != nil {
			err = errors.New("must be direct, overlay, readonly or none")
		}
		return err
	})
	f.Func("protect", "", func(s string) (err error) {
		o.spec.Protect, err = job.ParseProtection(s)
		return err
	})
	f.Func("network", "", ask.Into(&o.spec.Network))
	l := &o.spec.Limits
	for _, limit := range l.Fields() {
		if limit.Option != "" {
			f.Func(limit.Option, "", parseInto(limit.Value, limit.Unit.Parse))
		}
	}
	f.Func("output-limit", "", parseInto(&o.limit, job.ParseSize))
	for name, to := range map[string]*[]string{"env": &o.set, "env-pass": &o.pass, "toolchain": &o.toolchains} {
		f.Func(name, "", func(s string) error {
			*to = append(*to, s)
			return nil
		})
	}
	return f
}

// parseFlags calls f.Parse, and writes options in errors as the usage text does (--name).
func parseFlags(f *flag.FlagSet, args []string) error {
	return nearest.ParseFlags(f, args, "corral "+f.Name())
}

// parseMixed is parseFlags for options that may stand before and after arguments, which it returns.
func parseMixed(f *flag.FlagSet, args []string) (rest []string, err error) {
	return nearest.ParseMixed(f, args, "corral "+f.Name())
}

// nonEmpty returns a parser that sets *to, and refuses an empty value: it usually comes from a script's unset variable,
// and is not a request for the default.
func nonEmpty(to *string) func(string) error {
	return func(s string) error {
		if s == "" {
			return errors.New("must not be empty")
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

// complete checks combinations of options and resolves the names of directories.
func (o *runOptions) complete() error {
	switch {
	case len(o.spec.Args) == 0 && o.spec.Session != "":
		return errors.New("no program given\nhint: corral session exec ID -- PROGRAM [ARG]")
	case len(o.spec.Args) == 0:
		return errors.New("no program given\nhint: corral run -- PROGRAM [ARG]")
	case o.stdin && o.noStdin:
		return errors.New("--stdin and --no-stdin cannot be combined")
	case o.json && o.tty:
		return errors.New("--json and --tty cannot be combined: a terminal's output is for people")
	case o.spec.Workspace == job.NoRepo && o.cwd != "":
		return errors.New("--cwd and --workspace none cannot be combined: the job sees no repository")
	case o.spec.Workspace == job.NoRepo && o.spec.Protect != job.ProtectNone:
		return errors.New("--protect and --workspace none cannot be combined: the job sees no repository")
	case o.limit != -2 && o.tty:
		return errors.New("--output-limit and --tty cannot be combined: a terminal's output cannot be cut")
	}
	if o.background {
		if err := o.unattended(); err != nil {
			return err
		}
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
	o.spec.Usual = true
	o.spec.Env, err = environment(o.set, o.pass, o.tty)
	return err
}

// unattended refuses what a job in the background cannot have.
func (o *runOptions) unattended() error {
	switch {
	case o.spec.Session == "":
		return errors.New("--background is for jobs of a session, which it ends with\nhint: corral session exec --background ID -- PROGRAM [ARG]")
	case o.tty, o.stdin:
		return errors.New("--background cannot be combined with --tty or --stdin: nobody can type to the job, and its input is empty")
	case o.json:
		return errors.New("--background and --json cannot be combined: the output is stored\nhint: corral ps --json lists the job, corral session list --json its session's ports")
	case o.limit != -2:
		return errors.New("--background and --output-limit cannot be combined: output.keep of the configuration is the maximum that is stored")
	}
	return nil
}

// directories makes the repository's name absolute and the working directory relative to the repository. It only
// rewrites names: the supervisor checks them when it opens the directories.
func (o *runOptions) directories() error {
	if o.spec.Session != "" && o.spec.Repo == "" {
		return o.inSession()
	}
	named, err := filepath.Abs(o.spec.Repo) // with the links of $PWD, which --cwd may have, too
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

// inSession sets the working directory as given: only the session says in which repository it is, see join.
func (o *runOptions) inSession() error {
	if o.spec.Dir = o.cwd; o.cwd != "" {
		o.spec.Dir = filepath.Clean(o.cwd)
	}
	if len(o.spec.Dir) > wire.MaxPath {
		return fmt.Errorf("working directory %.40q...: %d bytes, more than %d", o.spec.Dir, len(o.spec.Dir), wire.MaxPath)
	}
	return nil
}

// errnoOf returns the system call error in err, without the operation and the path, or err if there is none.
func errnoOf(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// relative returns dir relative to the repository, which dir may name as it was given or by its real path.
func relative(dir, named, real string) (string, error) {
	for _, base := range []string{named, real} {
		if rel, err := filepath.Rel(base, dir); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return rel, nil
		}
	}
	return "", fmt.Errorf("working directory %q is not in the repository %q", dir, real)
}
