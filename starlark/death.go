package starlark

import (
	"fmt"
	"strings"
)

// exitFailed is the program's exit code where it has written a failure.
const exitFailed = 1

// Ended is what the end of the program says of the script: nil if it ended well, which is with exit code 0. exit is
// negative for a program that a signal ended, and stderr is what it wrote there, which nobody has looked at.
//
// An end that is neither the program's own nor one that the Go runtime gives it for what a script does is CodeInternal:
// another script would have met it, too.
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

// A death is an end that the Go runtime gives its own process, with exit code 2.
type death struct {
	says          string // how the runtime begins to say it, behind "fatal error: " and "runtime: "
	code, message string
}

// deaths are told from each other by what the runtime says (malloc.go, mem_linux.go, mpagealloc_64bit.go, stack.go and
// proc.go of package runtime).
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

// died is what the runtime says of its end, nil if nothing that is known. Of the text nothing is passed on: it has
// addresses.
func died(stderr []byte) *Failure {
	lines := strings.Split(string(stderr[:min(len(stderr), 4<<10)]), "\n")
	for i, line := range lines {
		if i+1 < len(lines) && refused(line, lines[i+1]) {
			memory := OutOfMemory()
			return dead(memory.Code, memory.Message)
		}
		said, fatal := strings.CutPrefix(line, "fatal error: ")
		said, ours := strings.CutPrefix(said, "runtime: ")
		if !fatal && !ours {
			continue
		}
		for _, d := range deaths() {
			if strings.HasPrefix(said, d.says) {
				return dead(d.code, d.message)
			}
		}
	}
	return nil
}

// refused says whether two lines are about memory that the runtime uses and was refused. The interpreter is all Go, so that
// nothing else of it gets there. A signal that somebody sent has no address, and another code (sigaction(2), si_code).
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
