package starlark

import (
	"errors"
	"fmt"
	"io"
	osexec "os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// TestEnded checks the failures for processes that ended without writing one.
func TestEnded(t *testing.T) {
	if f := Ended(0, []byte("whatever")); f != nil {
		t.Errorf("well: %v", f)
	}
	for stderr, want := range map[string]string{
		"": CodeInternal,
		"fatal error: runtime: out of memory\n\nruntime stack:\n":                                                     CodeMemory,
		"runtime: out of memory: cannot allocate 4194304-byte block":                                                  CodeMemory,
		"fatal error: out of memory allocating heap arena metadata":                                                   CodeMemory,
		"fatal error: runtime: cannot allocate memory":                                                                CodeMemory,
		"2026/11/21 x\nfatal error: out of memory (stackalloc)":                                                       CodeMemory,
		"SIGSEGV: segmentation violation\nPC=0x43243d m=2 sigcode=1 addr=0x18":                                        CodeMemory,
		"fatal error: unexpected signal during runtime execution\n[signal SIGSEGV: segmentation violation code=0x1 ":  CodeMemory,
		"runtime: goroutine stack exceeds 67108864-byte limit\nruntime: sp=0x1 stack=[]\nfatal error: stack overflow": CodeEval,
		// Not caused by a script.
		"fatal error: unexpected signal during runtime execution\n[signal SIGBUS: bus error code=0x2 addr=0x1 pc=0x2]":                   CodeInternal,
		"panic: runtime error: invalid memory address\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x1]\n\ngoroutine 1": CodeInternal,
		"SIGSEGV: segmentation violation\nPC=0x43243d m=2 sigcode=0 addr=0x3192":                                                         CodeInternal, // kill -SEGV
		"SIGSEGV: segmentation violation":                                                                                   CodeInternal,
		"fatal error: failed to reserve page summary memory":                                                                CodeInternal,
		"runtime: failed to create new OS thread (have 5 already; errno=11)":                                                CodeInternal,
		"fatal error: all goroutines are asleep - deadlock!":                                                                CodeInternal,
		"2026/11/21 Starlark failed to allocate 4GB address space: cannot allocate memory. Integer performance may suffer.": CodeInternal,
		"x fatal error: runtime: out of memory":                                                                             CodeInternal,
		"panic: out of memory":                                                                                              CodeInternal,
		"fatal error: no stack overflow":                                                                                    CodeInternal,
		strings.Repeat("x", 4<<10) + "\nfatal error: out of memory":                                                         CodeInternal,
		"corral-starlark: usage":                                                                                            CodeInternal,
	} {
		for _, exit := range []int{-1, 2, 137} {
			if f := Ended(exit, []byte(stderr)); f == nil || f.Code != want || f.Message != printable(f.Message, MaxMessage) || !f.Died || strings.Contains(f.Error(), "0x") {
				t.Errorf("%d, %.80s: %+v", exit, stderr, f)
			}
		}
		if f := Ended(exitFailed, []byte(stderr)); f == nil || f.Code != CodeInternal || !f.Died {
			t.Errorf("without a failure: %.80s: %+v", stderr, f)
		}
	}
	for exit, want := range map[int]string{-1: "a signal ended the interpreter", 2: "ended with code 2", 1: "did not say why"} {
		if f := Ended(exit, nil); !strings.Contains(f.Message, want) {
			t.Errorf("%d: %v", exit, f)
		}
	}
}

// TestAddressSpace checks that warnings of the runtime about a small address space do not hide the failure.
func TestAddressSpace(t *testing.T) {
	for _, tt := range []struct {
		kib          int
		source, code string // "" means success
	}{
		{2 << 20, "1 // 0", CodeEval},
		{2 << 20, "while True: pass", CodeTimeout},
		{2 << 20, "emit('x' * 100000)", CodeOutput},
		{2 << 20, "s = 'x'\nwhile True: s += s", CodeMemory},
		{2 << 20, "emit('x')", ""},
		{300 << 10, "emit('x')", CodeInternal}, // too small for the runtime itself
	} {
		b := small()
		b.Memory = 0 // so that the address space is the limit
		if tt.code != CodeTimeout {
			b.Wall = MaxWall // so that a busy machine does not time out
		}
		got := confined(t, tt.source, tt.kib, b)
		f := Ended(got.code, []byte(got.stderr))
		if tt.code == "" && f != nil || tt.code != "" && (f == nil || f.Code != tt.code) {
			t.Errorf("%s, %d KiB: %v, %d, %.300s", tt.source, tt.kib, f, got.code, got.stderr)
		}
		if tt.code != CodeInternal && !strings.Contains(got.stderr, "4GB address space") {
			t.Errorf("the runtime no longer prints a warning: %.300s", got.stderr)
		}
	}
}

// confined runs a script in a process with an address space of kib KiB.
func confined(t *testing.T, text string, kib int, b Bounds) ending {
	t.Helper()
	path := source(t, text)
	line := fmt.Sprintf("ulimit -v %d && exec -a starlark \"$@\"", kib)
	args := append([]string{"-c", line, "sh", sandboxtest.Bin(t, "corral-starlark")}, Arguments(b, path)[1:]...)
	return ends(t, osexec.CommandContext(t.Context(), "bash", args...), "")
}

// TestSignaled checks that a signal from outside is not attributed to the script.
func TestSignaled(t *testing.T) {
	for _, s := range []syscall.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGSEGV, unix.SIGABRT} {
		b := small()
		b.Wall = MaxWall
		var stderr strings.Builder
		cmd := osexec.CommandContext(t.Context(), sandboxtest.Bin(t, "corral-starlark"))
		cmd.Args, cmd.Stderr = Arguments(b, source(t, "emit('x' * 40000)\nwhile True: pass")), &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadFull(out, make([]byte, 40_000)) // the script is running
		if err := errors.Join(err, cmd.Process.Signal(s)); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
		if f := Ended(cmd.ProcessState.ExitCode(), []byte(stderr.String())); f == nil || f.Code != CodeInternal {
			t.Errorf("%s: %v, %.300s", s, f, stderr.String())
		}
	}
}
