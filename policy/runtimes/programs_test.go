package runtimes

import (
	"os"
	"strings"
	"testing"

	"corral/job"
)

// TestKotlinScript checks that code without a function main runs as a script.
func TestKotlinScript(t *testing.T) {
	b := newBench(t)
	code := `println("grüße " + args.joinToString()); System.exit(3)`
	if d := b.run(try{runtime: "kotlin", code: &code, args: []string{"a b", "-x"}}); d.out != "grüße a b, -x\n" || d.ExitCode != 3 {
		t.Errorf("%+v, %q, %q", d.Result, d.out, d.err)
	}
}

// TestOldJava checks that before Java 11 a class is compiled first, from a file named after it.
func TestOldJava(t *testing.T) {
	b := newBench(t)
	c, missing := b.installed.Choose("java", "", nil)
	if missing != "" {
		t.Fatal(missing)
	}
	c.old = true
	code := "package a.b;\nclass Other {}\npublic final class Named { public static void main(String[] args) { System.out.print(args[0]); System.exit(3); } }"
	spec := b.spec(try{runtime: "java", code: &code})
	spec.Args, spec.Files, _ = c.Plan(&code, []string{"ü $x"})
	if d, err := b.do(spec, strings.NewReader("")); err != nil || d.out != "ü $x" || d.ExitCode != 3 {
		t.Errorf("%+v, %q, %q, %v", d.Result, d.out, d.err, err)
	}
}

// TestHeap checks that a JVM reports by itself that it needs more memory than the job's limit, and uses what the limit
// allows.
func TestHeap(t *testing.T) {
	b := newBench(t)
	code := `import java.util.*;
class Main { public static void main(String[] a) {
	List<byte[]> all = new ArrayList<>();
	try { for (;;) { byte[] b = new byte[100_000]; Arrays.fill(b, (byte) 1); all.add(b); } }
	catch (OutOfMemoryError e) { int n = all.size(); all = null; System.out.println(n > 8_000 && n < 11_000); }
} }`
	if d := b.run(try{runtime: "java", code: &code}); d.out != "true\n" || d.Limit != "" {
		t.Errorf("%+v, %q, %q", d.Result, d.out, d.err)
	}
}

// TestOneBudget checks that compiling and running share one timeout, and that a short one is not refused.
func TestOneBudget(t *testing.T) {
	b := newBench(t)
	code := "#include <unistd.h>\n#include <stdio.h>\nint main(void) { puts(\"hello\"); fflush(stdout); pause(); }"
	d := b.run(try{runtime: "c", code: &code, limits: job.Limits{Wall: seconds(3)}}) // compiling takes 0.1 s, on a busy machine 2 s
	if d.Status != job.Timeout || d.out != "hello\n" || d.Usage.Wall > seconds(5) {
		t.Errorf("%+v, %q, %q", d.Result, d.out, d.err)
	}
}

// TestGoWithoutCache checks that jobs compile what is not prebuilt, also for the go command with arguments.
func TestGoWithoutCache(t *testing.T) {
	b := newBench(t)
	b.write("go.mod", "module example.com/x\n", 0o644)
	b.write("x/x.go", "package x\n\nconst Name = \"x\"\n", 0o644)
	// Only what every program needs of the standard library has to be compiled for it.
	code := "package main\n\nimport \"example.com/x/x\"\n\nfunc main() { println(x.Name) }"
	if d := b.run(try{runtime: "go", code: &code}); d.err != "x\n" || d.Status != job.Success {
		t.Errorf("%+v, %q, %q", d.Result, d.out, d.err)
	}
	if d := b.run(try{runtime: "go", args: []string{"env", "GOTOOLCHAIN", "GOCACHE"}}); d.out != "local\n/tmp/job/go-build\n" {
		t.Errorf("%+v, %q, %q", d.Result, d.out, d.err)
	}
}

// TestFakes checks that a program in the repository or in /tmp is never chosen, however it is offered.
func TestFakes(t *testing.T) {
	b := newBench(t)
	fake := "#!/bin/sh\necho fake\n"
	b.write("python3", fake, 0o755)
	b.write("bin/python3", fake, 0o755)
	t.Setenv("PATH", b.repo+":"+b.repo+"/bin:.:"+os.Getenv("PATH"))
	code := `print("real")`
	if d := b.run(try{runtime: "python", code: &code}); d.out != "real\n" {
		t.Errorf("%+v, %q, %q", d.Result, d.out, d.err)
	}
	for _, executable := range []string{b.repo + "/python3", "./python3", "../python3", "/usr/bin/../.." + b.repo + "/python3"} {
		if c, missing := b.installed.Choose("python", executable, nil); missing == "" {
			t.Errorf("%s: %s", executable, c.Path)
		}
	}
}
