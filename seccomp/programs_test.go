package seccomp

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
)

const helloC = `#include <pthread.h>
#include <stdio.h>
static void *run(void *arg) { return puts("hello") < 0 ? arg : 0; }
int main(void) {
	pthread_t t;
	if (pthread_create(&t, 0, run, &t)) return 1;
	return pthread_join(t, 0);
}
`

const threadsPython = `
import os, socket, subprocess, sys, tempfile, threading
results = []
threads = [threading.Thread(target=results.append, args=(i,)) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
a, b = socket.socketpair()
a.send(b"x")
assert b.recv(1) == b"x"
with tempfile.NamedTemporaryFile() as f:
    os.chmod(f.name, 0o700)
subprocess.run([sys.executable, "-c", "pass"], check=True)
try:
    os.chmod(".", 0o4755)
except PermissionError:
    print("hello" if len(results) == 4 else "threads")
`

const gitScript = `set -e
git init -q a
cd a
git config user.name n
git config user.email e@example.org
echo hello > file
git add file
git commit -q -m first
git gc -q
git clone -q . ../b
cat ../b/file`

// A realProgram is a program that users run in jobs.
type realProgram struct {
	need  string            // the program that must be installed
	extra bool              // omit the test if it is not installed
	files map[string]string // in its working directory
	sh    string            // prints hello on success
	// asCaller: run as the test's own user, in whose home the program may be installed, instead of an unprivileged
	// user.
	asCaller bool
	// strictBreaks: the program must fail under "strict".
	strictBreaks bool
}

var realPrograms = []realProgram{
	{need: "sh", sh: `for i in 1 2 3; do (exit 0) & done; wait; echo hello | cat`},
	{need: "tar", sh: `echo hello > f; tar cf t f; rm f; tar xf t; cp -p f g; mv g h; install -m 755 h i; cat i`},
	{need: "python3", files: map[string]string{"t.py": threadsPython}, sh: `python3 t.py`, asCaller: true},
	{need: "perl", sh: `perl -e 'my $p = fork; if (!$p) { exec "true" } waitpid $p, 0; print "hello\n"'`},
	{need: "git", sh: gitScript},
	{need: "gcc", files: map[string]string{"t.c": helloC}, sh: `gcc -O1 -pthread -o t t.c && ./t`},
	{need: "go", files: map[string]string{"t.go": "package main\n\nfunc main() { println(`hello`) }\n"}, sh: `go env GOROOT >/dev/null && go build -o t t.go && ./t 2>&1`, asCaller: true},
	{need: "strace", sh: `strace -f -o trace sh -c 'true & wait' && grep -q execve trace && echo hello`, strictBreaks: true},
	{need: "gdb", extra: true, sh: `gdb -q -batch -ex run -ex 'print $_exitcode' true 2>/dev/null | grep -q '= 0' && echo hello`, strictBreaks: true},
	{need: "node", extra: true, sh: `node -e 'const w = require("fs"); w.writeFileSync("f", "hello"); console.log(w.readFileSync("f", "utf8"))'`, asCaller: true},
	{need: "java", extra: true, sh: `java -version 2>/dev/null && echo hello`, asCaller: true},
}

// TestRealPrograms checks that ordinary programs work under either profile.
func TestRealPrograms(t *testing.T) {
	for _, profile := range Profiles() {
		for _, p := range realPrograms {
			if _, err := exec.LookPath(p.need); err != nil && p.extra {
				continue
			}
			t.Run(profile+"/"+p.need, func(t *testing.T) {
				sandboxtest.Require(t, sandboxtest.Program(p.need))
				cmd := child(t, "exec", profile, "sh", "-c", p.sh)
				cmd.Env = append(cmd.Env, "GOTOOLCHAIN=local", "GOFLAGS=", "GIT_CONFIG_GLOBAL=/dev/null")
				if !p.asCaller {
					cmd.Env = append(cmd.Env, childUser+"=1", "HOME="+cmd.Dir)
				}
				for name, text := range p.files {
					if err := os.WriteFile(filepath.Join(cmd.Dir, name), []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				out, err := cmd.CombinedOutput()
				works := err == nil && strings.TrimSpace(string(out)) == "hello"
				if breaks := p.strictBreaks && profile == strictProfile; works == breaks {
					t.Errorf("works: %v (%v), want %v; output:\n%s", works, err, !breaks, out)
				}
			})
		}
	}
}

func TestNetwork(t *testing.T) {
	for _, profile := range Profiles() {
		if out, err := child(t, "network", profile).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", profile, err, out)
		}
	}
}

// killedBySIGSYS reports whether SIGSYS ended a command.
func killedBySIGSYS(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGSYS
}

// TestOtherABIs checks that a call of another architecture kills the process.
func TestOtherABIs(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		return // arm64 runs 32-bit code only in 32-bit processes
	}
	sandboxtest.Require(t, sandboxtest.Program("gcc"))
	dir := t.TempDir()
	// getpid of the i386 ABI.
	source := `int main(void) { int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return r <= 0; }`
	compiler := exec.Command("gcc", "-x", "c", "-o", dir+"/i386", "-")
	compiler.Stdin = strings.NewReader(source)
	if out, err := compiler.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	if err := exec.Command(dir + "/i386").Run(); err != nil {
		t.Logf("this kernel has no i386 entry: %v", err)
	} else {
		for _, profile := range Profiles() {
			if err := child(t, "exec", profile, dir+"/i386").Run(); !killedBySIGSYS(err) {
				t.Errorf("%s: a call of the i386 ABI ended in %v, want SIGSYS", profile, err)
			}
		}
	}
}
