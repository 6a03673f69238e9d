package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"corral/internal/text"
	"corral/job"
)

// ended describes an unexpected result.
func ended(e *evidence) string {
	r := e.result
	s := fmt.Sprintf("status %s, exit code %d", r.Status, r.ExitCode)
	if r.Signal != 0 {
		s = fmt.Sprintf("status %s, signal %d", r.Status, r.Signal)
	}
	if r.Limit != "" {
		s += ", limit " + r.Limit
	}
	if e.stderr != "" {
		s += ": " + clip(e.stderr)
	}
	return s
}

func judgeMemory(e *evidence) (Status, string) {
	switch r := e.result; {
	case r.Limit == job.LimitMemory:
		return OK, "100 MB with a limit of " + job.FormatSize(memoryLimit)
	case r.Status == job.Success:
		return Fail, "the job used 100 MB with a limit of " + job.FormatSize(memoryLimit)
	}
	return Degraded, "the job ended without naming the limit: " + ended(e)
}

func judgeSession(e *evidence) (Status, string) {
	_, err := os.Lstat(filepath.Join(e.place.Repo(), "layered"))
	switch r := e.result; {
	case err == nil:
		return Fail, "a file that the job wrote is in the repository"
	case !strings.HasPrefix(e.stdout, "here"):
		return Degraded, "the job could not write: " + ended(e)
	case r.Limit == job.LimitDisk && r.ExitCode != 0:
		return OK, "100 MB on a layer of " + job.FormatSize(layerSize)
	}
	return Fail, "the job wrote 100 MB to a layer of " + job.FormatSize(layerSize) + ": " + ended(e)
}

func judgePIDs(e *evidence) (Status, string) {
	lines := strings.Fields(e.stdout)
	started := 0
	if len(lines) > 0 {
		started, _ = strconv.Atoi(lines[len(lines)-1])
	}
	detail := fmt.Sprintf("%d of 40 with a limit of %d", started, pidsLimit)
	switch {
	case started > pidsLimit:
		return Fail, detail
	case started == 0:
		return Degraded, "no process could be started: " + ended(e)
	}
	return OK, detail
}

func judgeCPU(e *evidence) (Status, string) {
	u := e.result.Usage
	if u.CPU < 0 || u.Wall <= 0 {
		return Degraded, "the CPU time is not known"
	}
	share := float64(u.CPU) / float64(u.Wall)
	detail := fmt.Sprintf("%.0f %% of a CPU with a limit of %d %%", 100*share, cpuLimit/10)
	switch {
	case e.result.Status != job.Timeout:
		return Fail, ended(e)
	// A period's whole share is available at its start, and the job ends within a period.
	case share > 2.2*cpuLimit/1000:
		return Fail, detail
	}
	return OK, detail
}

func judgeDeadline(e *evidence) (Status, string) {
	switch {
	case e.result.Status != job.Timeout:
		return Fail, ended(e)
	case e.took > 2*promptly:
		return Fail, fmt.Sprintf("a process lived for %v", e.took.Round(time.Millisecond))
	case e.took > promptly:
		return Degraded, fmt.Sprintf("the last process ended only after %v", e.took.Round(time.Millisecond))
	}
	return OK, fmt.Sprintf("the last process ended after %d ms, with a deadline of 300 ms", e.took.Milliseconds())
}

func judgeTmp(e *evidence) (Status, string) {
	size, err := strconv.ParseInt(strings.TrimSpace(e.stdout), 10, 64)
	switch {
	case err != nil:
		return Degraded, "the number of bytes written is not known: " + ended(e)
	case size > sizeLimit:
		return Fail, fmt.Sprintf("%d bytes with a limit of %d", size, sizeLimit)
	}
	if _, err := os.Lstat("/tmp/fill"); err == nil {
		return Fail, "/tmp/fill is on the host"
	}
	return OK, fmt.Sprintf("%d of 8000000 bytes", size)
}

func judgeDisk(e *evidence) (Status, string) {
	switch {
	case e.result.Limit == job.LimitDisk:
		return OK, "16 MB with a limit of " + job.FormatSize(sizeLimit)
	case e.result.Status == job.Success:
		return Fail, "the job wrote 16 MB with a limit of " + job.FormatSize(sizeLimit)
	}
	return Degraded, "the job ended without naming the limit: " + ended(e)
}

// slow is longer than a start takes on any idle machine.
const slow = 250 * time.Millisecond

func judgeStart(e *evidence) (Status, string) {
	if len(e.times) == 0 || e.result.Status != job.Success {
		return Fail, ended(e)
	}
	median := e.times[len(e.times)/2]
	detail := fmt.Sprintf("true took %.1f ms, median of %d", float64(median.Microseconds())/1000, len(e.times))
	if median > slow {
		return Degraded, detail
	}
	return OK, detail
}

func ownerOf(path string) (uint32, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Uid, nil
}

// clip returns the part of a job's output to show, at most 200 bytes.
func clip(s string) string { return text.Cut(strings.TrimSpace(s), 200) }
