package starlark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// usual returns bounds that scripts reach only on purpose.
func usual() Bounds { return Bounds{Output: 64 << 10, Wall: 10 * time.Second} }

// exec runs a script, and returns what it emitted.
func exec(t testing.TB, source, input string, b Bounds) (string, *Failure) {
	t.Helper()
	var out strings.Builder
	f := Exec(t.Context(), []byte(source), strings.NewReader(input), &out, b)
	return out.String(), f
}

// emits checks that a script succeeds and emits want.
func emits(t *testing.T, source, input, want string) {
	t.Helper()
	if got, f := exec(t, source, input, usual()); f != nil || got != want {
		t.Errorf("%s\nemitted %q, %v; want %q", source, got, f, want)
	}
}

// fails checks that a script fails with code and with a message that contains want.
func fails(t *testing.T, source, code, want string) {
	t.Helper()
	_ = failing(t, source, code, want)
}

// failing is like fails, and returns the failure, which is never nil.
func failing(t *testing.T, source, code, want string) *Failure {
	t.Helper()
	_, f := exec(t, source, "", usual())
	if f == nil || f.Code != code || !strings.Contains(f.Message, want) {
		t.Errorf("%.200s\n%v, want %s: %s", source, f, code, want)
	}
	if f == nil {
		return &Failure{}
	}
	return f
}

// TestDialect checks which language features are on and which are off.
func TestDialect(t *testing.T) {
	for _, tt := range []struct{ name, source, want string }{
		{"sets", "emit(str(set([1, 2, 1]) | set([3])))", "set([1, 2, 3])"},
		{"while", "n = 3\nwhile n:\n  emit(str(n))\n  n -= 1", "321"},
		{"for at the top", "for i in range(3): emit(str(i))", "012"},
		{"if at the top", "if 1 < 2: emit('yes')\nelse: emit('no')", "yes"},
		{"globals are assigned again", "x = 1\nx = 2\nx += 3\nemit(str(x))", "5"},
		{"functions", "def f(n, *args, k = 2, **kw): return n * k\nemit(str(f(4) + f(1, 2, k = 7)))", "15"},
		{"lambdas and closures", "def add(n): return lambda m: n + m\nemit(str(add(2)(3)))", "5"},
		{"comprehensions", "emit(str({k: [v for v in range(k) if v % 2] for k in range(4)}))", "{0: [], 1: [], 2: [1], 3: [1]}"},
		{"big integers", "x = 1 << 100\nemit(str(x * x // 3))", "535646014752996758513987364113720867507400997927597611767125"},
		{"floats and bytes", "emit(str(1 / 4) + repr(b'a\\xff'))", `0.25b"a\xff"`},
		{"globals are not frozen", "x = []\ndef f(): x.append(1)\nf()\nf()\nemit(str(x))", "[1, 1]"},
		{"dicts keep their order", "d = {'z': 1, 'a': 2}\nd['m'] = 3\nemit(','.join(d.keys()))", "z,a,m"},
		{"print goes nowhere", "print('x', 1, sep = '')\nemit('y')", "y"},
		{"nothing", "", ""},
		{"names of ours can be hidden", "emit_ = emit\nemit = None\nemit_('x')", "x"},
	} {
		t.Run(tt.name, func(t *testing.T) { emits(t, tt.source, "", tt.want) })
	}
	fails(t, "def f(n): return f(n - 1) if n else 0\nf(3)", CodeEval, "function f called recursively")
	fails(t, "def f(n): return g(n)\ndef g(n): return f(n)\nf(3)", CodeEval, "function f called recursively")
	fails(t, "load('x.star', 'x')", CodeEval, "load is not available")
	fails(t, "return 1", CodeEval, "return statement not within a function")
	fails(t, "x = 2 ** 3", CodeEval, "got '**'")
	fails(t, "class C: pass", CodeEval, "got class")
}

// TestInput checks that the input is read on demand, once, and unchanged.
func TestInput(t *testing.T) {
	emits(t, "emit(read_input())", "", "")
	emits(t, "emit(read_input() + str(len(read_input())))", "a\r\nä\x00", "a\r\nä\x006")
	emits(t, "emit(read_input())", "no \xff UTF-8", "no \xff UTF-8")
	emits(t, "for line in read_input().splitlines(): emit(line.upper() + ';')", "a\nb", "A;B;")
	var broken brokenReader
	var out strings.Builder
	if f := Exec(t.Context(), []byte("emit('x')"), &broken, &out, usual()); f != nil || broken.reads != 0 {
		t.Errorf("without read_input the input was read %d times: %v", broken.reads, f)
	}
	f := Exec(t.Context(), []byte("read_input()"), &broken, &out, usual())
	if f == nil || f.Code != CodeEval || f.Message != "read_input: the input cannot be read" {
		t.Errorf("%v", f)
	}
	longest := strings.Repeat("x", MaxInput)
	if got, f := exec(t, "emit(str(len(read_input())))", longest, usual()); got != fmt.Sprint(MaxInput) || f != nil {
		t.Errorf("input of the maximum size: %s %v", got, f)
	}
	if _, f := exec(t, "read_input()", longest+"x", usual()); f == nil || f.Code != CodeRequest || f.Position != "script.star:1:11" {
		t.Errorf("longer: %v", f)
	}
	fails(t, "read_input(1)", CodeEval, "read_input: got 1 arguments, want at most 0")
}

type brokenReader struct{ reads int }

func (r *brokenReader) Read([]byte) (int, error) {
	r.reads++
	return 0, errors.New("with a path of this machine")
}

// TestEmit checks that emit accepts exactly one string.
func TestEmit(t *testing.T) {
	for value, name := range map[string]string{
		"1": "int", "1.5": "float", "None": "NoneType", "True": "bool", "[]": "list", "()": "tuple", "{}": "dict", "set()": "set",
		"b'x'": "bytes", "range(3)": "range", "len": "builtin_function_or_method", "lambda: 1": "function",
	} {
		fails(t, "emit("+value+")", CodeEval, "emit: got "+name+", want string")
	}
	fails(t, "emit()", CodeEval, "emit: got 0 arguments, want 1")
	fails(t, "emit('a', 'b')", CodeEval, "emit: got 2 arguments, want 1")
	fails(t, "emit(text = 'a')", CodeEval, "emit: unexpected keyword arguments")
	emits(t, "emit('')\nemit('a')\nemit('b\\n')", "", "ab\n")
	f := Exec(t.Context(), []byte("emit('x')"), nil, full{}, usual())
	if f == nil || f.Message != "emit: the output cannot be written" {
		t.Errorf("%v", f)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestOutputLimit checks that output within the limit is kept, and that no character is split.
func TestOutputLimit(t *testing.T) {
	for _, tt := range []struct {
		source string
		limit  int
		want   string
		over   bool
	}{
		{"emit('abc')", 3, "abc", false},
		{"emit('abc')\nemit('')", 3, "abc", false},
		{"emit('abcd')", 3, "abc", true},
		{"emit('abc')\nemit('d')", 3, "abc", true},
		{"while True: emit('ab')", 5, "ababa", true},
		{"emit('aä')", 2, "a", true},
		{"emit('ä')\nemit('ä')", 3, "ä", true},
		{"emit('a😀')", 4, "a", true},
		{"emit('😀')", 1, "", true},
		{"emit('ä'[:1] + 'x')", 1, "\xc3", true},
		{"emit(read_input())", 5, "\x80\x80\x80\x80\x80", true}, // continuation bytes without a start
	} {
		b := usual()
		b.Output = tt.limit
		got, f := exec(t, tt.source, strings.Repeat("\x80", 9), b)
		if got != tt.want || (f != nil) != tt.over {
			t.Errorf("%s within %d: %q, %v", tt.source, tt.limit, got, f)
		}
		if tt.over && (f.Code != CodeOutput || f.Message != fmt.Sprintf("the script emitted more than %d bytes", tt.limit) || f.Position == "") {
			t.Errorf("%s: %v", tt.source, f)
		}
	}
}

// TestPosition checks the position and the backtrace of errors.
func TestPosition(t *testing.T) {
	for _, tt := range []struct {
		name, source string
		want         Failure
	}{
		{"syntax", "x = 1\ny = (2", Failure{CodeEval, "got end of file, want ')'", "script.star:2:7", "", false}},
		{"token", "x = $", Failure{CodeEval, "unexpected input character '$'", "script.star:1:5", "", false}},
		{"name", "def f():\n  return zorp\n", Failure{CodeEval, "undefined: zorp", "script.star:2:10", "", false}},
		{"evaluation", "def f(x): return 1 // x\ndef g():\n  f(0)\ng()", Failure{
			CodeEval, "floored division by zero", "script.star:1:20",
			"Traceback (most recent call last):\n  script.star:4:2: in <toplevel>\n  script.star:3:4: in g\n" +
				"  script.star:1:20: in f\nError: floored division by zero", false,
		}},
		{"built in", "x = int('q')", Failure{
			CodeEval, `int: invalid literal with base 10: q`, "script.star:1:8",
			"Traceback (most recent call last):\n  script.star:1:8: in <toplevel>\nError in int: int: invalid literal with base 10: q", false,
		}},
		{"fail", "fail('two\\nlines', 1)", Failure{
			CodeEval, "fail: two lines 1", "script.star:1:5",
			"Traceback (most recent call last):\n  script.star:1:5: in <toplevel>\nError in fail: fail: two lines 1", false,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, f := exec(t, tt.source, "", usual()); f == nil || *f != tt.want {
				t.Errorf("%#v, want %#v", f, tt.want)
			}
		})
	}
}

// TestDetails checks the details of a failure, and that the caller may add to the map.
func TestDetails(t *testing.T) {
	f := &Failure{Code: CodeEval, Message: "m", Position: "p", Backtrace: "b"}
	if got := f.Details(); !reflect.DeepEqual(got, map[string]any{"position": "p", "backtrace": "b"}) || f.Error() != "EVAL_ERROR: p: m" {
		t.Errorf("%v %v", f, got)
	}
	f = OutOfMemory()
	f.Details()["stdout"] = "x"
	if len(f.Details()) != 0 || f.Error() != "MEMORY_LIMIT: the script needed more memory than it may have" {
		t.Errorf("%v %v", f, f.Details())
	}
}

// TestBounded checks that every message fits into a failure.
func TestBounded(t *testing.T) {
	long := strings.Repeat("ü", 100_000)
	calls := "def f0(): return [][9]\n"
	for i := 1; i <= 1000; i++ {
		calls += fmt.Sprintf("def f%d(): f%d()\n", i, i-1)
	}
	for name, source := range map[string]string{
		"message":            "fail('" + long + "')",
		"invalid UTF-8":      `fail("\x00\x1b[31m\r\n" + "ü"[:1])`,
		"what acts on it":    `fail("\u009b2J\u202etxt\u2066\u200f")`,
		"nothing":            "fail()",
		"name":               "def " + long + "(): fail('x')\n" + long + "()",
		"name that is not":   long,
		"calls":              calls + "f1000()",
		"string as a number": "int('" + long + "')",
		"attribute":          "''." + long,
	} {
		_, f := exec(t, source, "", usual())
		if f == nil || !f.sound() || !utf8.ValidString(f.Backtrace) {
			t.Fatalf("%s: %.300v", name, f)
		}
		var wire strings.Builder
		if err := f.write(&wire); err != nil {
			t.Fatal(err)
		}
		if got, ok := DecodeFailure([]byte(wire.String())); !ok || *got != *f {
			t.Errorf("%s: %v was decoded as %v", name, f, got)
		}
		if name == "calls" && (strings.Count(f.Backtrace, "\n") != 1+outermost+1+innermost || !strings.Contains(f.Backtrace, "\n  ... 962 more calls ...\n")) {
			t.Errorf("%s", f.Backtrace)
		}
	}
}

// TestNesting checks that a source that would exhaust the stack of the parser or of a later pass is refused, with a
// position.
func TestNesting(t *testing.T) {
	repeat := strings.Repeat
	for name, source := range map[string]string{
		"parentheses":   "x = " + repeat("(", 120_000),
		"lists":         "x = " + repeat("[", 120_000) + repeat("]", 120_000),
		"signs":         "x = " + repeat("-", 250_000) + "1",
		"not":           "x = " + repeat("not ", 60_000) + "1",
		"lambdas":       "x = " + repeat("lambda:", 30_000) + "1",
		"conditions":    "x = " + repeat("1 if 1 else ", 20_000) + "1",
		"sums":          "x = 1" + repeat("+1", 130_000),
		"calls":         "x = len" + repeat("()", 130_000),
		"indices":       "x = len" + repeat("[0]", 80_000),
		"attributes":    "x = len" + repeat(".a", 130_000),
		"elif":          "if 0:pass\n" + repeat("elif 0:pass\n", 21_000),
		"and, in a def": "def f():\n  return 1" + repeat(" and 1", 40_000),
	} {
		if f := failing(t, source, CodeEval, "excessive nesting"); !strings.HasPrefix(f.Position, scriptName) {
			t.Errorf("%s: %v", name, f)
		}
	}
	emits(t, "x = 1"+repeat("+1", 9_000)+"\nemit(str(x))", "", "9001")
	emits(t, "if 0:pass\n"+repeat("elif 0:pass\n", 9_000)+"else: emit('x')", "", "x")
	emits(t, "x = "+repeat("[", 70)+repeat("]", 70)+"\nemit(str(len(x)))", "", "1")
	fails(t, repeat("#", MaxScript+1), CodeRequest, "the source has more than 262144 bytes")
	emits(t, repeat("#", MaxScript), "", "")
}

// TestScriptTime checks that the timeout and the maximum number of steps give the same failure.
func TestScriptTime(t *testing.T) {
	b := Bounds{Output: 10, Wall: time.Millisecond}
	_, f := exec(t, "while True: pass", "", b)
	if f == nil || *f != *TimedOut(time.Millisecond) || f.Message != "the script did not end within 1 ms" {
		t.Errorf("steps: %v", f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait := readerFunc(func([]byte) (int, error) { cancel(); return 0, io.EOF })
	f = Exec(ctx, []byte("read_input()\nwhile True: pass"), wait, io.Discard, Bounds{Output: 10, Wall: MaxWall})
	if f == nil || *f != *TimedOut(MaxWall) {
		t.Errorf("the context: %v", f)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestScriptPanic checks that a panic of the library fails one script only.
func TestScriptPanic(t *testing.T) {
	fault := readerFunc(func([]byte) (int, error) { panic("oh\nno") })
	f := Exec(t.Context(), []byte("read_input()"), fault, io.Discard, usual())
	if f == nil || *f != (Failure{Code: CodeEval, Message: "the interpreter panicked: oh no"}) {
		t.Errorf("%v", f)
	}
	fails(t, "list(range(1 << 60))", CodeMemory, "more memory than it may have")
}
