// Package policy decides what may run, and as what: a request and the rules in, a job.Decision out.
//
// The governance is a chain of steps (see Steps) in a fixed order: the first that is against a request ends it, and names
// itself and its reasons in the decision. The last step is the operator's own rules, which see what the others made of the
// request and can deny it or lower its limits, never more. What cannot be decided here is not: that a working directory
// lies in its repository is the supervisor's to see, on the descriptor it holds; that there is room for one more job is
// job.Queue's. The supervisor checks all of it again against its own configuration, whatever was decided here.
//
// Every step is a function of the request, of the Rules, and of which programs this host has. The environment of a job is
// built from nothing: what is not named by the rules or the runtime is not in it.
//
// A decision has a hash, which identifies it and the request it is about in replies, in the audit log and in stored
// output. It is SHA-256 over an encoding that begins with its version, "corral decision 1". Texts follow as eight bytes of
// their length, big endian, and their bytes; lists as eight bytes of their count and their texts; numbers as eight bytes;
// yes and no as the numbers 1 and 0. The order is that of the fields of type identity. All is there, always, but for the
// fields from command on, of which all are there if one is not empty, and of them the last only if it is not 0: no two
// different requests are encoded alike.
//
// A request with a Command goes through the same steps. It has no runtime, and its program is looked for in the job's own
// PATH: where the operator has a list of executables, the program must be on it by a name that the job's PATH finds in
// the system's and the toolchains' directories, or by its path.
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
	"corral/lang"
	"corral/starlark"
)

// Rules are what the operator allows. The zero value allows nothing.
type Rules struct {
	Enabled  bool
	Runtimes []string // that may be used, in the order in which they are listed
	// Executables are the programs that may be run, by base name, or by absolute path: nil is what each runtime has.
	Executables []string
	// RuntimeEnv has variables of one runtime's jobs, by runtime and name. Those that Repo.Env does not have deny.
	RuntimeEnv map[string]map[string]string
	Environ    []string // the front-end's own environment, NAME=value; of equal names the first counts
	Rootfs     string   // what identifies the root file system that jobs see
	Repos      []Repo
	Operator   Operator // the operator's own rules; nil is none
	Starlark   Starlark
}

// A Repo is what holds in one repository.
type Repo struct {
	ID, Path string
	Runtimes []string   // of Rules.Runtimes, those that may be used here; nil is all of them
	Env      []string   // names of the front-end's variables that a job may have; nil is none
	Defaults job.Limits // for what a request does not ask
	Ceilings job.Limits // the most that can be asked for; a zero field bounds nothing
	// RootWall is Ceilings.Wall for a request with a root file system of its own; 0 is that itself.
	RootWall time.Duration
	// BackgroundWall is the same for a request that goes on in the background.
	BackgroundWall time.Duration
	// StarlarkWall is Ceilings.Wall for a program in Starlark, job.StarlarkGrace included: 0 allows none.
	StarlarkWall time.Duration
	Workspace    job.Workspace
	// RootWorkspace is Workspace for a request with a root file system of its own; nil is Overlay, where Workspace is not
	// ReadOnly.
	RootWorkspace *job.Workspace
	Protect       job.Protection // the least of it, with Workspace Direct
	Profile       string         // of system calls: "default" or "strict"
}

// An Operator narrows what the other steps allow; *starlark.File is one. A verdict that would widen it denies.
type Operator interface {
	Decide(ctx context.Context, q starlark.Query) starlark.Verdict
}

// Installed are the programs of this host; lang.Installed is one.
type Installed interface {
	Path() string
	Choose(runtime, executable string, allowed func(name string) bool) (choice lang.Choice, missing string)
}

// A Policy decides. It may be asked by several goroutines at once, and does not change.
type Policy struct {
	rules     Rules
	installed Installed
	repos     map[string]Repo
	environ   map[string]string
}

// New returns the policy of rules, which must not be changed afterwards. The error names all that is wrong in them.
func New(rules Rules, installed Installed) (*Policy, error) {
	p := &Policy{rules: rules, installed: installed, repos: map[string]Repo{}, environ: map[string]string{}}
	var errs []error
	for _, r := range rules.Repos {
		if p.repos[r.ID].ID != "" || r.ID == "" {
			errs = append(errs, fmt.Errorf("repository %q is there twice, or has no id", r.ID))
		}
		if !strings.HasPrefix(r.Path, "/") {
			errs = append(errs, fmt.Errorf("repository %q: %q is no absolute path", r.ID, r.Path))
		}
		if err := r.Defaults.Within(r.Ceilings); err != nil {
			errs = append(errs, fmt.Errorf("repository %q: its defaults: %w", r.ID, err))
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
	return p, nil
}

func checkNames(names []string) error {
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("%q is no name of a variable", name)
		}
	}
	return nil
}

// Repo returns the repository of that id, if there is one and it is among those that a principal may use; nil is all.
func (p *Policy) Repo(principalRepos []string, id string) (Repo, bool) {
	r, ok := p.repos[id]
	if !ok || principalRepos != nil && !slices.Contains(principalRepos, id) {
		return Repo{}, false
	}
	return r, true
}

// Runnable returns the runtimes, in the order of the rules, that some repository allows and for which this host has a program that
// may be used.
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

// Decide implements job.Policy. There is no failure of its own: what goes wrong denies. The error is always nil.
func (p *Policy) Decide(ctx context.Context, r *job.Request) (job.Decision, error) {
	c := p.chain(r)
	for _, s := range steps {
		if reasons := s.against(ctx, c); len(reasons) > 0 {
			return c.decision(s.rule, reasons), nil
		}
	}
	return c.decision("", nil), nil
}
