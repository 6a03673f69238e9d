package wire

import (
	"cmp"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
)

// JobResult converts r to a job.Result, or to a *job.Refusal if the job was not started. It does not set the lists of
// paths: these are bytes chosen by a job, which the supervisor does not parse.
func (r *Result) JobResult() (job.Result, error) {
	if r.Outcome == Refused {
		return job.Result{}, &job.Refusal{Step: r.Step, Errno: int(r.Errno), Message: r.Message, Hint: r.Hint}
	}
	j := job.Result{
		ID: r.Job, Cgroup: r.Cgroup, ReadOnly: r.ReadOnly, RoomShort: r.RoomShort, Left: r.Left, Status: job.Failure, ExitCode: -1,
		SensitiveMore: int(r.More), SensitiveIncomplete: r.Incomplete, SensitiveMissed: r.Missed,
		Usage: job.Usage{
			Wall: time.Duration(r.Wall), CPU: time.Duration(r.CPU), User: time.Duration(r.User), System: time.Duration(r.System),
			PeakMemory: r.PeakMemory, PeakPIDs: r.PeakPIDs, ReadBytes: r.ReadBytes, WriteBytes: r.WriteBytes,
		},
	}
	switch r.Outcome {
	case Deadline:
		j.Status = job.Timeout
	case Killed:
		j.Status = job.Cancelled
	case Stopped:
		j.Status, j.Stopped = job.Cancelled, true
	case OverDisk:
		j.Limit = job.LimitDisk
	case OverFiles:
		j.Limit = job.LimitFiles
	case OverLocks:
		j.Limit = job.LimitLocks
	case Vanished:
		j.Status = job.Lost
	}
	r.ended(&j)
	return j, nil
}

// ended sets j's exit status or signal, and the limit that was reached.
func (r *Result) ended(j *job.Result) {
	if r.Outcome == Exited {
		status := syscall.WaitStatus(r.WaitStatus)
		if status.Signaled() {
			j.Signal = int(status.Signal())
		} else if j.ExitCode = status.ExitStatus(); j.ExitCode == 0 {
			j.Status = job.Success
		}
	} else {
		j.Signal = cmp.Or(int(r.WaitStatus&0x7f), int(unix.SIGKILL))
	}
	switch {
	case r.OOM:
		if j.Limit, j.UserMemory = job.LimitMemory, r.UserMemory; r.UserMemory > 0 {
			j.Limit = job.LimitUserMemory
		}
		if j.Status != job.Timeout && j.Status != job.Cancelled {
			j.Status = job.Failure
		}
	case j.Limit != "":
	case r.PIDsMax:
		j.Limit = job.LimitPIDs
	case r.LayerFull && j.Status != job.Success: // a job that succeeded was not affected
		j.Limit = job.LimitDisk
	case r.FilesFull:
		j.Limit = job.LimitFiles
	case r.TmpFull != 0 && j.Status != job.Success:
		j.Limit = job.LimitTmp
		for i, dir := range job.PrivateDirs() {
			if r.TmpFull&(1<<i) != 0 {
				j.FullDirs = append(j.FullDirs, dir)
			}
		}
	}
}
