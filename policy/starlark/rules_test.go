package starlark

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/job"
)

func query() Query {
	return Query{
		Tool: "runtime_execute", Principal: "user:ada", Session: "s1", Repo: "app", Runtime: "python",
		Executable: "python3", Path: "/usr/bin/python3", Args: []string{"-c", "print(1)"}, Dir: "src",
		Code: strings.Repeat("ab", 32), Stdin: strings.Repeat("cd", 32), CodeBytes: 7, StdinBytes: 3, Env: []string{"HOME", "PATH"},
		Workspace: "direct", Profile: "default", Network: "npm",
		Limits: job.Limits{Memory: 512 << 20, MilliCPUs: job.Unlimited, PIDs: 64, Wall: time.Minute, Tmp: 100<<20 + 1},
	}
}

func parse(t testing.TB, source string) *Rules {
	t.Helper()
	r, err := Parse("rules.star", []byte(source))
	if err != nil {
		t.Fatalf("%v in\n%s", err, source)
	}
	return r
}

// body returns a decide function with the given statements, separated by semicolons.
func body(statements string) string {
	return "def decide(request):\n  " + strings.ReplaceAll(statements, "; ", "\n  ") + "\n"
}

func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		body string
		want Verdict
	}{
		{"return allow()", Verdict{}},
		{`return deny("not now")`, Verdict{Denied: true, Reason: "not now"}},
		{`return deny(reason = "not now")`, Verdict{Denied: true, Reason: "not now"}},
		{`return deny(" two\nlines\x00 ")`, Verdict{Denied: true, Reason: "two lines"}},
		{"return limit(timeout_ms = 5000)", Verdict{Limits: job.Limits{Wall: 5 * time.Second}}},
		{"return limit(timeout_ms = 60000, memory_mb = 512)", Verdict{Limits: job.Limits{Wall: time.Minute, Memory: 512 << 20}}},
		{
			"return limit(milli_cpus = 500, pids = 2, tmp_mb = 1, tmp_inodes = 16)",
			Verdict{Limits: job.Limits{MilliCPUs: 500, PIDs: 2, Tmp: 1 << 20, TmpInodes: 16}},
		},
		{"return limit(tmp_mb = request.tmp_mb)", Verdict{Limits: job.Limits{Tmp: 100 << 20}}},
	} {
		q := query()
		q.Limits.TmpInodes = job.Defaults().TmpInodes
		if got := parse(t, body(tt.body)).Decide(t.Context(), q); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.body, got, tt.want)
		}
	}
}

// TestLimits checks that each limit of a job has a name in the rules, which can read and lower it.
func TestLimits(t *testing.T) {
	var q Query
	if len(units) != job.NumLimits {
		t.Errorf("%d names for %d limits", len(units), job.NumLimits)
	}
	for _, u := range units {
		*fieldOf(&q.Limits, u).Value = 64 * u.size
	}
	for _, u := range units {
		source := body(fmt.Sprintf("return limit(%s = request.%s - 1) if request.%s == 64 else None", u.name, u.name, u.name))
		got := parse(t, source).Decide(t.Context(), q)
		want := job.Limits{}
		*fieldOf(&want, u).Value = 63 * u.size
		if got != (Verdict{Limits: want}) {
			t.Errorf("%s: %+v", u.name, got)
		}
		if !slices.Contains([]bool{true, false}, fieldOf(&want, u).Liftable) || !fieldOf(&want, u).Liftable {
			continue
		}
		q := q
		*fieldOf(&q.Limits, u).Value = job.Unlimited
		source = body(fmt.Sprintf("return limit(%s = 1000) if request.%s == None else allow()", u.name, u.name))
		if got := parse(t, source).Decide(t.Context(), q); *fieldOf(&got.Limits, u).Value != 1000*u.size {
			t.Errorf("%s, unlimited: %+v", u.name, got)
		}
	}
}

// TestRequest checks that each attribute of a request has the value of the query.
func TestRequest(t *testing.T) {
	want := map[string]string{
		"tool": `"runtime_execute"`, "principal": `"user:ada"`, "session": `"s1"`, "repo": `"app"`, "runtime": `"python"`,
		"executable": `"python3"`, "executable_path": `"/usr/bin/python3"`, "args": `["-c", "print(1)"]`, "cwd": `"src"`,
		"code_sha256": `"` + strings.Repeat("ab", 32) + `"`, "code_bytes": "7", "stdin_sha256": `"` + strings.Repeat("cd", 32) + `"`, "stdin_bytes": "3", "env": `["HOME", "PATH"]`,
		"workspace": `"direct"`, "profile": `"default"`, "network": `"npm"`,
		"memory_mb": "512", "milli_cpus": "None", "pids": "64", "timeout_ms": "60000", "tmp_mb": "100",
	}
	for _, u := range units {
		if want[u.name] == "" {
			want[u.name] = "0" // query sets no other limit
		}
	}
	if names := (&request{}).AttrNames(); len(names) != len(want) {
		t.Errorf("%d attributes: %q", len(names), names)
	}
	for name, value := range want {
		got := parse(t, body("return deny(repr(request."+name+"))")).Decide(t.Context(), query())
		if got.Reason != value {
			t.Errorf("%s: %s, want %s", name, got.Reason, value)
		}
	}
}

// TestFails checks that each failure denies the request, with a reason that says the rules failed.
func TestFails(t *testing.T) {
	for _, tt := range []struct{ body, want string }{
		{"return None", "decide must return allow(), deny(reason) or limit(...), got NoneType"},
		{"pass", "or limit(...), got NoneType"},
		{"return True", "or limit(...), got bool"},
		{"return allow", "or limit(...), got builtin_function_or_method"},
		{"return [allow()]", "or limit(...), got list"},
		{"return 1 // 0", "rules.star:2:12: floored division by zero"},
		{"return {}[1]", "rules.star:2:12: key 1 not in dict"},
		{`fail("no")`, "rules.star:2:7: fail: no"},
		{"return deny()", "deny: missing argument for reason"},
		{`return deny("")`, "deny: the reason must not be empty"},
		{`return deny("\n")`, "deny: the reason must not be empty"},
		{"return deny(7)", "deny: for parameter reason: got int, want string"},
		{"return allow(1)", "allow: got 1 arguments, want at most 0"},
		{"return limit()", "limit: at least one limit is required"},
		{"return limit(5)", "limit: use named arguments"},
		{"return limit(timeout = 5)", `unexpected keyword argument "timeout"`},
		{"return limit(timeout_ms = 60001)", "limit(timeout_ms = 60001) cannot raise the limit, which is 60000"},
		{"return limit(memory_mb = 513)", "limit(memory_mb = 513) cannot raise the limit, which is 512"},
		{"return limit(timeout_ms = 5, memory_mb = 513)", "cannot raise the limit"},
		{"return limit(tmp_mb = 101)", "cannot raise the limit"},
		{"return limit(timeout_ms = 0)", "timeout_ms must be between 1 and"},
		{"return limit(timeout_ms = -1)", "timeout_ms must be between 1 and"},
		{"return limit(memory_mb = 3)", "memory_mb must be between 4 and"},
		{"return limit(pids = 1 << 63)", "pids must be between"},
		{"return limit(memory_mb = 1 << 44)", "memory_mb must be between"},
		{"return limit(timeout_ms = 5.5)", "timeout_ms must be an integer, got float"},
		{"return limit(timeout_ms = True)", "timeout_ms must be an integer, got bool"},
		{"return limit(timeout_ms = None)", "timeout_ms must be an integer, got NoneType"},
		{"return limit(milli_cpus = min(request.milli_cpus, 5))", "not implemented"},
		{"while True: pass", "too many steps"},
		{"for i in range(1 << 40): pass", "too many steps"},
		{"return decide(request)", "function decide called recursively"},
		{"return request.code", "request has no .code field or method"},
		{`request.repo = "other"; return allow()`, "can't assign to .repo field of request"},
		{`request.args.append("x"); return allow()`, "cannot append to frozen list"},
		{"return {request: 1}", "not hashable"},
		{"return open('/etc/passwd')", ""},
	} {
		r, err := Parse("rules.star", []byte(body(tt.body)))
		if tt.want == "" {
			if err == nil {
				t.Errorf("%s: compiled", tt.body)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.body, err)
			continue
		}
		got := r.Decide(t.Context(), query())
		if !got.Denied || !got.Failed || got.Limits != (job.Limits{}) ||
			!strings.HasPrefix(got.Reason, "The operator's rules failed: ") || !strings.Contains(got.Reason, tt.want) {
			t.Errorf("%s: %+v, want %q", tt.body, got, tt.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ name, source, want string }{
		{"nothing", "", "rules.star: missing function decide(request)"},
		{"another name", "def decides(r): return allow()", "missing function decide"},
		{"no function", "decide = 1", "missing function decide"},
		{"built in", "decide = allow", "missing function decide"},
		{"no parameter", "def decide(): return allow()", "missing function decide"},
		{"syntax", "def decide(request)\n  return", "rules.star:2:1: got newline, want ':'"},
		{"unknown name", "def decide(request): return allowed()", "rules.star:1:29: undefined: allowed"},
		{"load", `load("other.star", "x")` + "\ndef decide(request): return allow()", "load not implemented"},
		{"error at the top", "x = 1 // 0\ndef decide(request): return allow()", "rules.star:1:7: floored division by zero"},
		{"no end", "while True: pass", "too many steps"},
		{"too long", strings.Repeat("#\n", MaxSource), "at most 65536 are accepted"},
		{"no text", "def decide(request): return deny('\xff')", ""},
	} {
		r, err := Parse("rules.star", []byte(tt.source))
		if tt.want == "" {
			if err == nil && r.Decide(t.Context(), query()) == (Verdict{}) {
				t.Errorf("%s: allows", tt.name)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestParserStack checks that no source of MaxSource exhausts the stack of a goroutine, which would end the process.
func TestParserStack(t *testing.T) {
	for _, unit := range []string{"(", "[", "{1:", "-", "not ", "lambda: ", "f(", "1+", "x[", "a.", "[x for x in ", "1 if 1 else ", "if x:\n"} {
		source := "x = " + strings.Repeat(unit, (MaxSource-8)/len(unit)) + "1"
		if unit == "if x:\n" {
			var b strings.Builder
			for indent := 0; b.Len()+indent+8 < MaxSource; indent++ {
				b.WriteString(strings.Repeat(" ", indent) + "if 1:\n")
			}
			source = b.String()
		}
		if _, err := Parse("rules.star", []byte(source)); err == nil {
			t.Errorf("%q repeated was accepted", unit)
		}
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := parse(t, body("while True: pass")).Decide(ctx, query()); !got.Failed {
		t.Errorf("%+v", got)
	}
}

// TestStateless checks that a decision leaves no state for the next one.
func TestStateless(t *testing.T) {
	got := parse(t, "count = []\n"+body("count.append(1); return allow()")).Decide(t.Context(), query())
	if !got.Failed || !strings.Contains(got.Reason, "cannot append to frozen list") {
		t.Errorf("%+v", got)
	}
}

func TestParallel(t *testing.T) {
	r := parse(t, "names = {'app': 1}\n"+body("print(request); return limit(pids = 5) if request.repo in names else deny(request.repo)"))
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			q, want := query(), Verdict{Limits: job.Limits{PIDs: 5}}
			if i%2 == 0 {
				q.Repo = fmt.Sprint("r", i)
				want = Verdict{Denied: true, Reason: q.Repo}
			}
			for range 50 {
				if got := r.Decide(t.Context(), q); got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
		})
	}
	all.Wait()
}

// TestNoText checks that the rules cannot reach the text of the code or of standard input: a Query does not contain it.
func TestNoText(t *testing.T) {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Query]()) {
		names = append(names, f.Name)
	}
	want := []string{
		"Tool", "Principal", "Session", "Repo", "Runtime", "Executable", "Path", "Args", "Dir", "Code", "Stdin",
		"CodeBytes", "StdinBytes", "Env", "Workspace", "Profile", "Network", "Limits",
	}
	if !slices.Equal(names, want) {
		t.Errorf("a query has %q", names)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(body("return allow()"))
	f.Add(body("return limit(timeout_ms = request.timeout_ms // 2)"))
	f.Add("decide = lambda request: deny('x')")
	f.Fuzz(func(t *testing.T, source string) {
		if strings.Contains(source, "*") || strings.Contains(source, "<<") || strings.Contains(source, "range") {
			t.Skip("memory is not bounded: see the package's comment")
		}
		r, err := Parse("rules.star", []byte(source))
		if err != nil {
			return
		}
		q := query()
		v := r.Decide(t.Context(), q)
		if v.Denied != (v.Reason != "") || len(v.Reason) > MaxReason || strings.ContainsAny(v.Reason, "\n\x00") {
			t.Errorf("%+v", v)
		}
		if err := v.Limits.Or(q.Limits).Within(q.Limits); err != nil {
			t.Error(err)
		}
	})
}
