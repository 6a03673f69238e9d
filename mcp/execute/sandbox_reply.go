package execute

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"

	"corral/internal/strictjson"
	safe "corral/internal/text"
)

// A sandboxReply is the outcome of a command; it is the text of the result.
type sandboxReply struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exit_code"`
	Duration int64  `json:"exec_duration_ms"`
}

// reply returns the outcome of a command whose caller asked for a timeout; 0 is none.
func (t *Sandbox) reply(r *job.Record, c *artifact.Captured, asked time.Duration) (*sandboxReply, error) {
	reply := &sandboxReply{Duration: r.Result.Usage.Wall.Milliseconds()}
	switch {
	case r.Status == job.Denied:
		return nil, &tool.Error{Code: tool.CodeDenied, Message: tool.Clean(strings.Join(r.Decision.Reasons, "; "))}
	case c.Over:
		reply.ExitCode = exitOutputLimit
		reply.Stderr = fmt.Sprintf("[ output limit exceeded (%d bytes). Command terminated. No output returned. Re-run with head, tail, or grep to manage output size.]", t.limit())
		return reply, nil
	case r.Status == job.Timeout:
		t.timedOut(reply, r, c)
		if note := timeoutCut(r, asked); note != "" {
			reply.Stderr = appendLine(reply.Stderr, note)
		}
		return reply, nil
	case r.Status == job.Lost:
		return nil, &tool.Error{Code: tool.CodeUnavailable, Message: "the session ended while the command was running: the next command starts a new session"}
	case r.Message != "" && r.Result.ExitCode < 0:
		return nil, &tool.Error{Code: tool.CodeInvalid, Message: tool.Clean(r.Message)}
	}
	reply.Stdout, reply.Stderr = tool.UTF8(c.Stdout.Whole), tool.UTF8(c.Stderr.Whole)
	reply.ExitCode = sandboxExit(r)
	reply.note(r, timeoutCut(r, asked))
	return reply, nil
}

func (t *Sandbox) timedOut(reply *sandboxReply, r *job.Record, c *artifact.Captured) {
	reply.ExitCode, reply.Stderr = exitTimedOut, "[command timed out after "+seconds(r.Decision.Spec.Limits.Wall)+"]"
	if t.Partial {
		reply.Stdout = tool.UTF8(c.Stdout.Whole)
		reply.Stderr = appendLine(tool.UTF8(c.Stderr.Whole), reply.Stderr)
	}
}

// sandboxExit returns the exit code as a shell would report it.
func sandboxExit(r *job.Record) int {
	switch {
	case r.Result.Signal != 0:
		return 128 + r.Result.Signal
	case r.Status == job.Failure && r.Result.ExitCode == 0:
		return 128 + 9 // a limit ended the remaining processes after the first had exited
	}
	return r.Result.ExitCode
}

// seconds returns a timeout as the contract writes it, such as 90s.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s" }

// timeoutCut returns the message about a requested timeout that was above the maximum, or "".
func timeoutCut(r *job.Record, asked time.Duration) string {
	wall := r.Decision.Spec.Limits.Wall
	if asked <= wall || wall <= 0 {
		return ""
	}
	return "corral: timeout cut to " + seconds(wall) + ", the maximum"
}

// note appends corral's messages about the command to stderr: the one that is given, unless it is "", and others.
func (reply *sandboxReply) note(r *job.Record, first string) {
	var lines []string
	if first != "" {
		lines = append(lines, first)
	}
	for _, note := range append(run.SessionNotes(r), run.Left(r)...) {
		lines = append(lines, "corral: "+note)
	}
	if r.Message != "" {
		lines = append(lines, "corral: "+tool.Clean(r.Message))
	}
	if r.Result.Stopped {
		lines = append(lines, "corral: corral kill ended the command")
	}
	switch limit := r.Result.Limit; limit {
	case "", job.LimitOutput, job.LimitTmp:
	case job.LimitPIDs:
		lines = append(lines, "corral: pids limit reached: the command could not start more processes")
	default:
		lines = append(lines, "corral: "+limit+" limit reached: the command was ended")
	}
	if why, hint := r.Result.NoSpace(); why != "" {
		lines = append(lines, "corral: "+why, "hint: "+hint)
	}
	for _, line := range run.Denied(r) {
		lines = append(lines, "corral: "+line)
	}
	if note := r.Result.MountNote(safe.Quote); note != "" {
		lines = append(lines, "corral: "+note)
	}
	for _, note := range r.Result.SensitiveNotes(len(r.Result.Sensitive), safe.Quote, "") {
		lines = append(lines, "corral: "+note)
	}
	for _, line := range lines {
		reply.Stderr = appendLine(reply.Stderr, line) + "\n"
	}
}

// appendLine appends line to text, on a line of its own.
func appendLine(text, line string) string {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + line
}

// text encodes the reply in at most the maximum size of a message. If characters need long escapes in JSON, the ends of the
// streams are cut, and marked.
func (reply *sandboxReply) text() string {
	return fitting(reply.Stdout, reply.Stderr, func(stdout, stderr string) any {
		cut := *reply
		cut.Stdout, cut.Stderr = stdout, stderr
		return cut
	})
}

// fitting encodes the reply that with returns for two streams, which are cut as far as a message requires.
func fitting(stdout, stderr string, with func(stdout, stderr string) any) string {
	for n := max(len(stdout), len(stderr)); ; n /= 2 {
		text := string(strictjson.Encode(with(tool.CutText(stdout, n), tool.CutText(stderr, n))))
		if len(strictjson.Encode(text)) <= tool.MaxMessage-maxEnvelope {
			return text
		}
	}
}

// maxEnvelope is an upper bound of a message's bytes around the text of its result.
const maxEnvelope = 4 << 10
