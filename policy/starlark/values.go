package starlark

import (
	"errors"
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"corral/job"
)

// A unit defines the name and the unit of a limit in the rules.
type unit struct {
	field string // name in job.Limits.Fields
	name  string // name in the rules
	size  int64  // value of one unit in the field
}

// units has one entry per limit.
var units = unitsOf(new(job.Limits))

func unitsOf(l *job.Limits) []unit {
	var list []unit
	for _, f := range l.Fields() {
		u := unit{f.Name, f.Key(), 1}
		switch f.Unit {
		case job.Bytes:
			u.name, u.size = u.name+"_mb", 1<<20
		case job.CPUs:
			u.name = "milli_" + u.name
		case job.Time:
			u.name, u.size = u.name+"_ms", 1_000_000
		case job.Count:
		}
		list = append(list, u)
	}
	return list
}

// fieldOf returns the field of a unit's limit.
func fieldOf(l *job.Limits, u unit) job.Field {
	fields := l.Fields()
	return fields[slices.IndexFunc(fields[:], func(f job.Field) bool { return f.Name == u.field })]
}

// A request is the value that the rules get for a Query.
type request struct{ q *Query }

// An attribute is an attribute of a request.
type attribute struct {
	name string
	get  func(q *Query) starlark.Value
}

func text(get func(*Query) string) func(*Query) starlark.Value {
	return func(q *Query) starlark.Value { return starlark.String(get(q)) }
}

func texts(get func(*Query) []string) func(*Query) starlark.Value {
	return func(q *Query) starlark.Value {
		var list []starlark.Value
		for _, s := range get(q) {
			list = append(list, starlark.String(s))
		}
		l := starlark.NewList(list)
		l.Freeze()
		return l
	}
}

func number(get func(*Query) int) func(*Query) starlark.Value {
	return func(q *Query) starlark.Value { return starlark.MakeInt(get(q)) }
}

// attributes are the attributes of a request, except its limits.
var attributes = []attribute{
	{"tool", text(func(q *Query) string { return q.Tool })},
	{"principal", text(func(q *Query) string { return q.Principal })},
	{"session", text(func(q *Query) string { return q.Session })},
	{"repo", text(func(q *Query) string { return q.Repo })},
	{"runtime", text(func(q *Query) string { return q.Runtime })},
	{"executable", text(func(q *Query) string { return q.Executable })},
	{"executable_path", text(func(q *Query) string { return q.Path })},
	{"args", texts(func(q *Query) []string { return q.Args })},
	{"cwd", text(func(q *Query) string { return q.Dir })},
	{"code_sha256", text(func(q *Query) string { return q.Code })},
	{"code_bytes", number(func(q *Query) int { return q.CodeBytes })},
	{"stdin_sha256", text(func(q *Query) string { return q.Stdin })},
	{"stdin_bytes", number(func(q *Query) int { return q.StdinBytes })},
	{"env", texts(func(q *Query) []string { return q.Env })},
	{"workspace", text(func(q *Query) string { return q.Workspace })},
	{"profile", text(func(q *Query) string { return q.Profile })},
	{"network", text(func(q *Query) string { return q.Network })},
}

// Attr returns the value of request.name. A limit is an integer in its unit, rounded down, or None if it is unlimited.
func (r *request) Attr(name string) (starlark.Value, error) {
	for _, a := range attributes {
		if a.name == name {
			return a.get(r.q), nil
		}
	}
	for _, u := range units {
		if u.name != name {
			continue
		}
		v := *fieldOf(&r.q.Limits, u).Value
		if v == job.Unlimited {
			return starlark.None, nil
		}
		return starlark.MakeInt64(v / u.size), nil
	}
	return nil, nil
}

// AttrNames returns the names of all attributes, sorted.
func (r *request) AttrNames() []string {
	var names []string
	for _, a := range attributes {
		names = append(names, a.name)
	}
	for _, u := range units {
		names = append(names, u.name)
	}
	slices.Sort(names)
	return names
}

func (r *request) String() string        { return "request" }
func (r *request) Type() string          { return "request" }
func (r *request) Freeze()               {}
func (r *request) Truth() starlark.Bool  { return true }
func (r *request) Hash() (uint32, error) { return 0, errors.New("a request is not hashable") }

// A verdict is a value that decide returns. The zero value is that of allow().
type verdict struct {
	denied bool
	reason string
	limits job.Limits
}

func (v *verdict) String() string        { return "verdict" }
func (v *verdict) Type() string          { return "verdict" }
func (v *verdict) Freeze()               {}
func (v *verdict) Truth() starlark.Bool  { return true }
func (v *verdict) Hash() (uint32, error) { return 0, errors.New("a verdict is not hashable") }

// on returns the verdict for a request with the limits now. It fails if a limit would be raised.
func (v *verdict) on(now job.Limits) Verdict {
	if v.denied {
		return Verdict{Denied: true, Reason: v.reason}
	}
	for _, u := range units {
		asked, has := *fieldOf(&v.limits, u).Value, *fieldOf(&now, u).Value
		if asked > 0 && has != job.Unlimited && asked > has {
			return failed(fmt.Sprintf("limit(%s = %d) cannot raise the limit, which is %d", u.name, asked/u.size, has/u.size))
		}
	}
	return Verdict{Limits: v.limits}
}

func allow(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if err := starlark.UnpackArgs(b.Name(), args, kwargs); err != nil {
		return nil, err
	}
	return &verdict{}, nil
}

func deny(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var reason string
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "reason", &reason); err != nil {
		return nil, err
	}
	if reason = oneLine(reason); reason == "" {
		return nil, errors.New("deny: the reason must not be empty")
	}
	return &verdict{denied: true, reason: reason}, nil
}

func limit(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	values := make([]starlark.Value, len(units))
	var pairs []any
	for i, u := range units {
		pairs = append(pairs, u.name+"?", &values[i])
	}
	if len(args) > 0 {
		return nil, errors.New("limit: use named arguments, as in limit(timeout_ms = 5000)")
	}
	if err := starlark.UnpackArgs(b.Name(), nil, kwargs, pairs...); err != nil {
		return nil, err
	}
	v := &verdict{}
	for i, u := range units {
		if values[i] == nil {
			continue
		}
		if err := u.set(&v.limits, values[i]); err != nil {
			return nil, fmt.Errorf("limit: %w", err)
		}
	}
	if v.limits == (job.Limits{}) {
		return nil, errors.New("limit: at least one limit is required")
	}
	return v, nil
}

// set sets a limit to a value from the rules.
func (u unit) set(l *job.Limits, value starlark.Value) error {
	number, ok := value.(starlark.Int)
	if !ok {
		return fmt.Errorf("%s must be an integer, got %s", u.name, value.Type())
	}
	f := fieldOf(l, u)
	minimum := (f.Min + u.size - 1) / u.size
	n, ok := number.Int64()
	if !ok || n < minimum || n > f.Max/u.size {
		return fmt.Errorf("%s must be between %d and %d, got %s", u.name, minimum, f.Max/u.size, oneLine(number.String()))
	}
	*f.Value = n * u.size
	return nil
}
