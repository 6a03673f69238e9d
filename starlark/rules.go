package starlark

import (
	"context"
	"fmt"

	"go.starlark.net/starlark"

	"corral/job"
)

// A Query is what the rules see of a request.
type Query struct {
	Tool, Principal, Session, Repo, Runtime string
	Executable                              string   // name of the program that was chosen, or as a command asks for it; "" if there is none here
	Path                                    string   // of that program; "" of a command
	Args                                    []string // not to be changed during Decide
	Dir                                     string   // relative to the repository; "" is the repository
	Code                                    string   // SHA-256 in hex, "" without code
	Stdin                                   string   // the same of the input, or job.StdinStreamed, of which StdinBytes is -1
	CodeBytes, StdinBytes                   int
	Env                                     []string // names of the job's variables; not to be changed during Decide
	Workspace, Profile                      string
	Limits                                  job.Limits // that hold unless the rules lower them
}

// A Verdict is what the rules say.
type Verdict struct {
	Denied bool
	Reason string     // for who asked, "" if it is not denied; one line of at most MaxReason bytes
	Failed bool       // it is denied because the rules failed
	Limits job.Limits // what is lowered; a zero field is not. None is above the query's
}

// failed is the verdict of rules that have none.
func failed(what string) Verdict {
	return Verdict{Denied: true, Failed: true, Reason: oneLine("The operator's rules failed: " + what)}
}

// Rules are compiled, and can be asked by several goroutines at once.
type Rules struct {
	decide *starlark.Function
	guard  guard
}

// Parse compiles source and runs what stands outside of functions. name is what errors call it. They are one line.
func Parse(name string, source []byte) (*Rules, error) {
	if len(source) > MaxSource {
		return nil, fmt.Errorf("%s: %d bytes are more than %d", name, len(source), MaxSource)
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
		globals.Freeze() // from here on many threads read them
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
		return nil, fmt.Errorf("%s: there is no function decide(request)", name)
	}
	r.decide = decide
	return r, nil
}

// Decide asks the rules. It returns when they have answered, or failed to in time.
func (r *Rules) Decide(ctx context.Context, q Query) Verdict {
	value, err := r.guard.run(ctx, MaxSteps, func(thread *starlark.Thread) (starlark.Value, error) {
		return starlark.Call(thread, r.decide, starlark.Tuple{&request{q: &q}}, nil)
	})
	if err != nil {
		return failed(describe(err))
	}
	v, ok := value.(*verdict)
	if !ok {
		return failed(fmt.Sprintf("decide returned %s, which is none of allow(), deny(reason) and limit(...)", value.Type()))
	}
	return v.on(q.Limits)
}
