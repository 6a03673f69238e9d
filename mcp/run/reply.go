package run

import (
	"fmt"
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
	Limit          string          `json:"limit,omitempty"`                      // limit that was reached: memory, user_memory, pids, output, disk, files, locks or tmp
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

// NotRun reports whether the program was not executed; then the record has a message.
func NotRun(r *job.Record) bool {
	return r.Status == job.Lost || r.Message != "" && (r.Refusal != nil || r.Status != job.Success && r.Result.ExitCode < 0)
}

// Killed returns what killed a job, "" if it ended by itself.
func Killed(r *job.Record) string {
	limit := limitWords(r)
	switch {
	case r.Result.Stopped:
		return "Ended by corral kill"
	case r.Result.Signal != 0 && limit != "":
		return fmt.Sprintf("Killed by %s (%s reached)", SignalName(r.Result.Signal), limit)
	case r.Result.Signal != 0:
		return "Killed by " + SignalName(r.Result.Signal)
	case r.Status == job.Failure && r.Result.ExitCode == 0: // a limit ended the remaining processes after the first had exited
		return fmt.Sprintf("Killed by SIGKILL (%s reached)", limit)
	}
	return ""
}

// limitWords returns the limit that ended a job, "" if none did.
func limitWords(r *job.Record) string {
	limits := r.Decision.Spec.Limits
	switch r.Result.Limit {
	case job.LimitMemory:
		return "memory limit" + sizeSuffix(limits.Memory)
	case job.LimitUserMemory:
		return "user_memory" + sizeSuffix(r.Result.UserMemory) + " of all jobs together"
	case job.LimitDisk:
		return "disk limit" + sizeSuffix(limits.Disk)
	case job.LimitFiles:
		return "files limit"
	case job.LimitLocks:
		return "limit of record locks"
	case job.LimitPIDs, job.LimitTmp, job.LimitOutput: // these do not end a job
		return ""
	}
	return r.Result.Limit
}

// sizeSuffix returns n as " 2 GiB", "" if n is not known.
func sizeSuffix(n int64) string {
	if n <= 0 {
		return ""
	}
	s := job.FormatSize(n)
	digits := strings.TrimRight(s, "KMGTiB")
	if unit := s[len(digits):]; unit != "" {
		return " " + digits + " " + unit
	}
	return " " + digits + " bytes"
}
