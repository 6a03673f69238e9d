package policy

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"corral/internal/text"
	"corral/job"
	"corral/policy/ask"
	"corral/policy/runtimes"
	"corral/policy/starlark"
)

// A chain is one request on its way through the steps. Each step sees the results of those before it.
type chain struct {
	p *Policy
	r *job.Request

	repo    Repo
	runtime runtimes.Runtime
	choice  runtimes.Choice // the program; zero while missing is set
	missing string          // why no program was found
	env     environment     // of the job; nil until first used, see variables
	hasEnv  bool            // whether the environment step passed
	dir     string          // clean; "" is the repository
	dirs    string          // of PATH; "" until first used, see path
	// workspace is the repository's until its step has run, then the request's.
	workspace job.Workspace
	network   string        // what the job may reach; set by the network step
	limits    job.Limits    // no field is zero after the timeout step
	wall      time.Duration // of a Starlark program, which is part of the job's
	lowered   []string      // limits that the operator's rules lowered, for people
	code      string        // SHA-256 in hex, "" without code
	stdin     string        // SHA-256 of the input in hex, "" without input, or job.StdinStreamed
}

func (p *Policy) chain(r *job.Request) *chain {
	c := &chain{p: p, r: r, repo: p.repos[r.Repo]}
	c.workspace = c.repo.Workspace
	if r.Root {
		c.workspace = c.repo.rootWorkspace()
	}
	switch {
	case r.Background && c.repo.BackgroundWall != 0:
		c.repo.Ceilings.Wall = c.repo.BackgroundWall
	case r.Root && c.repo.RootWall != 0:
		c.repo.Ceilings.Wall = c.repo.RootWall
	}
	if c.isStarlark() {
		c.asStarlark()
	}
	if r.Code != nil {
		c.code = hexSum([]byte(*r.Code))
	}
	switch {
	case r.Streamed:
		c.stdin = job.StdinStreamed
	case r.Stdin != "":
		c.stdin = hexSum([]byte(r.Stdin))
	}
	return c
}

// A step is one rule. against returns why it denies the request, or nil.
type step struct {
	rule, reason string
	against      func(ctx context.Context, c *chain) []string
	found        func(c *chain) string // what a step that passed determined, for people
}

// steps is the chain, in order.
var steps = []step{
	{"runtime.enabled", "a single switch disables all runtimes", enabled, nothing},
	{"repo", "only configured repositories are served", known, func(c *chain) string { return c.repo.Path }},
	{
		"runtime.allowed", "the operator chooses the languages, globally and per repository", allowedRuntime,
		func(c *chain) string { return c.r.Runtime },
	},
	{
		"executable.compatible", "a program's name decides how it is given the code: only the runtime's own programs get it",
		compatible, nothing,
	},
	{"executable.allowed", "the operator chooses the programs", allowedExecutable, (*chain).program},
	{"arguments", "empty requests and NUL bytes cannot be executed", arguments, nothing},
	{
		"network", "a client may ask for fewer hosts than it may reach, never for more", withinNetwork,
		func(c *chain) string { return c.network },
	},
	{
		"environment", "only named variables are passed, so no secret of the host leaks", buildEnvironment,
		func(c *chain) string { return strings.Join(c.variables().names(), " ") },
	},
	{
		"cwd", "a job works in its repository only; the supervisor resolves links", lexicalDirectory,
		func(c *chain) string { return cmp.Or(c.dir, ".") },
	},
	{
		"workspace", "a client may restrict the configured access to a repository, never extend it", narrowerWorkspace,
		func(c *chain) string { return c.workspace.String() },
	},
	{
		"timeout", "no job runs longer than the operator allows", withinTimeout,
		func(c *chain) string { return milliseconds(c.limits.Wall) },
	},
	{"limits", "a limit that cannot be granted is denied, never lowered silently", withinLimits, nothing},
	{
		"rules", "the operator's own rules, which can only restrict", operatorsRules,
		func(c *chain) string { return strings.Join(c.lowered, ", ") },
	},
}

func nothing(*chain) string { return "" }

func enabled(_ context.Context, c *chain) []string {
	if !c.p.rules.Enabled {
		return []string{"Runtime execution is disabled in configuration (runtime.enabled = false)"}
	}
	if c.isStarlark() && !c.p.rules.Starlark.Enabled {
		return []string{"Starlark is disabled in configuration (starlark.enabled = false)"}
	}
	return nil
}

func known(_ context.Context, c *chain) []string {
	switch {
	case c.repo.ID != "":
	case c.r.Repo == "":
		return []string{"The request names no repository"}
	default:
		return []string{"Repository " + text.Line(c.r.Repo, maxSaid) + " not found"}
	}
	return nil
}

// runtimes returns the runtimes that are permitted in the request's repository.
func (c *chain) runtimes() []string {
	if c.repo.Runtimes == nil {
		return c.p.rules.Runtimes
	}
	return slices.DeleteFunc(slices.Clone(c.p.rules.Runtimes), func(name string) bool {
		return !slices.Contains(c.repo.Runtimes, name)
	})
}

func allowedRuntime(_ context.Context, c *chain) []string {
	if c.isCommand() {
		if c.r.Runtime != "" || c.r.Executable != "" || c.r.Args != nil || c.r.Code != nil {
			return []string{"A command cannot be combined with a runtime, executable, arguments or code"}
		}
		return c.builtin()
	}
	list := c.runtimes()
	ok := c.isStarlark()
	if !ok {
		c.runtime, ok = runtimes.Lookup(c.r.Runtime)
	}
	if !ok || !slices.Contains(list, c.r.Runtime) {
		return []string{fmt.Sprintf("Runtime %q is not in the allowed runtimes list: [%s]", c.r.Runtime, strings.Join(list, ", "))}
	}
	return nil
}

func arguments(_ context.Context, c *chain) []string {
	switch {
	case c.isCommand():
		return commandWords(c)
	case c.isStarlark():
		return c.starlarkWords()
	}
	if c.r.Code == nil && len(c.r.Args) == 0 {
		return []string{"code or args is required"}
	}
	// Source code is text in every runtime. Some interpreters stop reading at a NUL, so they would run something else
	// than the rules and the audit log have seen.
	if c.r.Code != nil && strings.IndexByte(*c.r.Code, 0) >= 0 {
		return []string{"Code contains a NUL byte"}
	}
	for i, a := range c.r.Args {
		if strings.IndexByte(a, 0) >= 0 {
			return []string{fmt.Sprintf("Argument %d contains a NUL byte", i+1)}
		}
	}
	return nil
}

func lexicalDirectory(_ context.Context, c *chain) []string {
	dir := c.r.Dir
	if c.isStarlark() {
		return c.starlarkDirectory()
	}
	if filepath.IsAbs(dir) != c.r.Root || strings.IndexByte(dir, 0) >= 0 || slices.Contains(strings.Split(dir, "/"), "..") {
		return []string{fmt.Sprintf("Relative CWD %q contains path traversal or absolute path components", dir)}
	}
	if dir = filepath.Clean(dir); dir != "." {
		c.dir = dir
	}
	return nil
}

// withinNetwork determines what the job may reach, and denies a request for more. Which hosts the operator's rules have is checked
// where they apply.
func withinNetwork(_ context.Context, c *chain) []string {
	asked, err := ask.Parse(c.r.Network)
	switch {
	case err != nil:
	case c.isStarlark(): // its job has no network in any case, see starlarkSpec
		_, err = ask.Narrow(job.NoNetwork, asked)
	default:
		c.network, err = ask.Narrow(c.p.rules.Network.of(c.r), asked)
	}
	switch {
	case err != nil:
		return []string{"Requested network access: " + sentence(err)}
	case c.r.NeedsNetwork && (c.repo.Network == nil || c.network == job.NoNetwork):
		return []string{"Requested network access: the operator allows none for this request"}
	}
	return nil
}

func withinTimeout(_ context.Context, c *chain) []string {
	if c.isStarlark() {
		return c.starlarkTimeout()
	}
	// The ceilings lower the defaults: a limit that the client did not request must not deny its request.
	c.limits = c.r.Limits.Or(c.r.Usual.Or(c.repo.Defaults).Or(job.Defaults()).AtMost(c.repo.Ceilings))
	ceiling := job.Limits{Wall: c.repo.Ceilings.Wall}
	if c.r.Limits.Within(ceiling) != nil {
		return []string{fmt.Sprintf("Requested timeout (%s) exceeds maximum (%s)", milliseconds(c.r.Limits.Wall), milliseconds(ceiling.Wall))}
	}
	return nil
}

func withinLimits(_ context.Context, c *chain) []string {
	for _, err := range []error{c.r.Limits.Check(), c.limits.Check(), c.limits.Within(c.repo.Ceilings)} {
		if err != nil {
			return []string{"Requested limits: " + sentence(err)}
		}
	}
	return c.starlarkRoom()
}

// sentence returns an error, with its hint, as part of a reason.
func sentence(err error) string {
	return text.Line(strings.ReplaceAll(err.Error(), "\nhint: ", "; "), maxSaid)
}

func milliseconds(d time.Duration) string {
	if d == job.Unlimited {
		return "unlimited"
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
}

func operatorsRules(ctx context.Context, c *chain) []string {
	if c.p.rules.Operator == nil {
		return nil
	}
	v := c.p.rules.Operator.Decide(ctx, c.query())
	switch lowered := v.Limits.Or(c.limits); {
	case v.Denied && v.Reason == "":
		return []string{"The operator's rules failed: they denied without a reason"}
	case v.Denied:
		return []string{v.Reason}
	case within(lowered, c.limits) != nil || lowered.Check() != nil:
		return []string{"The operator's rules failed: they would raise a limit"}
	default:
		c.note(lowered)
		c.limits = lowered
		return c.starlarkRoom()
	}
}

// note records which limits the operator's rules lowered.
func (c *chain) note(now job.Limits) {
	was := c.limits.Fields()
	for i, f := range now.Fields() {
		if *f.Value != *was[i].Value {
			c.lowered = append(c.lowered, "lower "+f.Name)
		}
	}
}

// within is Limits.Within without exceptions: a zero field is a value, and Unlimited is above everything.
func within(l, ceilings job.Limits) error {
	tops := ceilings.Fields()
	for i, f := range l.Fields() {
		if top := *tops[i].Value; top != job.Unlimited && (*f.Value == job.Unlimited || *f.Value > top) {
			return fmt.Errorf("%s is raised", f.Name)
		}
	}
	return nil
}

// query returns what the operator's rules see of the request. It contains neither the code nor the input.
func (c *chain) query() starlark.Query {
	q := starlark.Query{
		Tool: c.r.Tool, Principal: c.r.Principal, Session: c.r.Session, Repo: c.r.Repo, Runtime: c.r.Runtime,
		Executable: c.choice.Executable, Path: c.choice.Real, Args: c.r.Args, Dir: c.dir, Code: c.code,
		Stdin: c.stdin, StdinBytes: len(c.r.Stdin), Env: c.variables().names(), Workspace: c.access().String(), Profile: c.repo.Profile,
		Network: c.network, Limits: c.limits,
	}
	if c.isCommand() {
		q.Executable, q.Args = c.r.Command[0], c.r.Command[1:]
	}
	if c.r.Streamed {
		q.StdinBytes = -1
	}
	if c.r.Code != nil {
		q.CodeBytes = len(*c.r.Code)
	}
	return q
}

// maxSaid bounds what a reason has of somebody else's text, in bytes.
const maxSaid = 300
