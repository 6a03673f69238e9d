package rpc

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
	"corral/internal/text"
	"corral/job"
)

// Exit codes of processes that did not exit by themselves, as in timeout(1) and in shells.
const (
	exitTimeout = 124
	exitNoExec  = 126
	exitMissing = 127
	exitSignal  = 128
	exitKilled  = exitSignal + 9
)

// An outcome is the result of a process.
type outcome struct {
	fault  *jsonrpc.Error // the process was not started, or corral failed; else nil
	exit   int
	record *job.Record // may be nil if fault is set
}

// outcome converts the result of Engine.Run to an outcome.
func (p *process) outcome(ctx context.Context, record *job.Record, err error) *outcome {
	e := &outcome{record: record}
	switch {
	case err != nil:
		p.c.s.log(ctx, "process failed", "request", p.request.ID, "principal", p.request.Principal, "error", err.Error())
		e.exit, e.fault = -1, jsonrpc.Errorf(jsonrpc.CodeInternal, "exec failed: %s", text.Line(err.Error(), maxSaid))
	case errors.Is(context.Cause(ctx), errBudget) && p.out.overflow.Load():
		e.exit = exitKilled
		e.fault = jsonrpc.Errorf(jsonrpc.CodeInternal, "the output does not fit into the server's budget of %d bytes: lower outputBytesCap, or stream it with streamStdoutStderr", p.c.s.budget())
	case record.Status == job.Denied:
		e.exit, e.fault = exitNoExec, p.denied(record)
	case record.Refusal != nil:
		e.exit, e.fault = record.Result.ExitCode, p.unspawned(record.Refusal)
	case record.Message != "" && record.Status == job.Failure:
		e.exit = record.Result.ExitCode
		e.fault = jsonrpc.Errorf(jsonrpc.CodeInternal, "%s: %s", p.family.unspawned, text.Line(record.Message, maxSaid))
	case record.Status == job.Lost:
		e.exit, e.fault = -1, jsonrpc.Errorf(jsonrpc.CodeInternal, "exec failed: the supervisor ended while the command ran")
	default:
		e.exit = exitCode(record)
	}
	return e
}

// code returns the error code for the diagnostic log: "" if the process ran and the client is still connected.
func (e *outcome) code(ctx context.Context) string {
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

// denied converts a denial by the policy, the queue or the supervisor to a fault.
func (p *process) denied(r *job.Record) *jsonrpc.Error {
	d := &r.Decision
	reasons := text.Line(strings.Join(d.Reasons, "; "), maxSaid)
	switch {
	case d.Rule == "repo" && p.removed:
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "cwd %s is not in a served repository: the operator has removed it from the configuration", quoted(text.Cut(p.dir, maxWord)))
	case d.Rule == "repo":
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "cwd %s is not in a served repository%s", quoted(text.Cut(p.dir, maxWord)), p.usable)
	case p.hasNUL():
		return jsonrpc.Errorf(jsonrpc.CodeInternal, "%s: nul byte found in provided data", p.family.unspawned)
	case d.Rule == "arguments":
		return p.errno(syscall.E2BIG)
	case r.Refusal != nil && r.Refusal.Step == "cwd" && r.Refusal.Errno != 0 && r.Refusal.Errno != int(syscall.EXDEV):
		return p.errno(syscall.Errno(r.Refusal.Errno))
	case d.Rule == "concurrency":
		return jsonrpc.Errorf(codeBusy, "%s", reasons)
	}
	f := jsonrpc.Errorf(jsonrpc.CodeRequest, "%s denied: %s", p.family.name, reasons)
	f.Data = struct {
		Rule string `json:"rule"`
		Hash string `json:"auditHash"`
	}{d.Rule, d.Hash}
	return f
}

// hasNUL reports whether the command, its environment or its directory contains a NUL byte, which execve(2) cannot pass
// on. The policy denies such a request.
func (p *process) hasNUL() bool {
	r := &p.request
	for name, value := range r.Env {
		if strings.IndexByte(name, 0) >= 0 || value != nil && strings.IndexByte(*value, 0) >= 0 {
			return true
		}
	}
	return strings.IndexByte(strings.Join(r.Command, "")+r.Dir, 0) >= 0
}

// unspawned converts a refusal by the supervisor to a fault.
func (p *process) unspawned(r *job.Refusal) *jsonrpc.Error {
	switch {
	case r.Errno != 0 && r.Step != "session": // "No space left on device" would not say whose, and what to do
		return p.errno(syscall.Errno(r.Errno))
	case r.Step == "payload":
		return p.errno(syscall.E2BIG)
	}
	return jsonrpc.Errorf(jsonrpc.CodeInternal, "%s: %s", p.family.unspawned, text.Line(r.Error(), maxSaid))
}

// errno returns a kernel error in the form that Rust's std::io::Error has, with the text of strerror(3). Go's texts
// differ from those only in the case of the first letter.
func (p *process) errno(e syscall.Errno) *jsonrpc.Error {
	words := []rune(e.Error())
	words[0] = unicode.ToUpper(words[0])
	return jsonrpc.Errorf(jsonrpc.CodeInternal, "%s: %s (os error %d)", p.family.unspawned, string(words), int(e))
}

// execResult is the result of command/exec.
type execResult struct {
	ExitCode        int    `json:"exitCode"`
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	StdoutTruncated bool   `json:"stdoutTruncated"`
	StderrTruncated bool   `json:"stderrTruncated"`
	extension
}

// exitedParams are the parameters of process/exited.
type exitedParams struct {
	Handle     string `json:"processHandle"`
	ExitCode   int    `json:"exitCode"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	StdoutCap  bool   `json:"stdoutCapReached"`
	StderrCap  bool   `json:"stderrCapReached"`
	DrainTimed bool   `json:"outputDrainTimedOut"`
	extension
}

// extension holds the fields that this server adds to the protocol. Empty ones are omitted.
type extension struct {
	Limit         string          `json:"limit,omitempty"`            // the limit that ended the job
	Sensitive     []string        `json:"sensitiveChanges,omitempty"` // sensitive paths that changed, relative to the repository
	SensitiveMore int             `json:"sensitiveChangesMore,omitempty"`
	Incomplete    bool            `json:"sensitiveChangesIncomplete,omitempty"`
	Changes       string          `json:"changesHandle,omitempty"` // for `corral changes`; set if the command wrote to a layer
	Network       *job.NetworkUse `json:"network,omitempty"`       // what the command reached, if it had network access
}

func (e *outcome) extension() extension {
	if e.record == nil || e.fault != nil {
		return extension{}
	}
	r := &e.record.Result
	m := extension{Limit: r.Limit, SensitiveMore: r.SensitiveMore, Incomplete: r.SensitiveIncomplete, Network: r.Network}
	for _, path := range r.Sensitive {
		m.Sensitive = append(m.Sensitive, validText([]byte(path)))
	}
	if e.record.Decision.Spec.Workspace == job.Overlay {
		m.Changes = e.record.Session
	}
	return m
}

// answer returns the response to command/exec.
func (e *outcome) answer(p *process) iter.Seq[[]byte] {
	if e.fault != nil {
		return inPieces(dialect.Error(p.requestID, e.fault))
	}
	stdout, stderr := p.out.stream(0), p.out.stream(1)
	frame := dialect.Result(p.requestID, strictjson.Encode(execResult{
		ExitCode: e.exit, StdoutTruncated: stdout.cut, StderrTruncated: stderr.cut, extension: e.extension(),
	}))
	return inPieces(frame, named{name: "stdout", text: stdout.whole()}, named{name: "stderr", text: stderr.whole()})
}

// exitedNote returns the process/exited notification. If process/spawn was answered before the fault occurred, the fault
// is appended to stderr, as a shell would print it.
func (e *outcome) exitedNote(p *process) iter.Seq[[]byte] {
	stdout, stderr := p.out.stream(0), p.out.stream(1)
	frame := dialect.Notification(p.family.exited, exitedParams{
		Handle: p.id, ExitCode: e.exit, StdoutCap: stdout.cut, StderrCap: stderr.cut,
		DrainTimed: stdout.drainTimedOut || stderr.drainTimedOut, extension: e.extension(),
	})
	fault := ""
	if e.fault != nil {
		fault = e.fault.Message + "\n"
	}
	return inPieces(frame, named{name: "stdout", text: stdout.whole()}, named{name: "stderr", text: stderr.whole(), more: fault})
}

// whole returns the kept part of a stream, without a rune that was split by the cap.
func (s *stream) whole() []byte {
	if !s.cut {
		return s.kept
	}
	return text.Complete(s.kept)
}
