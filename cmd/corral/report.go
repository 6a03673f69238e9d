package main

import (
	"errors"
	"os"
	"strings"
	"time"

	"corral/internal/text"
	"corral/job"
)

// printJSON prints one object on one line.
func printJSON(v any) error { return text.WriteJSON(os.Stdout, v, "") }

// refused is the status in --json of a job that was not started.
const refused job.Status = "refused"

// object is printed by --json. Bytes of output that are not UTF-8 are replaced by U+FFFD.
type object struct {
	Status           job.Status      `json:"status"`
	ExitCode         *int            `json:"exitCode"`
	Signal           *string         `json:"signal"`
	Stdout           string          `json:"stdout"`
	Stderr           string          `json:"stderr"`
	Usage            *usageJSON      `json:"usage,omitempty"`
	Limit            string          `json:"limit,omitempty"`
	Truncation       *truncation     `json:"truncation,omitempty"`
	SensitiveChanges []string        `json:"sensitiveChanges,omitempty"`
	SensitiveMore    int             `json:"sensitiveChangesMore,omitempty"`
	Incomplete       bool            `json:"sensitiveChangesIncomplete,omitempty"`
	Missed           string          `json:"sensitiveChangesMissed,omitempty"` // the first path that was not examined
	Mounts           []string        `json:"mounts,omitempty"`
	Changes          string          `json:"changes,omitempty"`  // the session id for corral changes
	ReadOnly         bool            `json:"readOnly,omitempty"` // the job requested a writable repository and got a read-only one
	Cgroup           string          `json:"cgroup,omitempty"`
	Network          *job.NetworkUse `json:"network,omitempty"` // what it reached, if it had network access
	Error            *errorJSON      `json:"error,omitempty"`
}

type usageJSON struct {
	WallMS     float64 `json:"wallMs"`
	CPUMS      float64 `json:"cpuMs"`
	UserMS     float64 `json:"userMs"`
	SystemMS   float64 `json:"systemMs"`
	PeakMemory *int64  `json:"peakMemoryBytes"`
	PeakPIDs   *int64  `json:"peakPids"`
	ReadBytes  *int64  `json:"readBytes"`
	WriteBytes *int64  `json:"writeBytes"`
}

type truncation struct {
	StdoutTruncated  bool  `json:"stdoutTruncated"`
	StderrTruncated  bool  `json:"stderrTruncated"`
	TotalStdoutBytes int64 `json:"totalStdoutBytes"`
	TotalStderrBytes int64 `json:"totalStderrBytes"`
}

type errorJSON struct {
	Step    string `json:"step,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func resultObject(r job.Result, run *runOptions, out *streams) object {
	o := object{
		Changes: run.changes,
		Status:  r.Status, Stdout: string(out.stdout.kept), Stderr: string(out.stderr.kept), Limit: r.Limit, Cgroup: r.Cgroup, Network: r.Network,
		ReadOnly: r.ReadOnly, SensitiveChanges: r.Sensitive, SensitiveMore: r.SensitiveMore, Incomplete: r.SensitiveIncomplete,
		Missed: r.SensitiveMissed, Mounts: r.Mounts,
		Usage: &usageJSON{
			WallMS: ms(r.Usage.Wall), CPUMS: ms(r.Usage.CPU), UserMS: ms(r.Usage.User), SystemMS: ms(r.Usage.System),
			PeakMemory: orNull(r.Usage.PeakMemory), PeakPIDs: orNull(r.Usage.PeakPIDs),
			ReadBytes: orNull(r.Usage.ReadBytes), WriteBytes: orNull(r.Usage.WriteBytes),
		},
		Truncation: &truncation{
			StdoutTruncated: out.stdout.dropped > 0, StderrTruncated: out.stderr.dropped > 0,
			TotalStdoutBytes: out.stdout.total, TotalStderrBytes: out.stderr.total,
		},
	}
	if run.keepErr != nil {
		o.Error = errorObject(run.keepErr, out).Error
	}
	if r.Signal != 0 {
		name := signalName(r.Signal)
		o.Signal = &name
	} else {
		o.ExitCode = &r.ExitCode
	}
	return o
}

// errorObject describes why a job was not started, or the output so far of a job whose supervisor is gone.
func errorObject(err error, out *streams) object {
	message, hint, _ := strings.Cut(err.Error(), "\nhint: ")
	o := object{Status: refused, Error: &errorJSON{Message: message, Hint: hint}}
	if errors.Is(err, errLost) {
		o.Status = job.Lost
		o.Stdout, o.Stderr = string(out.stdout.kept), string(out.stderr.kept)
	}
	var refusal *job.Refusal
	if errors.As(err, &refusal) {
		o.Error.Step = refusal.Step
	}
	return o
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// orNull returns nil, which is null in JSON, for a value that the kernel does not report.
func orNull(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}
