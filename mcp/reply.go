package mcp

import (
	"encoding/json"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
	"corral/store/artifact"
)

// maxText is the maximum number of bytes of a result's JSON that are repeated as text.
const maxText = 64 << 10

// An executeReply is the structuredContent of runtime_execute. Fields that a mode does not have are absent.
type executeReply struct {
	Status         job.Status          `json:"status"`
	ExitCode       *int                `json:"exitCode"`
	Signal         *string             `json:"signal"`
	DurationMs     int64               `json:"durationMs"`
	Message        string              `json:"message,omitempty"`
	OutputLines    *int64              `json:"outputLines,omitempty"`
	OutputBytes    *int64              `json:"outputBytes,omitempty"`
	StdoutSummary  *string             `json:"stdoutSummary,omitempty"`
	StderrSummary  *string             `json:"stderrSummary,omitempty"`
	Excerpts       *[]artifact.Excerpt `json:"excerpts,omitempty"`
	ArtifactHandle *string             `json:"artifactHandle"`
	ArtifactReason string              `json:"artifactReason,omitempty"`
	Truncation     truncation          `json:"truncation"`
	PolicyDecision decision            `json:"policyDecision"`
	Usage          usage               `json:"usage"`
	Limit          string              `json:"limit,omitempty"`
	Sensitive      []string            `json:"sensitiveChanges,omitempty"`
	SensitiveMore  int                 `json:"sensitiveChangesMore,omitempty"`
	Incomplete     bool                `json:"sensitiveChangesIncomplete,omitempty"`
	overlay
}

type truncation struct {
	Stdout      bool  `json:"stdoutTruncated"`
	Stderr      bool  `json:"stderrTruncated"`
	TotalStdout int64 `json:"totalStdoutBytes"`
	TotalStderr int64 `json:"totalStderrBytes"`
}

type decision struct {
	AuditHash     string   `json:"auditHash"`
	DeniedReasons []string `json:"deniedReasons,omitempty"`
}

// usage has null for values that the kernel does not provide.
type usage struct {
	WallMs     int64  `json:"wallMs"`
	CPUMs      *int64 `json:"cpuMs"`
	UserMs     *int64 `json:"userMs"`
	SystemMs   *int64 `json:"systemMs"`
	PeakMemory *int64 `json:"peakMemoryBytes"`
	PeakPIDs   *int64 `json:"peakPids"`
	ReadBytes  *int64 `json:"readBytes"`
	WriteBytes *int64 `json:"writeBytes"`
	QueuedMs   int64  `json:"queuedMs"`
}

// outcome returns the fields of a reply that are the same in every mode.
func outcome(r *job.Record) *executeReply {
	u := r.Result.Usage
	reply := &executeReply{
		Status: r.Status, DurationMs: u.Wall.Milliseconds(), Message: clean(r.Message),
		PolicyDecision: decision{r.Decision.Hash, r.Decision.Reasons},
		Usage: usage{
			WallMs: u.Wall.Milliseconds(), CPUMs: ms(u.CPU), UserMs: ms(u.User), SystemMs: ms(u.System),
			PeakMemory: orNil(u.PeakMemory), PeakPIDs: orNil(u.PeakPIDs),
			ReadBytes: orNil(u.ReadBytes), WriteBytes: orNil(u.WriteBytes), QueuedMs: r.Queued.Milliseconds(),
		},
		Limit: r.Result.Limit, SensitiveMore: r.Result.SensitiveMore, Incomplete: r.Result.SensitiveIncomplete,
	}
	reply.overlay = overlayOf(r)
	if r.Anew && reply.Message == "" {
		reply.Message = sessionReplaced
	}
	for _, path := range r.Result.Sensitive {
		reply.Sensitive = append(reply.Sensitive, clean(path))
	}
	switch r.Status {
	case job.Success, job.Failure:
		if r.Result.ExitCode >= 0 {
			reply.ExitCode = &r.Result.ExitCode
		}
	case job.Lost:
		reply.Status, reply.Message = job.Failure, "the jail ended while the job was running"
	}
	if r.Result.Signal != 0 {
		name := signalName(r.Result.Signal)
		reply.Signal = &name
	}
	return reply
}

// show sets the fields of a reply about the output that its mode has.
func (r *executeReply) show(c artifact.Captured, mode string) {
	if c.Handle != "" {
		r.ArtifactHandle = &c.Handle
	}
	r.ArtifactReason = clean(c.Reason)
	r.Truncation = truncation{c.Stdout.Truncated, c.Stderr.Truncated, c.Stdout.Bytes, c.Stderr.Bytes}
	switch mode {
	case modeMinimal:
		lines, bytes := c.Stdout.Lines+c.Stderr.Lines, c.Stdout.Bytes+c.Stderr.Bytes
		r.OutputLines, r.OutputBytes = &lines, &bytes
	case modeSummary:
		r.StdoutSummary, r.StderrSummary = &c.Stdout.Summary, &c.Stderr.Summary
		if len(c.Excerpts) > 0 {
			r.Excerpts = &c.Excerpts
		}
	case modeIntent:
		r.Excerpts = &c.Excerpts
	}
}

func ms(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	n := d.Milliseconds()
	return &n
}

func orNil(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// signalName returns a signal's name, such as SIGTERM. Real-time signals are numbered.
func signalName(n int) string {
	if name := unix.SignalName(syscall.Signal(n)); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(n)
}

// clean replaces invalid UTF-8 in a string that a job or a client chose.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// replySchema returns the schema of a tool's results. It requires no field, because clients validate errors with it, too.
func replySchema(p properties) json.RawMessage {
	return encode(&schema{Type: "object", Properties: append(p,
		property{"code", &schema{Type: "string", Description: "of an error: what kind it is"}},
		property{"details", &schema{Type: "object", Description: "of an error: about what it is"}},
	)})
}

func integer(about string) *schema  { return &schema{Type: "integer", Description: about} }
func text(about string) *schema     { return &schema{Type: "string", Description: about} }
func boolean(about string) *schema  { return &schema{Type: "boolean", Description: about} }
func nullable(kind string) []string { return []string{kind, "null"} }

func excerptsSchema(about string) *schema {
	return &schema{Type: "array", Description: about, Items: &schema{Type: "object", Properties: properties{
		{"lineStart", integer("first line, counted from 1")},
		{"lineEnd", integer("")},
		{"content", text("")},
		{"source", &schema{Type: "string", Enum: []string{"stdout", "stderr"}}},
		{"fallback", boolean("nothing matched: these are the first lines")},
	}}}
}
