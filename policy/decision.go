package policy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"corral/job"
	"corral/policy/ask"
)

// decide takes the steps until one of them denies, and calls taken after each one, with its reasons against the request.
func (c *chain) decide(ctx context.Context, taken func(s step, against []string)) job.Decision {
	for _, s := range steps {
		against := s.against(ctx, c)
		taken(s, against)
		if len(against) > 0 {
			return c.decision(s.rule, against)
		}
	}
	return c.decision("", nil)
}

// decision builds the result of the chain. A rule of "" allows the request.
func (c *chain) decision(rule string, reasons []string) job.Decision {
	d := job.Decision{Rule: rule, Reasons: reasons, Code: c.code, Args: hexSum(c.argsEncoding()), Stdin: c.stdin}
	switch {
	case rule != "":
	case c.missing != "":
		d.Missing = c.missing
	default:
		d.Spec = c.spec()
	}
	d.Spec.Secrets = c.p.secrets // also of a denied request, whose program the audit log may have
	d.Hash = hexSum(c.identity(&d).encode())
	return d
}

// spec builds the job. It runs after the last step because some programs are sized by the memory limit, which rules
// can lower.
func (c *chain) spec() job.Spec {
	if c.isStarlark() {
		return c.starlarkSpec()
	}
	c.choice.Memory, c.choice.Shared = c.limits.Memory, c.r.Share
	argv, files, env := c.r.Command, []job.File(nil), []string(nil)
	if !c.isCommand() {
		argv, files, env = c.choice.Plan(c.r.Code, c.r.Args)
	}
	c.env = c.environment(env)
	s := job.Spec{
		Repo: c.repo.Path, Dir: c.dir, Args: argv, Env: c.env.list(), Files: files, Limits: c.limits,
		Profile: c.repo.Profile, Workspace: c.workspace, ReadOnly: c.r.ReadOnly, Bounds: c.r.Bounds, Terminal: c.r.Terminal, Tool: c.r.Builtin,
		Network: c.network, SessionNetwork: ask.Common(c.p.rules.Network.ofSession(c.r), c.r.SessionNetwork),
	}
	if s.Workspace == job.Direct && !s.ReadOnly {
		s.Protect = c.protect()
	}
	return s
}

// version begins each encoding. It must change if the encoding of existing requests changes, but not if fields are
// added that only new kinds of requests have.
const version = "corral decision 3"

// An identity is the input of a decision's hash, in the order in which it is encoded. It leaves out the values of
// variables, except those that the client sets, and whatever differs between two equal requests (their ids and
// sessions).
type identity struct {
	version    string
	principal  string
	repo       string   // id of the repository
	path       string   // path of the repository
	workspace  string   // that applies; "" if the repository is unknown
	profile    string   // system call profile
	rootfs     string   // see Rules
	runtime    string   // as requested
	executable string   // as requested
	program    string   // that was chosen; "" if the chain ended earlier, or no program was found
	real       string   // program with its symbolic links resolved
	missing    string   // why no program was found
	hasCode    bool     // whether there is code
	code       string   // SHA-256 of the code
	args       []string // as requested
	stdin      string   // SHA-256 of the input, "" without input, or job.StdinStreamed
	env        []string // names, sorted; none if the chain ended earlier
	dir        string   // as requested
	asked      job.Limits
	limits     job.Limits // that apply; zero if the chain ended earlier
	rule       string     // that denied the request, "" if it is allowed
	reasons    []string   // why it was denied
	more       extra
}

// extra holds fields that only some requests have. None of them is encoded if all are empty.
type extra struct {
	command   []string
	env       []string // the client's variables: name, "set" or "unset", and value of each
	rows      int64    // of the terminal
	cols      int64
	workspace string // as requested, "" if not
	protect   string // that applies, "" if none
	root      int64  // 1 if the request runs in its session's own root file system, 2 if it shares its home directory and /tmp
	output    int64  // as requested; 0 is not encoded unless builtin is
	builtin   string // program of corral's own; "" is not encoded, unless one of the fields below is
	// Both are encoded if one is not "".
	askedNetwork string // as requested
	network      string // that applies; "" also if the chain ended earlier
}

func (c *chain) extra() extra {
	a := extra{
		command: c.r.Command, rows: int64(c.r.Terminal.Rows), cols: int64(c.r.Terminal.Cols), output: c.r.Output, builtin: string(c.r.Builtin),
	}
	a.askedNetwork, a.network = c.r.Network, c.network
	for _, name := range sortedNames(c.r.Env) {
		if value := c.r.Env[name]; value != nil {
			a.env = append(a.env, name, "set", *value)
		} else {
			a.env = append(a.env, name, "unset", "")
		}
	}
	if c.r.Workspace != nil {
		a.workspace = c.r.Workspace.String()
	}
	if c.r.ReadOnly {
		a.workspace += readOnlyJob
	}
	a.workspace += string(c.r.Bounds)
	if p := c.protect(); p != job.ProtectNone {
		a.protect = p.String()
	}
	switch {
	case c.r.Root:
		a.root = 1
	case c.r.Share:
		a.root = 2
	}
	return a
}

// readOnlyJob follows the requested workspace of a job that may only read it.
const readOnlyJob = ", only read"

func (a extra) encode(b []byte) []byte {
	network := a.askedNetwork != "" || a.network != ""
	builtin := a.builtin != "" || network
	output := a.output != 0 || builtin
	if len(a.command)+len(a.env) == 0 && a.rows == 0 && a.cols == 0 && a.workspace == "" && a.protect == "" && a.root == 0 && !output {
		return b
	}
	b = appendTexts(appendTexts(b, a.command), a.env)
	b = appendNumber(appendNumber(b, a.rows), a.cols)
	b = appendNumber(appendText(appendText(b, a.workspace), a.protect), a.root)
	if output {
		b = appendNumber(b, a.output)
	}
	if builtin {
		b = appendText(b, a.builtin)
	}
	if network {
		b = appendText(appendText(b, a.askedNetwork), a.network)
	}
	return b
}

func (c *chain) identity(d *job.Decision) identity {
	i := identity{
		version: version, principal: c.r.Principal, repo: c.r.Repo, path: c.repo.Path, profile: c.repo.Profile,
		rootfs: c.p.rules.Rootfs, runtime: c.r.Runtime, executable: c.r.Executable, program: c.choice.Path, real: c.choice.Real,
		missing: c.missing, hasCode: c.r.Code != nil, code: c.code, args: c.r.Args, stdin: c.stdin, env: c.variables().names(), dir: c.r.Dir,
		asked: c.r.Limits, limits: c.limits, rule: d.Rule, reasons: d.Reasons, more: c.extra(),
	}
	if c.repo.ID != "" {
		i.workspace = c.access().String()
	}
	return i
}

func (i identity) encode() []byte {
	b := make([]byte, 0, 2<<10)
	for _, s := range []string{
		i.version, i.principal, i.repo, i.path, i.workspace, i.profile, i.rootfs, i.runtime, i.executable, i.program, i.real,
		i.missing,
	} {
		b = appendText(b, s)
	}
	has := int64(0)
	if i.hasCode {
		has = 1
	}
	b = appendText(appendNumber(b, has), i.code)
	b = appendTexts(appendText(appendTexts(b, i.args), i.stdin), i.env)
	b = appendText(b, i.dir)
	b = appendLimits(b, i.asked, 0)
	if i.limits == (job.Limits{}) {
		b = appendNumber(b, 0)
	} else {
		b = appendLimits(appendNumber(b, 1), i.limits, job.Unlimited)
	}
	return i.more.encode(appendTexts(appendText(b, i.rule), i.reasons))
}

// appendLimits encodes limits with their names, without those that have the usual value: 0 of limits that a request asks for, Unlimited
// of those that apply. So a new limit that is usually lifted leaves the encoding of other requests as it is.
func appendLimits(b []byte, l job.Limits, usual int64) []byte {
	for _, f := range l.Fields() {
		if v := *f.Value; v != usual {
			b = appendNumber(appendText(b, f.Name), v)
		}
	}
	return appendText(b, "")
}

func appendNumber(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) }

func appendText(b []byte, s string) []byte { return append(appendNumber(b, int64(len(s))), s...) }

func appendTexts(b []byte, list []string) []byte {
	b = appendNumber(b, int64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}

// argsEncoding returns the encoding that Decision.Args is the hash of.
func (c *chain) argsEncoding() []byte {
	if c.isCommand() {
		return appendTexts(nil, c.r.Command)
	}
	return appendTexts(nil, c.r.Args)
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
