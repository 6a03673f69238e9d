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

// ended describes a result that was not expected.
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
		return Fail, "the job took 100 MB with a limit of " + job.FormatSize(memoryLimit)
	}
	return Degraded, "the job ended, and its limit is not named: " + ended(e)
}

func judgeSession(e *evidence) (Status, string) {
	_, err := os.Lstat(filepath.Join(e.place.Repo(), "layered"))
	switch r := e.result; {
	case err == nil:
		return Fail, "what the job wrote is in the repository"
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
		return Degraded, "none could be started: " + ended(e)
	}
	return OK, detail
}

func judgeCPU(e *evidence) (Status, string) {
	u := e.result.Usage
	if u.CPU < 0 || u.Wall <= 0 {
		return Degraded, "what it used is not known"
	}
	share := float64(u.CPU) / float64(u.Wall)
	detail := fmt.Sprintf("%.0f %% of a CPU with a limit of %d %%", 100*share, cpuLimit/10)
	switch {
	case e.result.Status != job.Timeout:
		return Fail, ended(e)
	// A period's share is given at its start, and the job ends within one.
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
		return Fail, fmt.Sprintf("some of it lived on for %v", e.took.Round(time.Millisecond))
	case e.took > promptly:
		return Degraded, fmt.Sprintf("all of it was gone after %v only", e.took.Round(time.Millisecond))
	}
	return OK, fmt.Sprintf("all of it was gone after %d ms, of which 300 were its own", e.took.Milliseconds())
}

func judgeTmp(e *evidence) (Status, string) {
	size, err := strconv.ParseInt(strings.TrimSpace(e.stdout), 10, 64)
	switch {
	case err != nil:
		return Degraded, "it is not known how much could be written: " + ended(e)
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
	return Degraded, "the job ended, and its limit is not named: " + ended(e)
}

// slow is beyond what any machine takes that does nothing else.
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

// clip is what is shown of a job's output.
func clip(s string) string { return text.Cut(strings.TrimSpace(s), 200) }
