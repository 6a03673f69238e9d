package starlark

import (
	"errors"
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"corral/job"
)

// A unit is how the rules write one limit.
type unit struct {
	field string // of job.Limits.Fields
	name  string // in the rules
	size  int64  // of one, as the field counts
}

// units has each limit once.
var units = []unit{
	{"memory", "memory_mb", 1 << 20},
	{"cpus", "milli_cpus", 1},
	{"pids", "pids", 1},
	{"timeout", "timeout_ms", 1_000_000},
	{"tmp", "tmp_mb", 1 << 20},
	{"tmp inodes", "tmp_inodes", 1},
	{"disk", "disk_mb", 1 << 20},
	{"inodes", "inodes", 1},
	{"file size", "file_size_mb", 1 << 20},
	{"open files", "open_files", 1},
}

// fieldOf returns the limit of a unit.
func fieldOf(l *job.Limits, u unit) job.Field {
	fields := l.Fields()
	return fields[slices.IndexFunc(fields[:], func(f job.Field) bool { return f.Name == u.field })]
}

// A request is a Query as the rules see it.
type request struct{ q *Query }

// An attribute is one that a request has.
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

// attributes are those of a request, without its limits.
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
}

// Attr returns what request.name is. A limit is a whole number of its unit, rounded down, and None if it is unlimited.
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

// AttrNames are all of them, sorted.
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

// A verdict is what decide returns: allow() is the zero value.
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

// on is the verdict on a request with these limits.
func (v *verdict) on(now job.Limits) Verdict {
	if v.denied {
		return Verdict{Denied: true, Reason: v.reason}
	}
	for _, u := range units {
		asked, has := *fieldOf(&v.limits, u).Value, *fieldOf(&now, u).Value
		if asked > 0 && has != job.Unlimited && asked > has {
			return failed(fmt.Sprintf("limit(%s = %d) would raise it: it is %d", u.name, asked/u.size, has/u.size))
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
		return nil, errors.New("deny: the reason is empty")
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
		return nil, errors.New("limit: limits are named, as in limit(timeout_ms = 5000)")
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
		return nil, errors.New("limit: no limit is named")
	}
	return v, nil
}

// set reads a value of the rules into a limit.
func (u unit) set(l *job.Limits, value starlark.Value) error {
	whole, ok := value.(starlark.Int)
	if !ok {
		return fmt.Errorf("%s is a whole number, not %s", u.name, value.Type())
	}
	f := fieldOf(l, u)
	least := (f.Min + u.size - 1) / u.size
	n, ok := whole.Int64()
	if !ok || n < least || n > f.Max/u.size {
		return fmt.Errorf("%s = %s is not between %d and %d", u.name, oneLine(whole.String()), least, f.Max/u.size)
	}
	*f.Value = n * u.size
	return nil
}
