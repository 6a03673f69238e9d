package artifact

import (
	"encoding/hex"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
)

// commit stores the artifact.
func (o *Output) commit(r *job.Record) error {
	if o.begin.Exact && (o.captured.Stdout.Truncated || o.captured.Stderr.Truncated) {
		return fmt.Errorf("it has more than %d bytes", o.limit)
	}
	var seals [len(o.streams)]sealed
	for i, st := range o.streams {
		if seals[i] = st.stored; st.failed != nil {
			return st.failed
		}
	}
	m := newManifest(o.handle, &o.begin, r, o.store.now(), o.store.ttl)
	m.Run = newRun(r, o.store.samples, o.handle)
	m.StdoutBytes, m.StdoutSHA256, m.StdoutGap = seals[0].Bytes, hex.EncodeToString(seals[0].SHA256[:]), seals[0].Gap
	m.StderrBytes, m.StderrSHA256, m.StderrGap = seals[1].Bytes, hex.EncodeToString(seals[1].SHA256[:]), seals[1].Gap
	m.TotalStdout, m.StdoutLines = o.captured.Stdout.Bytes, o.captured.Stdout.Lines
	m.TotalStderr, m.StderrLines = o.captured.Stderr.Bytes, o.captured.Stderr.Lines
	t, err := o.pending()
	if err != nil {
		return err
	}
	return o.store.disk.Commit(t, m, [...]int64{seals[0].Size, seals[1].Size})
}

// newManifest describes the outcome of a job; the caller fills in the streams.
func newManifest(handle string, b *BeginOptions, r *job.Record, now time.Time, ttl time.Duration) *Manifest {
	m := &Manifest{
		Version: manifestVersion, ArtifactID: handle, RepoID: b.Repo, Runtime: b.Runtime, Principal: b.Principal,
		Status: string(r.Status), ArgsHash: r.Decision.Args, RelativeCwd: ".",
		DurationMs: max(r.Duration, time.Since(r.Created)).Milliseconds(), PolicyAuditHash: r.Decision.Hash,
		CreatedAt: now.UTC().Truncate(time.Millisecond),
	}
	m.ExpiresAt = m.CreatedAt.Add(ttl)
	if r.Request != nil && r.Request.Dir != "" {
		m.RelativeCwd = r.Request.Dir
	}
	if r.Decision.Code != "" {
		m.CodeSHA256 = &r.Decision.Code
	}
	switch {
	case r.Result.Signal != 0:
		name := unix.SignalName(unix.Signal(r.Result.Signal))
		if name == "" { // real-time signals have no names (signal(7))
			name = fmt.Sprintf("SIG%d", r.Result.Signal)
		}
		m.Signal = &name
	case r.Status == job.Success || r.Status == job.Failure:
		m.ExitCode = &r.Result.ExitCode
	}
	return m
}

// newRun describes the life of a job. samples may be nil.
func newRun(r *job.Record, samples Sampler, handle string) *Run {
	run := &Run{
		Job: r.Result.ID, Limit: r.Result.Limit, Requested: inUTC(r.Created), Decided: inUTC(r.Phases.Decided), Ended: inUTC(r.Phases.Ended),
		CPUMs: -1, Peak: r.Result.Usage.PeakMemory,
	}
	run.Begun = run.Ended.Add(-max(r.Result.Usage.Wall, 0)).Truncate(time.Millisecond)
	if r.Result.Usage.CPU >= 0 {
		run.CPUMs = r.Result.Usage.CPU.Milliseconds()
	}
	if r.Request != nil {
		run.Tool = r.Request.Tool
	}
	if samples == nil {
		return run
	}
	for _, s := range samples.End(handle) {
		one := Sample{AtMs: s.At.Milliseconds(), CPUMs: -1, Memory: s.Memory}
		if s.CPU >= 0 {
			one.CPUMs = s.CPU.Milliseconds()
		}
		run.Samples = append(run.Samples, one)
	}
	return run
}

func inUTC(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
