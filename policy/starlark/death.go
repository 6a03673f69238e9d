package starlark

import (
	"fmt"
	"strings"
)

// exitFailed is the program's exit code after it has written a failure.
const exitFailed = 1

// Ended converts the end of the program to the failure of the script: nil for exit code 0. exit is negative if a signal
// ended the program. stderr is untrusted.
//
// The code is CodeInternal unless the program reported the failure, or the Go runtime ended it for something that a
// script can cause. With CodeInternal, another script would have met the same end.
func Ended(exit int, stderr []byte) *Failure {
	switch exit {
	case 0:
		return nil
	case exitFailed:
		if f, ok := DecodeFailure(stderr); ok {
			return f
		}
		return dead(CodeInternal, "the interpreter failed, and did not say why")
	}
	if f := died(stderr); f != nil {
		return f
	}
	if exit < 0 {
		return dead(CodeInternal, "a signal ended the interpreter: neither the script nor a limit did")
	}
	return dead(CodeInternal, fmt.Sprintf("the interpreter ended with code %d: the script did not bring that about", exit))
}

func dead(code, message string) *Failure { return &Failure{Code: code, Message: message, Died: true} }

// A death describes how the Go runtime ends its own process, with exit code 2.
type death struct {
	says          string // start of the runtime's message, after "fatal error: " and "runtime: "
	code, message string
}

// deaths returns the known ends, distinguished by the runtime's message (malloc.go, mem_linux.go, mpagealloc_64bit.go,
// stack.go and proc.go of package runtime).
func deaths() []death {
	memory := OutOfMemory()
	return []death{
		{"out of memory", memory.Code, memory.Message},
		{"cannot allocate memory", memory.Code, memory.Message},
		{"failed to reserve page summary memory", CodeInternal, "the interpreter has no room to start: its address space is too small"},
		{"goroutine stack exceeds", CodeEval, "the interpreter ended: values are nested too deeply"},
		{"stack overflow", CodeEval, "the interpreter ended: values are nested too deeply"},
		{"failed to create new OS thread", CodeInternal, "the interpreter may have no more threads: the limit on processes is too low"},
	}
}

// died returns the failure for the runtime's last message, or nil if it is not known. The message itself is not passed
// on, since it contains addresses.
func died(stderr []byte) *Failure {
	lines := strings.Split(string(stderr[:min(len(stderr), 4<<10)]), "\n")
	for i, line := range lines {
		if i+1 < len(lines) && refused(line, lines[i+1]) {
			memory := OutOfMemory()
			return dead(memory.Code, memory.Message)
		}
		rest, fatal := strings.CutPrefix(line, "fatal error: ")
		rest, ours := strings.CutPrefix(rest, "runtime: ")
		if !fatal && !ours {
			continue
		}
		for _, d := range deaths() {
			if strings.HasPrefix(rest, d.says) {
				return dead(d.code, d.message)
			}
		}
	}
	return nil
}

// refused reports whether two lines describe a fault on memory that the kernel refused the runtime. The interpreter is
// pure Go, so it has no other such faults. A signal sent by a process has no address and a different code (sigaction(2),
// si_code).
func refused(line, next string) bool {
	const unmapped, forbidden = "1", "2" // SEGV_MAPERR, SEGV_ACCERR
	var code string
	switch line {
	case "SIGSEGV: segmentation violation":
		_, code, _ = strings.Cut(next, " sigcode=")
	case "fatal error: unexpected signal during runtime execution":
		_, code, _ = strings.Cut(next, "[signal SIGSEGV: segmentation violation code=0x")
	}
	code, _, _ = strings.Cut(code, " ")
	return code == unmapped || code == forbidden
}
