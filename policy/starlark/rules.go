package starlark

import (
	"context"
	"fmt"

	"go.starlark.net/starlark"

	"corral/job"
)

// A Query is the part of a request that the rules see.
type Query struct {
	Tool, Principal, Session, Repo, Runtime string
	Executable                              string   // program chosen, or named by the command; "" if none is installed
	Path                                    string   // of the program; "" for a command
	Args                                    []string // must not be changed during Decide
	Dir                                     string   // relative to the repository; "" is its root
	Code                                    string   // SHA-256 in hexadecimal, "" without code
	Stdin                                   string   // likewise; or job.StdinStreamed, with StdinBytes -1
	CodeBytes, StdinBytes                   int
	Env                                     []string // names of the job's variables; must not be changed during Decide
	Workspace, Profile                      string
	Network                                 string     // what the job asks for of the network, see job.Spec
	Limits                                  job.Limits // in effect unless lowered
}

// A Verdict is the decision of the rules.
type Verdict struct {
	Denied bool
	Reason string     // for the caller; one line of at most MaxReason bytes, "" if the request is not denied
	Failed bool       // the rules failed, hence the denial
	Limits job.Limits // lowered limits; a zero field leaves a limit as it is. None exceeds the query's
}

// failed returns the verdict of rules that failed.
func failed(what string) Verdict {
	return Verdict{Denied: true, Failed: true, Reason: oneLine("The operator's rules failed: " + what)}
}

// Rules are compiled rules. They are safe for concurrent use.
type Rules struct {
	decide *starlark.Function
	guard  guard
}

// Parse compiles source and executes its top-level statements. name identifies the source in errors, which are one line.
func Parse(name string, source []byte) (*Rules, error) {
	if len(source) > MaxSource {
		return nil, fmt.Errorf("%s: the source has %d bytes, at most %d are accepted", name, len(source), MaxSource)
	}
	r := &Rules{guard: newGuard()}
	predeclared := starlark.StringDict{
		"allow": starlark.NewBuiltin("allow", allow),
		"deny":  starlark.NewBuiltin("deny", deny),
		"limit": starlark.NewBuiltin("limit", limit),
	}
	globals, err := r.guard.run(context.Background(), MaxLoadSteps, func(thread *starlark.Thread) (starlark.Value, error) {
		_, program, err := starlark.SourceProgramOptions(dialect(), name, source, predeclared.Has)
		if err != nil {
			return nil, err
		}
		globals, err := program.Init(thread, predeclared)
		if err != nil {
			return nil, err
		}
		globals.Freeze() // many threads read them from now on
		if globals["decide"] == nil {
			return starlark.None, nil
		}
		return globals["decide"], nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s", describe(err))
	}
	decide, ok := globals.(*starlark.Function)
	if !ok || decide.NumParams() == 0 {
		return nil, fmt.Errorf("%s: missing function decide(request)", name)
	}
	r.decide = decide
	return r, nil
}

// Decide evaluates the rules. It returns when they have decided, failed, or run out of time.
func (r *Rules) Decide(ctx context.Context, q Query) Verdict {
	value, err := r.guard.run(ctx, MaxSteps, func(thread *starlark.Thread) (starlark.Value, error) {
		return starlark.Call(thread, r.decide, starlark.Tuple{&request{q: &q}}, nil)
	})
	if err != nil {
		return failed(describe(err))
	}
	v, ok := value.(*verdict)
	if !ok {
		return failed(fmt.Sprintf("decide must return allow(), deny(reason) or limit(...), got %s", value.Type()))
	}
	return v.on(q.Limits)
}
