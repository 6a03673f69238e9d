// Package policy decides whether a request may run, and turns it into a job: it maps a request and rules to a
// job.Decision.
//
// A request passes a chain of steps (see Steps) in a fixed order. The first step that denies it ends the chain; the
// decision names that step and its reasons. The last step is the operator's own rules, which see the results of the
// others and can deny the request or lower its limits, but never raise them. Two checks are made elsewhere: the
// supervisor checks that a working directory lies in its repository, on the descriptor it holds, and job.Queue bounds
// the number of concurrent jobs. The supervisor checks everything again against its own configuration, whatever was
// decided here.
//
// A step depends only on the request, on the Rules, and on the programs of this host. A job's environment starts
// empty and contains only variables named by the rules or the runtime.
//
// Each decision has a hash that identifies it and its request in replies, in the audit log and in stored output. It
// is SHA-256 over an encoding that begins with its version, "corral decision 3". A text is encoded as its length in
// eight bytes, big endian, followed by its bytes; a list as its count in eight bytes followed by its texts; a number as eight bytes; a
// boolean as the number 1 or 0; limits as pairs of a name and a number, and an empty name. Fields are encoded in the order of type
// identity. All of them are always present, except that the fields from command on are present only if one of them is not empty, output
// only if it or one after it is, builtin likewise, and the last two, of the network, only if one of them is. No two different requests
// have the same encoding.
//
// A request with a Command passes the same steps. It has no runtime, and its program is looked up in the job's own
// PATH: if the operator has a list of executables, the program must be on it, either by a name that the job's PATH
// finds in the directories of the system and the toolchains, or by its path.
package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"corral/job"
	"corral/policy/network"
	"corral/policy/runtimes"
	"corral/policy/starlark"
)

// Rules define what the operator allows. The zero value allows nothing.
type Rules struct {
	Enabled  bool
	Runtimes []string // permitted runtimes, in display order
	// Executables are the permitted programs, by base name or absolute path; nil permits every runtime's own
	// programs.
	Executables []string
	// RuntimeEnv has variables for one runtime's jobs, by runtime and name. A name that Repo.Env lacks denies the
	// request.
	RuntimeEnv map[string]map[string]string
	Environ    []string // the front-end's own environment, NAME=value; of duplicate names the first applies
	Rootfs     string   // identifies the root file system of jobs
	Repos      []Repo
	Operator   Operator // the operator's own rules; nil means none
	Starlark   Starlark
	Network    Network
}

// A Repo defines what is allowed in one repository.
type Repo struct {
	ID, Path string
	Runtimes []string   // the permitted subset of Rules.Runtimes; nil permits all of them
	Env      []string   // names of front-end variables that a job may have; nil means none
	Defaults job.Limits // for limits that a request leaves at zero
	Ceilings job.Limits // maximum of each limit; a zero field bounds nothing
	// RootWall replaces Ceilings.Wall for a request with a root file system of its own; 0 keeps Ceilings.Wall.
	RootWall time.Duration
	// BackgroundWall does the same for a background request, with either root file system.
	BackgroundWall time.Duration
	// StarlarkWall replaces Ceilings.Wall for a Starlark program and includes job.StarlarkGrace; 0 allows no such
	// program.
	StarlarkWall time.Duration
	Workspace    job.Workspace
	// RootWorkspace replaces Workspace for a request with a root file system of its own, unless Workspace is
	// ReadOnly; nil means Overlay.
	RootWorkspace *job.Workspace
	Protect       job.Protection // the minimum, with Workspace Direct
	Profile       string         // system call profile: "default" or "strict"
	// Network has the hosts that the operator allows, as far as this front-end knows; nil allows none. The supervisor decides by what
	// it knows.
	Network *network.Set
}

// An Operator restricts what the other steps allow; *starlark.File implements it. A verdict that would raise a limit
// denies.
type Operator interface {
	// Decide returns the verdict on q.
	Decide(ctx context.Context, q starlark.Query) starlark.Verdict
}

// Installed finds programs on this host; runtimes.Installed implements it.
type Installed interface {
	// Path returns the PATH of jobs.
	Path() string
	// Caches returns the download caches of package managers that jobs see.
	Caches() []string
	// Choose returns the program that runs code of a runtime: executable, or if that is empty, the first that is installed
	// and allowed. If there is none, missing says why.
	Choose(runtime, executable string, allowed func(name string) bool) (choice runtimes.Choice, missing string)
}

// A Policy decides on requests. It is immutable and may be used by several goroutines at once.
type Policy struct {
	rules     Rules
	installed Installed
	repos     map[string]Repo
	environ   map[string]string
	secrets   []string // see Secrets
}

// Check returns what is wrong with the file of the operator's own rules, or nil.
func (p *Policy) Check() error {
	if f, ok := p.rules.Operator.(interface{ Check() error }); ok {
		return f.Check()
	}
	return nil
}

// New returns the policy of rules, which must not be changed afterwards. The error lists everything that is wrong in
// them.
func New(rules Rules, installed Installed) (*Policy, error) {
	p := &Policy{rules: rules, installed: installed, repos: map[string]Repo{}, environ: map[string]string{}}
	var errs []error
	for _, r := range rules.Repos {
		if p.repos[r.ID].ID != "" || r.ID == "" {
			errs = append(errs, fmt.Errorf("repository %q has a duplicate or empty id", r.ID))
		}
		if !strings.HasPrefix(r.Path, "/") {
			errs = append(errs, fmt.Errorf("repository %q: path %q is not absolute", r.ID, r.Path))
		}
		if err := r.Defaults.Within(r.Ceilings); err != nil {
			errs = append(errs, fmt.Errorf("repository %q: defaults: %w", r.ID, err))
		}
		errs = append(errs, checkNames(r.Env))
		p.repos[r.ID] = r
	}
	for _, values := range rules.RuntimeEnv {
		errs = append(errs, checkNames(slices.Collect(maps.Keys(values))))
	}
	for _, pair := range rules.Environ {
		name, value, ok := strings.Cut(pair, "=")
		if _, twice := p.environ[name]; ok && !twice {
			p.environ[name] = value
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	p.secrets = p.secretValues()
	return p, nil
}

func checkNames(names []string) error {
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("%q is not a valid name of a variable: must not be empty or contain '=' or NUL", name)
		}
	}
	return nil
}

// Repo returns the repository with that id if it exists and is one of principalRepos; nil principalRepos permits all.
func (p *Policy) Repo(principalRepos []string, id string) (Repo, bool) {
	r, ok := p.repos[id]
	if !ok || principalRepos != nil && !slices.Contains(principalRepos, id) {
		return Repo{}, false
	}
	return r, true
}

// Runnable returns the runtimes, in the order of the rules, that some repository allows and that have a permitted
// program on this host.
func (p *Policy) Runnable() []string {
	var list []string
	for _, name := range p.rules.Runtimes {
		allowed := func(r Repo) bool { return r.Runtimes == nil || slices.Contains(r.Runtimes, name) }
		if slices.ContainsFunc(p.rules.Repos, allowed) && p.has(name) {
			list = append(list, name)
		}
	}
	return list
}

// Decide implements job.Policy. Failures deny the request; the error is always nil.
func (p *Policy) Decide(ctx context.Context, r *job.Request) (job.Decision, error) {
	return p.chain(r).decide(ctx, func(step, []string) {}), nil
}
