package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/internal/nearest"
	"corral/internal/usage"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/job"
	"corral/policy/network"
)

// An agentRun is one run of an agent, or of another program in an agent's place: a job of a session of its own, whose home directory has
// what the agent kept.
type agentRun struct {
	runOptions
	agent     agent
	direct    bool
	ephemeral bool
	login     bool
	keyFile   string
	program   string // path, if the command line names it
	kept      *stateFile
}

// agentCommand is `corral agent`.
func agentCommand(args []string) (int, error) {
	a, err := parseAgent(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0, printText(usage.Agent)
	}
	if err != nil {
		return 0, err
	}
	out := &streams{limit: a.limit}
	a.home, a.entered, a.ended = true, a.load, a.leave
	a.spec.Claim.Tool = "agent"
	result, err := a.connectAndRun(out)
	if err != nil {
		return 0, err
	}
	printOutcome(result, &a.runOptions, out)
	if a.keepErr != nil {
		return exitFailure, nil
	}
	return result.Code(), out.failed()
}

// parseAgent parses the command line of agent. Options come before the agent's name; all that follows is the agent's.
func parseAgent(args []string) (*agentRun, error) {
	a := &agentRun{runOptions: runOptions{limit: -2}}
	f := a.flags()
	f.Init("agent", flag.ContinueOnError)
	f.BoolVar(&a.direct, "direct", false, "")
	f.BoolVar(&a.ephemeral, "ephemeral", false, "")
	f.BoolVar(&a.login, "login", false, "")
	f.Func("key-file", "", nonEmpty(&a.keyFile))
	f.Func("program", "", nonEmpty(&a.program))
	if err := parseFlags(f, args); err != nil {
		return nil, err
	}
	words, at := f.Args(), len(args)-f.NArg()
	switch {
	case len(words) == 0:
		return nil, fmt.Errorf("no agent given: must be %s\nhint: corral agent claude, or corral agent -- PROGRAM [ARG]",
			strings.Join(agentNames(), ", "))
	case at > 0 && args[at-1] == "--":
		a.spec.Args = words
	default:
		if err := a.take(words); err != nil {
			return nil, err
		}
	}
	return a, a.prepare()
}

// take finds the agent that the words name, and has the job run it.
func (a *agentRun) take(words []string) error {
	var known bool
	if a.agent, known = agentNamed(words[0]); !known {
		names := agentNames()
		err := fmt.Errorf("unknown agent %q: must be %s\nhint: corral agent -- PROGRAM [ARG] runs any program", words[0], strings.Join(names, ", "))
		if near := nearest.Of(words[0], names); near != "" {
			err = fmt.Errorf("unknown agent %q\nhint: did you mean corral agent %s?", words[0], near)
		}
		return err
	}
	path, shown, err := a.installed()
	if err != nil {
		return err
	}
	a.set = slices.Concat(a.agent.env, a.set)
	if a.alone() {
		a.toolchains = append(a.toolchains, shown...)
		a.spec.Args = append([]string{"sh", "-c", a.agent.script(), "sh", path}, words[1:]...)
	} else {
		a.spec.Args = append([]string{"sh", "-c", a.served() + a.agent.script(), "sh", strings.Join(shown, ", "), path}, words[1:]...)
	}
	return nil
}

// served returns what a shell runs before the script in a jail of a running supervisor, with the directories of the agent's installation
// before its program in "$@": it says what the configuration, which only the operator can change, does not give the agent.
func (a *agentRun) served() string {
	text := `shown=$1
shift
[ -x "$1" ] || {
	printf 'corral: jails of the running supervisor do not show %s\n' "$1" >&2
	printf 'hint: the operator can show them %s: toolchains of the configuration\n' "$shown" >&2
	exit 127
}
`
	if preset, _ := network.PresetNamed(a.agent.api); !a.login {
		text += fmt.Sprintf(`[ -n "$CORRAL_SECRET$%[1]s" ] || {
	echo 'corral: the running supervisor has no key of %[2]s for this repository' >&2
	echo 'hint: the operator can give jobs one: secrets of the configuration' >&2
	exit 125
}
`, preset.Key.Variable, a.agent.api)
	}
	return text
}

// script returns what a shell runs, with the agent's program and arguments in "$@".
func (a agent) script() string {
	preset, _ := network.PresetNamed(a.api)
	key := fmt.Sprintf(`[ -z "$CORRAL_SECRET" ] || export %s="%s"`, preset.Key.Variable, cmp.Or(a.key, "$CORRAL_SECRET"))
	return key + "\n" + a.begin + "\nexec \"$@\""
}

// prepare completes the options, and reads the key.
func (a *agentRun) prepare() error {
	preset, _ := network.PresetNamed(a.agent.api)
	switch {
	case a.json, a.background, a.spec.Session != "":
		return errors.New("--json, --background and --session are for corral run")
	case a.direct && a.workspaceSet:
		return errors.New("--direct and --workspace cannot be combined")
	case a.login && a.keyFile != "":
		return errors.New("--login and --key-file cannot be combined: who logs in has no key")
	case a.login && a.agent.name != "" && a.agent.login == nil:
		return fmt.Errorf("--login is not for %s\nhint: give it a key of %s, by --key-file or %s", a.agent.name, a.agent.api, preset.Key.Variable)
	case a.keyFile != "" && !a.alone():
		return errors.New("--key-file is for the supervisor that root starts for one job\n" +
			"hint: the operator can give the jobs of a running one a key: secrets of the configuration")
	case a.agent.api == "" && (a.login || a.keyFile != "" || a.program != ""):
		return errors.New("--login, --key-file and --program are for an agent by name")
	}
	if !a.direct && !a.workspaceSet {
		a.spec.Workspace = job.Overlay
	}
	a.tty = a.tty || isTerminal(os.Stdin) && isTerminal(os.Stdout)
	a.stdin = a.stdin || !a.noStdin && !a.tty && isPiped(os.Stdin)
	if a.agent.api != "" {
		words := []string{a.agent.api, a.spec.Network}
		if a.login {
			words = append(words, a.agent.login...)
		}
		a.spec.Network = strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" || s == job.NoNetwork }), " ")
	}
	if err := a.complete(); err != nil {
		return err
	}
	if a.agent.api == "" || a.login || !a.alone() {
		return nil // the operator of a running supervisor says which secrets jobs have
	}
	var err error
	a.keyOf = a.agent.api
	a.key, err = a.readKey()
	return err
}

// alone reports whether the agent gets a supervisor of its own.
func (a *agentRun) alone() bool { return embed.Root() && a.supervisor == "" }

// readKey returns the key of the agent's API: from the file that the command line names, else the environment, else the user's own file.
func (a *agentRun) readKey() (string, error) {
	preset, _ := network.PresetNamed(a.agent.api)
	path := a.keyFile
	if path == "" {
		if key := os.Getenv(preset.Key.Variable); key != "" {
			return key, nil
		}
		home, err := userHome()
		if err != nil {
			return "", err
		}
		path = filepath.Join(home, ".config/corral/keys", a.agent.api)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) && a.keyFile == "" {
		return "", fmt.Errorf("no key of %s: neither the variable %s nor %s has it\nhint: sudo --preserve-env=%[2]s corral agent %[4]s passes the variable, or put the "+
			"key into the file%[5]s", a.agent.api, preset.Key.Variable, path, a.agent.name, a.orLogin())
	}
	if err != nil {
		return "", fmt.Errorf("the key of %s: %w", a.agent.api, embed.Hint(err))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	key := strings.TrimSpace(string(b))
	switch {
	case err != nil:
	case len(b) > maxKey:
		err = fmt.Errorf("%s is too large for a key: the maximum is %d bytes", path, maxKey)
	case key == "":
		err = fmt.Errorf("%s is empty: must have the key of %s", path, a.agent.api)
	}
	return key, err
}

// orLogin ends the hint of a missing key.
func (a *agentRun) orLogin() string {
	if a.agent.login == nil {
		return ""
	}
	return fmt.Sprintf("; to log in instead: corral agent --login %s", a.agent.name)
}

// maxKey is the size of the file of a key in bytes.
const maxKey = 4 << 10

// installed returns the path of the agent's program, without links, and the directories with its installation that jails must show.
func (a *agentRun) installed() (path string, shown []string, err error) {
	candidates := []string{a.program}
	home, err := userHome()
	if a.program == "" {
		candidates = nil
		if err != nil {
			return "", nil, err
		}
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			candidates = append(candidates, filepath.Join(dir, a.agent.program))
		}
		for _, place := range a.agent.places {
			found, _ := filepath.Glob(filepath.Join(home, place, a.agent.program))
			slices.Reverse(found) // the newest version of several, mostly
			candidates = append(candidates, found...)
		}
	}
	for _, c := range candidates {
		if info, err := os.Stat(c); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 || !filepath.IsAbs(c) && a.program == "" {
			continue
		}
		if c, err = filepath.Abs(c); err == nil {
			path, err = filepath.EvalSymlinks(c)
		}
		if err != nil {
			return "", nil, err
		}
		if shown, err = a.installation(path); err != nil && !a.alone() { // then its operator says what jails show
			shown, err = []string{filepath.Dir(path)}, nil
		}
		return path, shown, err
	}
	if a.program != "" {
		return "", nil, fmt.Errorf("--program %q: must be a file that can be executed", a.program)
	}
	return "", nil, fmt.Errorf("%s is not installed: it is neither in PATH (%s), nor below %s in %s\n"+
		"hint: npm install -g %s, or name it: --program PATH",
		a.agent.program, os.Getenv("PATH"), home, strings.Join(a.agent.places, ", "), a.agent.npm)
}

// installation returns the directory that has a program's installation and nothing else, nil if jails show it: the package of npm that it
// is in, with nvm's node if it has one, or the directory of its versions. One for all programs of a user has much else, which may be
// secret.
func (a *agentRun) installation(path string) ([]string, error) {
	if a.shows(path) {
		return nil, nil
	}
	if before, after, ok := strings.Cut(path, "/node_modules/"); ok {
		if node := filepath.Dir(before); strings.HasSuffix(filepath.Dir(node), "/.nvm/versions/node") {
			return []string{node}, nil // the package and the node that runs it, and other packages
		}
		parts := strings.Split(after, "/")
		if strings.HasPrefix(after, "@") && len(parts) > 2 {
			parts[0] += "/" + parts[1]
		}
		pack := filepath.Join(before, "node_modules", parts[0])
		// Its packages for kinds of machines (codex-linux-x64), which npm puts beside it, or into it with -g.
		machines, _ := filepath.Glob(pack + "-*")
		return append([]string{pack}, machines...), nil
	}
	dir := filepath.Dir(path)
	if home, err := userHome(); filepath.Base(dir) == "bin" || err == nil && directory.Within(home, dir) {
		return nil, fmt.Errorf("%s is in a directory with much else, which the agent would see\nhint: --toolchain %s shows it nevertheless", path, dir)
	}
	return []string{dir}, nil
}

// load unpacks what the agent kept, as this process has the rights of its user alone: root is gone, or was never there.
func (a *agentRun) load(c *client.Client) error {
	if a.ephemeral || len(a.agent.state) == 0 {
		return nil
	}
	s, err := openState(a.agent.name)
	if err == nil {
		a.kept, err = s, s.load(c, &a.spec)
	}
	if err != nil {
		return fmt.Errorf("what %s kept: %w\nhint: --ephemeral starts it without, and keeps nothing", a.agent.name, err)
	}
	return nil
}

// leave packs what the agent keeps, and asks what is to become of its changes if a person can answer.
func (a *agentRun) leave(c *client.Client) {
	if a.kept != nil {
		if err := a.kept.save(c, &a.spec, a.agent.state); err != nil {
			printError(fmt.Errorf("what %s keeps was not stored: %w", a.agent.name, err))
		}
	}
	if a.tty && a.spec.Workspace == job.Overlay {
		a.review(c)
	}
}

// review runs corral-front, which shows the session's changes and asks for what to do, on this process's connection.
func (a *agentRun) review(c *client.Client) {
	path, err := sibling("corral-front")
	if err != nil {
		printError(err)
		return
	}
	socket, err := c.Socket()
	if err != nil {
		printError(err)
		return
	}
	defer socket.Close()
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGQUIT) // they are for the child; the changes are kept then
	cmd := exec.Command(path, "session-review", a.spec.Session)
	cmd.Args[0], cmd.ExtraFiles = "corral-front", []*os.File{socket} // descriptor 3
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	a.closed = cmd.Run() == nil
}
