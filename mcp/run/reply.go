package run

import (
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
	"corral/mcp/tool"
	"corral/store/artifact"
)

// An Exit is the part of a reply that says how a job ended.
type Exit struct {
	ExitCode   *int    `json:"exitCode"`
	Signal     *string `json:"signal"`            // signal that ended it, such as SIGTERM
	DurationMs int64   `json:"durationMs"`        // how long it ran
	Message    string  `json:"message,omitempty"` // why it was not run, or what went wrong
}

// An Outcome is the rest of a reply about a job that is the same for all tools.
type Outcome struct {
	ArtifactHandle *string         `json:"artifactHandle"`           // for runtime_query_output
	ArtifactReason string          `json:"artifactReason,omitempty"` // why the output was not kept
	Truncation     truncation      `json:"truncation"`
	PolicyDecision decision        `json:"policyDecision"`
	Usage          usage           `json:"usage"`
	Limit          string          `json:"limit,omitempty"`                      // limit that was reached: memory, pids, output, disk, files, locks or tmp
	Sensitive      []string        `json:"sensitiveChanges,omitempty"`           // paths that it changed and that make tools outside the sandbox run code or behave differently
	SensitiveMore  int             `json:"sensitiveChangesMore,omitempty"`       // how many more
	Incomplete     bool            `json:"sensitiveChangesIncomplete,omitempty"` // not all paths were examined
	Network        *job.NetworkUse `json:"network,omitempty" schema:"outline"`   // what it reached, if it had network access
	overlay
}

type truncation struct {
	Stdout      bool  `json:"stdoutTruncated"`
	Stderr      bool  `json:"stderrTruncated"`
	TotalStdout int64 `json:"totalStdoutBytes"` // what the job wrote
	TotalStderr int64 `json:"totalStderrBytes"`
}

type decision struct {
	AuditHash     string   `json:"auditHash"` // hash of this decision in the audit log
	DeniedReasons []string `json:"deniedReasons,omitempty"`
}

// usage has null for values that the kernel does not provide.
type usage struct {
	WallMs     int64  `json:"wallMs"`
	CPUMs      *int64 `json:"cpuMs"`
	PeakMemory *int64 `json:"peakMemoryBytes"`
	PeakPIDs   *int64 `json:"peakPids"`
	*details
	QueuedMs *int64 `json:"queuedMs,omitempty"` // time in the queue
}

// details are the part of usage that lean replies lack.
type details struct {
	UserMs     *int64 `json:"userMs"`
	SystemMs   *int64 `json:"systemMs"`
	ReadBytes  *int64 `json:"readBytes"`
	WriteBytes *int64 `json:"writeBytes"`
}

// Lean leaves out of a reply what few callers read: details of the usage, and the time in the queue if there was none.
func (r *Outcome) Lean() {
	r.Usage.details = nil
	if q := r.Usage.QueuedMs; q != nil && *q == 0 {
		r.Usage.QueuedMs = nil
	}
}

// OutcomeOf returns a job's status for clients, how it ended, and what it used and changed.
func OutcomeOf(r *job.Record) (job.Status, Exit, *Outcome) {
	u := r.Result.Usage
	status, end := ExitOf(r)
	reply := &Outcome{
		PolicyDecision: decision{r.Decision.Hash, r.Decision.Reasons},
		Usage: usage{
			WallMs: u.Wall.Milliseconds(), CPUMs: ms(u.CPU), PeakMemory: orNil(u.PeakMemory), PeakPIDs: orNil(u.PeakPIDs),
			details: &details{
				UserMs: ms(u.User), SystemMs: ms(u.System), ReadBytes: orNil(u.ReadBytes), WriteBytes: orNil(u.WriteBytes),
			},
			QueuedMs: ms(r.Queued),
		},
		Limit: r.Result.Limit, SensitiveMore: r.Result.SensitiveMore, Incomplete: r.Result.SensitiveIncomplete,
		Network: networkOf(r), overlay: overlayOf(r),
	}
	for _, path := range r.Result.Sensitive {
		reply.Sensitive = append(reply.Sensitive, tool.Clean(path))
	}
	return status, end, reply
}

// ExitOf returns a job's status for clients, and how it ended.
func ExitOf(r *job.Record) (job.Status, Exit) {
	status, end := r.Status, Exit{DurationMs: r.Result.Usage.Wall.Milliseconds(), Message: tool.Clean(r.Message)}
	if end.Message == "" && r.Result.Stopped {
		end.Message = "ended by corral kill"
	}
	if end.Message == "" {
		end.Message = strings.Join(SessionNotes(r), "; ")
	}
	switch r.Status {
	case job.Success, job.Failure:
		if r.Result.ExitCode >= 0 {
			end.ExitCode = &r.Result.ExitCode
		}
	case job.Lost:
		status, end.Message = job.Failure, "the jail ended while the job was running"
	}
	if r.Result.Signal != 0 {
		name := SignalName(r.Result.Signal)
		end.Signal = &name
	}
	return status, end
}

// Capture sets the fields of a reply about the captured output, except the output itself.
func (r *Outcome) Capture(c artifact.Captured) {
	if c.Handle != "" {
		r.ArtifactHandle = &c.Handle
	}
	r.ArtifactReason = tool.Clean(c.Reason)
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

// SignalName returns a signal's name, such as SIGTERM. Real-time signals are numbered.
func SignalName(n int) string {
	if name := unix.SignalName(syscall.Signal(n)); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(n)
}
