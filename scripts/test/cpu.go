package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// reportCPU is the environment variable that makes `enter` report the processor time of its machine, as the last line of its
// output. The kernel counts it by cgroup. Times of waited-for children would not do: jobs are not children of the test, and take
// most of the time.
const reportCPU = "CORRAL_TEST_CPU"

const cpuFormat = "test machine: CPU %.2f s\n"

var cpuLine = regexp.MustCompile(`^test machine: CPU (\d+\.\d+) s\n$`)

// parseCPU parses a line that `enter` wrote.
func parseCPU(line string) (seconds float64, ok bool) {
	m := cpuLine.FindStringSubmatch(line)
	if m == nil {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(m[1], 64)
	return seconds, err == nil
}

// writeCPU reports the processor time of a machine's groups, if that is asked for.
func writeCPU(groups []hierarchy) {
	if os.Getenv(reportCPU) != "" {
		fmt.Printf(cpuFormat, cpuSeconds(groups)) //nolint:forbidigo // the output of a test process is its standard output
	}
}

// cpuSeconds returns the processor time of a machine's groups, 0 if the kernel does not count it.
func cpuSeconds(groups []hierarchy) (seconds float64) {
	for _, h := range groups {
		// cpuacct.usage has nanoseconds (Documentation/admin-guide/cgroup-v1/cpuacct.rst); the hierarchy may be cpu's, too.
		if b, err := os.ReadFile(filepath.Join(h.group, "cpuacct.usage")); err == nil {
			n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			return time.Duration(n).Seconds()
		}
		b, err := os.ReadFile(filepath.Join(h.group, "cpu.stat")) // of v2, in each group; v1 has another file of this name
		var micro int64
		if _, scanned := fmt.Sscanf(string(b), "usage_usec %d", &micro); err == nil && scanned == nil {
			seconds = max(seconds, (time.Duration(micro) * time.Microsecond).Seconds())
		}
	}
	return seconds
}
