package rpc

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"corral/internal/text"
	"corral/job"
)

// Exit codes of what did not end by itself, as timeout(1) and shells have them.
const (
	exitTimeout = 124
	exitNoExec  = 126
	exitMissing = 127
	exitSignal  = 128
	exitKilled  = exitSignal + 9
)

// An ending is what became of a process.
type ending struct {
	fault  *fault // it was not run, or corral has failed; else nil
	exit   int
	record *job.Record // nil with some faults
}

// ending words the engine's record.
func (p *process) ending(ctx context.Context, record *job.Record, err error) *ending {
	e := &ending{record: record}
	switch {
	case err != nil:
		p.c.s.log(ctx, "process failed", "request", p.request.ID, "principal", p.request.Principal, "error", err.Error())
		e.exit, e.fault = -1, faultOf(codeInternal, "exec failed: %s", text.Line(err.Error(), maxSaid))
	case errors.Is(context.Cause(ctx), errBudget) && p.out.overflow.Load():
		e.exit = exitKilled
		e.fault = faultOf(codeInternal, "the output does not fit into the server's budget of %d bytes: lower outputBytesCap, or stream it with streamStdoutStderr", p.c.s.budget())
	case record.Status == job.Denied:
		e.exit, e.fault = exitNoExec, p.denied(record)
	case record.Refusal != nil:
		e.exit, e.fault = record.Result.ExitCode, p.unspawned(record.Refusal)
	case record.Message != "" && record.Status == job.Failure:
		e.exit, e.fault = record.Result.ExitCode, faultOf(codeInternal, "%s: %s", p.family.unspawned, text.Line(record.Message, maxSaid))
	case record.Status == job.Lost:
		e.exit, e.fault = -1, faultOf(codeInternal, "exec failed: the supervisor ended while the command ran")
	default:
		e.exit = exitCode(record)
	}
	return e
}

// code is what the log says went wrong: "" if the process ran and the client is still there.
func (e *ending) code(ctx context.Context) string {
	switch {
	case errors.Is(context.Cause(ctx), errGone):
		return "CANCELLED"
	case e.fault != nil:
		return strconv.Itoa(e.fault.Code)
	}
	return ""
}

func exitCode(r *job.Record) int {
	switch {
	case r.Status == job.Timeout:
		return exitTimeout
	case r.Status == job.Cancelled:
		return exitKilled
	case r.Result.Signal > 0:
		return exitSignal + r.Result.Signal
	case r.Result.ExitCode < 0:
		return exitKilled
	}
	return r.Result.ExitCode
}

// denied words what the policy, the queue or the supervisor had against a request.
func (p *process) denied(r *job.Record) *fault {
	d := &r.Decision
	reasons := text.Line(strings.Join(d.Reasons, "; "), maxSaid)
	switch {
	case d.Rule == "repo":
		return faultOf(codeRequest, "cwd %s is in no repository that is served", quoted(text.Cut(p.dir, maxWord)))
	case p.hasNUL():
		return faultOf(codeInternal, "%s: nul byte found in provided data", p.family.unspawned)
	case d.Rule == "arguments":
		return p.errno(syscall.E2BIG)
	case r.Refusal != nil && r.Refusal.Step == "cwd" && r.Refusal.Errno != 0 && r.Refusal.Errno != int(syscall.EXDEV):
		return p.errno(syscall.Errno(r.Refusal.Errno))
	case d.Rule == "concurrency":
		return faultOf(codeBusy, "%s", reasons)
	}
	f := faultOf(codeRequest, "%s denied: %s", p.family.name, reasons)
	f.Data = struct {
		Rule string `json:"rule"`
		Hash string `json:"auditHash"`
	}{d.Rule, d.Hash}
	return f
}

// hasNUL is for what no program can be given; the policy has refused it.
func (p *process) hasNUL() bool {
	r := &p.request
	for name, value := range r.Env {
		if strings.IndexByte(name, 0) >= 0 || value != nil && strings.IndexByte(*value, 0) >= 0 {
			return true
		}
	}
	return strings.IndexByte(strings.Join(r.Command, "")+r.Dir, 0) >= 0
}

// unspawned words the supervisor's refusal.
func (p *process) unspawned(r *job.Refusal) *fault {
	switch {
	case r.Errno != 0:
		return p.errno(syscall.Errno(r.Errno))
	case r.Step == "payload":
		return p.errno(syscall.E2BIG)
	}
	return faultOf(codeInternal, "%s: %s", p.family.unspawned, text.Line(r.Error(), maxSaid))
}

// errno is an error of the kernel as Rust's std::io::Error writes it, with the words of strerror(3): those of Go, but for
// the first letter.
func (p *process) errno(e syscall.Errno) *fault {
	words := []rune(e.Error())
	words[0] = unicode.ToUpper(words[0])
	return faultOf(codeInternal, "%s: %s (os error %d)", p.family.unspawned, string(words), int(e))
}

// execResult is the result of command/exec.
type execResult struct {
	ExitCode        int    `json:"exitCode"`
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	StdoutTruncated bool   `json:"stdoutTruncated"`
	StderrTruncated bool   `json:"stderrTruncated"`
	more
}

// exitedParams are those of process/exited.
type exitedParams struct {
	Handle     string `json:"processHandle"`
	ExitCode   int    `json:"exitCode"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	StdoutCap  bool   `json:"stdoutCapReached"`
	StderrCap  bool   `json:"stderrCapReached"`
	DrainTimed bool   `json:"outputDrainTimedOut"`
	more
}

// more is what this server says beyond the protocol, if there is something to say.
type more struct {
	Limit         string   `json:"limit,omitempty"`            // that was met
	Sensitive     []string `json:"sensitiveChanges,omitempty"` // relative to the repository
	SensitiveMore int      `json:"sensitiveChangesMore,omitempty"`
	Incomplete    bool     `json:"sensitiveChangesIncomplete,omitempty"`
	Changes       string   `json:"changesHandle,omitempty"` // of `corral changes`: the command wrote to a layer
}

func (e *ending) more() more {
	if e.record == nil || e.fault != nil {
		return more{}
	}
	r := &e.record.Result
	m := more{Limit: r.Limit, SensitiveMore: r.SensitiveMore, Incomplete: r.SensitiveIncomplete}
	for _, path := range r.Sensitive {
		m.Sensitive = append(m.Sensitive, validText([]byte(path)))
	}
	if e.record.Decision.Spec.Workspace == job.Overlay {
		m.Changes = e.record.Session
	}
	return m
}

// answer is the one to command/exec.
func (e *ending) answer(p *process) []byte {
	if e.fault != nil {
		return errorOf(p.asked, e.fault)
	}
	stdout, stderr := p.out.stream(0), p.out.stream(1)
	return answerOf(p.asked, encode(execResult{
		e.exit, stdout.text(), stderr.text(), stdout.cut, stderr.cut, e.more(),
	}))
}

// note is process/exited. A fault that came too late for an answer is told as a shell would tell it.
func (e *ending) note(p *process) []byte {
	stdout, stderr := p.out.stream(0), p.out.stream(1)
	params := exitedParams{
		p.id, e.exit, stdout.text(), stderr.text(), stdout.cut, stderr.cut, stdout.cutOff || stderr.cutOff, e.more(),
	}
	if e.fault != nil {
		params.Stderr += e.fault.Message + "\n"
	}
	return noteOf(p.family.exited, params)
}

// text is what is kept of a stream, as text: a rune that the cap has cut is left out.
func (s *stream) text() string {
	b := s.kept
	if s.cut {
		for back := 1; back < utf8.UTFMax && back <= len(b); back++ {
			if tail := b[len(b)-back:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					b = b[:len(b)-back]
				}
				break
			}
		}
	}
	return validText(b)
}

// validText has U+FFFD for each part of b that is no UTF-8: of a rune that breaks off, one for all of what is there of it
// (Unicode, 3.9, substitution of maximal subparts).
func validText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var t bytes.Buffer
	t.Grow(len(b) + len(b)/8)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		for r == utf8.RuneError && n > 0 && n < min(len(b), utf8.UTFMax) && !utf8.FullRune(b[:n]) && !utf8.FullRune(b[:n+1]) {
			n++
		}
		t.WriteRune(r)
		b = b[n:]
	}
	return t.String()
}
