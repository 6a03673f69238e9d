package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/usage"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/job"
)

// A shellRun is one text that an agent runs in a shell: a job in the agent's repository.
type shellRun struct {
	runOptions
	call  shellCall
	share bool // the jobs of one conversation share a session
}

// errNoRepo is the error of a call that is not made in a repository.
var errNoRepo = errors.New("is not in a repository of git: commands run in the agent's repository\nhint: start the agent in one, or make one: git init")

// errOtherRepo is the error of a call in a directory outside of the repository of the agent.
var errOtherRepo = errors.New("in which it was started\nhint: start the agent in the repository that is meant")

// shellCommand is `corral shell`, and the program corral-shell.
func shellCommand(args []string) (int, error) {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		return 0, printText(usage.Shell)
	}
	if err := endWithAgent(); err != nil {
		return 0, err
	}
	s, err := parseShell(args)
	if errors.Is(err, errNoRepo) || errors.Is(err, errOtherRepo) {
		printError(err)
		return exitNoRepo, nil
	}
	if err != nil {
		return 0, err
	}
	guard := s.spec.Claim.Runtime == "hook" && asksFirst(os.Stdin)
	code, ended, err := s.run()
	if guard && !ended {
		if err != nil {
			printError(err)
		}
		return exitDeny, nil
	}
	return code, err
}

// run runs the job, and tells the agent the directory in which it ended. ended reports whether it ended by itself, within its limits.
func (s *shellRun) run() (code int, ended bool, err error) {
	out := &streams{limit: s.limit, merge: sameFile(os.Stdout, os.Stderr), noting: s.call.report != ""}
	s.stdin = !s.call.tool
	s.entered = func(*client.Client) error { return endWithParent() }
	result, err := s.connectAndRun(out)
	if err != nil {
		return 0, false, err
	}
	printOutcome(result, &s.runOptions, out)
	if result.Code() == 0 && s.call.report != "" {
		if err := reportDirectory(s.call.report, string(out.note.kept), s.spec.Repo); err != nil {
			printError(fmt.Errorf("the agent was not told the working directory: %w", err))
		}
	}
	ended = result.Limit == "" && (result.Status == job.Success || result.Status == job.Failure)
	return result.Code(), ended, out.failed()
}

const (
	exitNoRepo = 126 // outside of any repository, as for a program that cannot be executed
	exitDeny   = 2   // by which a hook of Claude Code denies
)

// asksFirst reports whether a hook is asked before a tool is used. Claude Code takes any exit code of it but 2 for a yes, so that a
// command that uses up all that jobs may have would have its way.
func asksFirst(stdin *os.File) bool {
	fd, b := int(stdin.Fd()), make([]byte, 64<<10)
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
	n, _, err := unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT) // the hook gets all of it
	return err == nil && bytes.Contains(b[:n], []byte(`"hook_event_name":"PreToolUse"`))
}

func sameFile(a, b *os.File) bool {
	one, err := a.Stat()
	two, err2 := b.Stat()
	return err == nil && err2 == nil && os.SameFile(one, two)
}

// parseShell returns the job for a call. Of the options of the user's files, those that this command sets itself are refused.
func parseShell(args []string) (*shellRun, error) {
	asShell := len(args) == 2 && args[0] == "-c"
	if asShell {
		args = args[1:]
	}
	if !asShell && len(args) == 1 && strings.HasPrefix(args[0], "--") {
		return nil, fmt.Errorf("unknown option %.40q: options are lines of ~/.config/corral/shell.conf\nhint: corral shell --help", args[0])
	}
	if len(args) != 1 {
		return nil, fmt.Errorf("%d arguments: must be TEXT, or -c TEXT\nhint: corral shell --help", len(args))
	}
	call := parseCall(args[0], "/tmp", os.Getenv("TMPDIR"), os.Getenv("CLAUDE_CODE_TMPDIR"))
	s := &shellRun{runOptions: runOptions{limit: -2}, call: call}
	cwd, err := unix.Getwd() // not $PWD, which can have links
	if err != nil {
		return nil, fmt.Errorf("the working directory: %w", err)
	}
	if s.spec.Repo, err = repositoryFor(cwd); err != nil {
		return nil, err
	}
	if err := s.configure(); err != nil {
		return nil, err
	}
	s.cwd = cwd
	s.pass = append([]string{"TERM", "LANG", "CLAUDECODE", "GIT_EDITOR", "CLAUDE_CODE_SESSION_ID", "CLAUDE_PROJECT_DIR"}, s.pass...)
	s.spec.Args = []string{"bash", "-c", s.call.script}
	if s.call.snapshot != "" {
		content, err := readSnapshot(s.call.snapshot)
		if err != nil {
			return nil, fmt.Errorf("the snapshot of your shell: %w", err)
		}
		s.spec.Files = []job.File{{Path: snapshotInside, Content: content}}
	}
	s.spec.Claim = job.Claim{
		Tool: "shell", Runtime: s.call.kind(asShell), Session: os.Getenv("CLAUDE_CODE_SESSION_ID"),
		Code: fmt.Sprintf("%x", sha256.Sum256([]byte(args[0]))),
	}
	if pid := os.Getenv("CLAUDE_PID"); pid != "" {
		s.spec.Claim.Request = "claude-" + pid
	}
	return s, s.complete()
}

// shellDefaults are options that the files of settings can override. What has not ended half a second after a signal is killed: the agent
// itself waits for a second.
var shellDefaults = []string{"--protect", "hooks", "--kill-after", "0.5s"}

// configure sets the options of the operator's and the user's files. No variable has options, as a project can set variables.
func (s *shellRun) configure() error {
	// What a project sets in its place is no home directory: see client.CheckPrivate, and git's configuration.
	home := accountHome()
	if err := os.Setenv("HOME", home); err != nil {
		return err
	}
	f := s.flags()
	f.Init("shell", flag.ContinueOnError)
	f.BoolVar(&s.share, "share", false, "")
	if err := parseFlags(f, shellDefaults); err != nil {
		return err
	}
	repo := s.spec.Repo
	for _, path := range []string{"/etc/corral/shell.conf", filepath.Join(home, ".config/corral/shell.conf")} {
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var options []string
		if err == nil {
			options, err = shellOptions(string(b))
		}
		if err == nil {
			err = parseFlags(f, options)
		}
		streams := s.tty || s.json || s.background || s.stdin || s.noStdin
		if err == nil && (streams || f.NArg() > 0 || s.spec.Repo != repo || s.cwd != "" || s.spec.Session != "") {
			err = errors.New("--repo, --cwd, --session, --tty, --json, --background and --stdin are for corral run: the agent's call says each")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return s.choose()
}

// choose completes what the options leave open.
func (s *shellRun) choose() error {
	if s.spec.Workspace != job.Direct && s.spec.Protect == job.ProtectHooks {
		s.spec.Protect = job.ProtectNone // it is for the repository itself
	}
	if !s.share && s.spec.Workspace != job.Overlay {
		return nil
	}
	id := os.Getenv("CLAUDE_CODE_SESSION_ID")
	if id == "" {
		return errors.New("--share and --workspace overlay are for the commands of one conversation, and CLAUDE_CODE_SESSION_ID does not name it")
	}
	s.named = "claude-" + id
	return nil
}

// joinNamed puts the job into the session of that name, which is opened if it is the first one's.
func (o *runOptions) joinNamed(c job.Sessions) error {
	for end := time.Now().Add(openingTime); ; time.Sleep(20 * time.Millisecond) {
		if found, err := o.findNamed(c); found || err != nil {
			return err
		}
		s, err := c.OpenSession(context.Background(), job.SessionSpec{
			Repo: o.spec.Repo, Name: o.named, Profile: o.spec.Profile, Workspace: o.spec.Workspace, Network: o.spec.Network,
			Share: true, Lasting: true,
		})
		if err == nil {
			o.spec.Session = s.ID
			return nil
		}
		// Another command of the conversation is opening it, and it is not listed yet.
		if r := (*job.Refusal)(nil); !errors.As(err, &r) || r.Errno != int(unix.EEXIST) || time.Now().After(end) {
			return err
		}
	}
}

// openingTime is how long a session may take to open.
const openingTime = 10 * time.Second

// findNamed finds the session, or what is left of it if it has ended.
func (o *runOptions) findNamed(c job.Sessions) (found bool, err error) {
	list, err := c.ListSessions(context.Background())
	open := false
	for _, one := range list {
		switch {
		case one.Name != o.named || embed.Root() && one.UID != 0:
		case one.Repo == o.spec.Repo && (!one.Kept || !open):
			o.spec.Session, found, open = one.ID, true, !one.Kept
		case one.Repo != o.spec.Repo && !one.Kept:
			return false, fmt.Errorf("the session %s of this conversation has another repository, %q", one.Name, one.Repo)
		}
	}
	return found, err
}

// accountHome returns the home directory of the user's account. A user who is not in /etc/passwd has none: a project can set HOME.
func accountHome() string {
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil && filepath.IsAbs(u.HomeDir) {
		return u.HomeDir
	}
	return "/nonexistent"
}

// shellOptions returns the options of a file: each line is one option of corral run, with its value behind a blank.
func shellOptions(text string) (options []string, err error) {
	for _, line := range strings.Split(text, "\n") {
		name, value, valued := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case name == "" || name[0] == '#':
			continue
		case !strings.HasPrefix(name, "--"):
			return nil, fmt.Errorf("%q is not an option\nhint: write --network npm, for instance, on a line of its own", line)
		}
		options = append(options, name)
		if valued {
			options = append(options, strings.TrimSpace(value))
		}
	}
	return options, nil
}
