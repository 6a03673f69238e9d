package mcp

import (
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
	"corral/store/artifact"
)

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

// capture sets the fields of a reply about the captured output, except the output itself.
func (r *executeReply) capture(c artifact.Captured) {
	if c.Handle != "" {
		r.ArtifactHandle = &c.Handle
	}
	r.ArtifactReason = clean(c.Reason)
	r.Truncation = truncation{c.Stdout.Truncated, c.Stderr.Truncated, c.Stdout.Bytes, c.Stderr.Bytes}
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

func excerptsSchema(about string) *schema {
	return &schema{Type: "array", Description: about, Items: &schema{Type: "object", Properties: properties{
		{"lineStart", integer("first line, counted from 1")},
		{"lineEnd", integer("")},
		{"content", text("")},
		{"source", &schema{Type: "string", Enum: []string{"stdout", "stderr"}}},
		{"fallback", boolean("nothing matched: these are the first lines")},
	}}}
}

// outcomeSchema describes the fields set by outcome, except status, whose values differ per tool.
func outcomeSchema() properties {
	return slices.Concat(properties{
		{"exitCode", &schema{Type: nullable("integer")}},
		{"signal", &schema{Type: nullable("string"), Description: "that ended it: SIGTERM"}},
		{"durationMs", integer("how long it ran")},
		{"message", text("what corral has to say: why it was not run, or what went wrong")},
		{"artifactHandle", &schema{Type: nullable("string"), Description: "for runtime_query_output"}},
		{"artifactReason", text("why the output was not kept")},
		{"truncation", &schema{Type: "object", Properties: properties{
			{"stdoutTruncated", boolean("")},
			{"stderrTruncated", boolean("")},
			{"totalStdoutBytes", integer("what the job wrote")},
			{"totalStderrBytes", integer("")},
		}}},
		{"policyDecision", &schema{Type: "object", Properties: properties{
			{"auditHash", text("of this decision on this request, as in the audit log")},
			{"deniedReasons", &schema{Type: "array", Items: text("")}},
		}}},
		{"usage", usageSchema()},
		{"limit", text("that was met: memory, pids, cpu, output, disk or files")},
		{"sensitiveChanges", &schema{
			Type: "array", Items: text(""),
			Description: "paths it made or changed that make tools outside run code or behave differently",
		}},
		{"sensitiveChangesMore", integer("how many more")},
		{"sensitiveChangesIncomplete", boolean("not everything was looked at")},
	}, overlaySchema())
}

func usageSchema() *schema {
	return &schema{Type: "object", Properties: properties{
		{"wallMs", integer("")},
		{"cpuMs", &schema{Type: nullable("integer")}},
		{"userMs", &schema{Type: nullable("integer")}},
		{"systemMs", &schema{Type: nullable("integer")}},
		{"peakMemoryBytes", &schema{Type: nullable("integer")}},
		{"peakPids", &schema{Type: nullable("integer")}},
		{"readBytes", &schema{Type: nullable("integer")}},
		{"writeBytes", &schema{Type: nullable("integer")}},
		{"queuedMs", integer("how long it waited for a place")},
	}}
}
