package starlark

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// An ending is the result of a run of the program.
type ending struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

// small returns bounds with which many programs fit into one machine. On an emulated machine the timeout is longer.
func small() Bounds {
	return Bounds{Output: 64 << 10, Wall: sandboxtest.Slow(time.Second), Memory: 64 << 20}
}

// start runs the program on a script with an empty environment, as corrald does.
func start(t testing.TB, text, input string, b Bounds) ending {
	t.Helper()
	return launch(t, Arguments(b, source(t, text)), input)
}

// source returns a file that contains a script.
func source(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "code.star")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func launch(t testing.TB, args []string, input string) ending {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // stops a process that hangs
	defer cancel()
	cmd := osexec.CommandContext(ctx, sandboxtest.Bin(t, "corral-starlark"))
	cmd.Args = args
	return ends(t, cmd, input)
}

// ends runs a process to its end.
func ends(t testing.TB, cmd *osexec.Cmd, input string) ending {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = []string{}, strings.NewReader(input), &stdout, &stderr
	begun := time.Now()
	err := cmd.Run()
	if exit := (*osexec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Error(err)
	}
	return ending{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), time.Since(begun)}
}

// TestProgram checks the output, the failure and the exit code of the program.
func TestProgram(t *testing.T) {
	for _, tt := range []struct {
		name, source, input string
		code                int
		stdout              string
		want                *Failure
	}{
		{"well", "emit(read_input().upper())", "abc\n", 0, "ABC\n", nil},
		{"nothing", "", "unread", 0, "", nil},
		{"print", "print('x')\nfor i in range(1000): print(i)", "", 0, "", nil},
		{"as much as may be", "emit('x' * 65536)", "", 0, strings.Repeat("x", 65536), nil},
		{"more", "for i in range(65537): emit('x')", "", 1, strings.Repeat("x", 65536), &Failure{Code: CodeOutput, Message: "the script emitted more than 65536 bytes"}},
		{"error after output", "emit('so far')\n1 // 0", "", 1, "so far", &Failure{Code: CodeEval, Message: "floored division by zero"}},
		{"syntax", "emit('x'", "", 1, "", &Failure{Code: CodeEval, Message: "got end of file, want ')'"}},
		{"source", strings.Repeat("#", MaxScript+1), "", 1, "", &Failure{Code: CodeRequest, Message: "the source has more than 262144 bytes"}},
		{"input", "read_input()", strings.Repeat("x", MaxInput+1), 1, "", &Failure{Code: CodeRequest, Message: "the input has more than 4194304 bytes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := small()
			b.Wall, b.Memory = MaxWall, 256<<20
			got := start(t, tt.source, tt.input, b)
			f := Ended(got.code, []byte(got.stderr))
			if got.code != tt.code || got.stdout != tt.stdout || (f == nil) != (tt.want == nil) || f == nil && got.stderr != "" {
				t.Fatalf("%d %.100q %.300q", got.code, got.stdout, got.stderr)
			}
			if f != nil && (f.Code != tt.want.Code || f.Message != tt.want.Message) {
				t.Errorf("%v, want %v", f, tt.want)
			}
		})
	}
}

// TestProgramArguments checks that invalid arguments are refused before anything runs.
func TestProgramArguments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "code.star")
	if err := os.WriteFile(path, []byte("emit('x')"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := Arguments(Bounds{Output: 64 << 10, Wall: MaxWall, Memory: 64 << 20}, path)
	if got := launch(t, good, ""); got.code != 0 || got.stdout != "x" {
		t.Fatalf("%+v", got)
	}
	change := func(i int, to string) []string {
		args := slices.Clone(good)
		args[i] = to
		return args
	}
	for _, args := range [][]string{
		{"starlark"},
		good[:4], append(slices.Clone(good), "x"), change(0, "corral-starlark"), change(1, "--output=0"),
		change(1, "--output=1048577"), change(1, "--output=1k"), change(1, "--out=1"), change(2, "--wall=0"), change(2, "--wall=60001"),
		change(2, "--wall=-1"), change(2, "--wall="), change(3, "--memory=-1"), change(3, "--memory=99999999999999999999"),
		change(4, path+"-none"), change(4, filepath.Dir(path)),
	} {
		if got := launch(t, args, ""); got.code != 2 || got.stdout != "" || !strings.HasPrefix(got.stderr, "corral-starlark: ") {
			t.Errorf("%q: %+v", args, got)
		}
	}
	b := Bounds{Output: 1, Wall: MaxWall, Memory: 1 << 40}
	if got, file, err := parseArguments(Arguments(b, "f")); err != nil || got != b || file != "f" {
		t.Errorf("%v %q %v", got, file, err)
	}
	b.Memory = -1 // as for an unlimited job
	if got, _, err := parseArguments(Arguments(b, "f")); err != nil || got.Memory != 0 {
		t.Errorf("%v %v", got, err)
	}
}

// bombs are scripts that would exhaust a machine, with the codes they may end with. Which one it is may depend on which
// limit they reach first.
var bombs = []struct{ name, source, codes string }{
	{"loop", "while True: pass", CodeTimeout},
	{"loop of nothing", "for i in range(1 << 60): emit('')", CodeTimeout},
	{"silent loop", "while True: print('x' * 1000)", CodeTimeout},
	// Operations that do not check for cancellation.
	{"all", "all(range(1, 1 << 60))", CodeTimeout},
	{"max", "max(range(1 << 60))", CodeTimeout},
	{"digits", "int('9' * 3000000)", CodeTimeout},
	{"power", "x = 3\nfor i in range(60): x *= x", CodeTimeout + CodeMemory},
	{"digits of a power", "x = 1 << 500\nfor i in range(17): x *= x\nstr(x)", CodeTimeout + CodeMemory},
	{"needles", "s = 'a' * 5000000\nfor i in range(100000): ('a' * 5000 + 'b') in s", CodeTimeout},
	{"slow key", "def k(x):\n  for i in range(1000000): pass\n  return x\nsorted(range(100000), key = k)", CodeTimeout},
	{"nested text", "x = []\nfor i in range(300000): x = [x]\nstr(x)", CodeTimeout + CodeMemory},
	{"laughs", "x = 'ha'\nfor i in range(60): x = [x, x]\nstr(x)", CodeTimeout + CodeMemory},
	{"undefined names", strings.Repeat("a", 9) + "=1;" + manyNames(), CodeTimeout + CodeEval},
	// One operation that allocates everything at once.
	{"list", "[0] * 1000000000", CodeMemory},
	{"longest list", "[0] * 1073741823", CodeMemory},
	{"too long a list", "[0] * (1 << 62)", CodeEval},
	{"string", "'a' * 1000000000", CodeMemory},
	{"range", "list(range(1 << 60))", CodeMemory},
	{"range of a size", "list(range(1 << 33))", CodeMemory},
	{"sorted", "sorted(range(1 << 60))", CodeMemory},
	{"reversed", "reversed(range(1 << 34))", CodeMemory},
	{"zip", "zip(*[range(1 << 30)] * 200)", CodeMemory},
	{"replace", "('a' * 1000000).replace('a', 'b' * 1000)", CodeMemory},
	{"join", "','.join(['x' * 1000000] * 1000)", CodeMemory},
	{"format", "('{0}' * 1000).format('x' * 1000000)", CodeMemory},
	{"percent", "('%s' * 1000) % tuple(['x' * 1000000] * 1000)", CodeMemory},
	{"shift", "1 << 1099511627776", CodeEval},
	// Gradual growth.
	{"doubling text", "s = 'a'\nwhile True: s += s", CodeMemory},
	{"doubling list", "s = [1]\nwhile True: s.extend(s)", CodeMemory + CodeTimeout},
	{"growing list", "s = []\nwhile True: s.append('x' * 100000)", CodeMemory + CodeTimeout},
	{"growing set", "s = set()\nfor i in range(1 << 40): s.add(str(i) * 1000)", CodeMemory + CodeTimeout},
	{"dict", "d = {}\nfor i in range(10000000): d[i] = i", CodeMemory + CodeTimeout},
	{"lines", "('\\n' * 50000000).splitlines()", CodeMemory},
	{"garbage", "while True: x = 'a' * 5000000", CodeTimeout},
	// Deep recursion.
	{"nested key", "x = ()\nfor i in range(1000000): x = (x,)\nd = {x: 1}", CodeEval + CodeMemory + CodeTimeout},
	{"sum", "x = 1" + strings.Repeat("+1", 130_000), CodeEval},
	{"elif", "if 0:pass\n" + strings.Repeat("elif 0:pass\n", 21_000), CodeEval},
	{"parentheses", strings.Repeat("(", 200_000), CodeEval},
	{"recursion", "def f(): f()\nf()", CodeEval},
	{"recursion by another name", "f = lambda g: g(g)\nf(f)", CodeEval},
	// Large amounts of everything.
	{"flood", "while True: emit('x' * 1000)", CodeOutput},
	{"flood at once", "emit('x' * 10000000)", CodeOutput},
	{"long error", "fail('x' * 10000000)", CodeEval},
}

func manyNames() string {
	var text strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&text, "a%d=1;b%d=z%d\n", i, i, i)
	}
	return text.String()
}

// late is how long a bomb may take beyond its timeout. A quiet machine needs 250 ms; this bound finds endless ones.
const late = 20 * time.Second

// defused checks that a bomb ended in time and with one of its codes.
func defused(t *testing.T, name, codes string, b Bounds, got ending) {
	t.Helper()
	f := Ended(got.code, []byte(got.stderr))
	if f == nil || !strings.Contains(codes, f.Code) || !f.sound() || len(got.stdout) > b.Output || got.took > b.Wall+late {
		t.Errorf("%s: %v after %s, exit %d, want %s; %.300s", name, f, got.took, got.code, codes, got.stderr)
	}
}

// TestBombs checks that each bomb ends its own process in time with a clear error. No cgroup is set up to help.
func TestBombs(t *testing.T) {
	for _, bomb := range bombs {
		t.Run(bomb.name, func(t *testing.T) {
			b := small()
			if !strings.Contains(bomb.codes, CodeTimeout) {
				b.Wall = MaxWall // so that a busy machine does not time out
			}
			defused(t, bomb.name, bomb.codes, b, start(t, bomb.source, "", b))
		})
	}
}

// TestMemory checks that gradual growth is ended by the program itself, with its failure, before the kernel would kill
// it.
func TestMemory(t *testing.T) {
	if n := resident(); n < 1<<20 || n > 1<<40 {
		t.Errorf("this process has %d bytes", n)
	}
	b := small()
	b.Wall = MaxWall
	got := start(t, "s = []\nwhile True: s.append('x' * 1000)", "", b)
	if f, ok := DecodeFailure([]byte(got.stderr)); !ok || *f != *OutOfMemory() || got.code != 1 {
		t.Errorf("%+v", got)
	}
	b.Memory *= 4
	if got := start(t, "emit(str(len(['x' * 1000 + str(i) for i in range(100000)])))", "", b); got.stdout != "100000" {
		t.Errorf("100 MB of 256 MiB: %+v", got)
	}
}

// TestReaderWhoDoesNotRead checks that a program whose output is not read ends in time, too.
func TestReaderWhoDoesNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "code.star")
	if err := os.WriteFile(path, []byte("emit('x' * 1000000)"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var stderr bytes.Buffer
	cmd := osexec.Command(sandboxtest.Bin(t, "corral-starlark"))
	b := Bounds{Output: MaxOutput, Wall: 200 * time.Millisecond}
	cmd.Args, cmd.Stdout, cmd.Stderr = Arguments(b, path), w, &stderr
	_ = cmd.Run()
	if f := Ended(cmd.ProcessState.ExitCode(), stderr.Bytes()); f == nil || *f != *TimedOut(b.Wall) {
		t.Errorf("%v", f)
	}
}
