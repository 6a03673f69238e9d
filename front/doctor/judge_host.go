package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func judgeLandlock(e *evidence) (Status, string) {
	if e.host.landlock == 0 {
		return Degraded, "the kernel has none, or it is disabled"
	}
	return OK, fmt.Sprintf("ABI %d", e.host.landlock)
}

// Names of facts, as reported by the supervisor.
const (
	factLayout = "cgroup layout"
	factKill   = "kill a group"
	factSwap   = "swap accounting"
	factFiles  = "open files"
	factAudit  = "audit log"
	factErrors = "internal errors"
	factExpose = "exposed"
	factUsers  = "user ids"
)

func judgeCgroup(e *evidence) (Status, string) {
	layout := e.facts[factLayout].detail
	detail := layout
	var names []string
	for name, f := range e.facts {
		if !f.present && name != factKill {
			names = append(names, name)
		}
	}
	if slices.Sort(names); len(names) > 0 {
		detail += "; missing: " + strings.Join(names, ", ")
	}
	switch kill, known := e.facts[factKill]; {
	case !known:
		return Degraded, "the supervisor does not report it"
	case !kill.present:
		return Degraded, detail + "; no " + factKill + ": " + kill.detail
	case layout == "v1":
		return Degraded, detail
	}
	return OK, detail
}

func judgeSwap(e *evidence) (Status, string) {
	f, known := e.facts[factSwap]
	switch {
	case !e.host.swap:
		return OK, "the host has none"
	case !known || !f.present:
		return Degraded, "the host has swap that is not accounted to jobs: " + f.detail
	}
	return OK, "accounted to jobs"
}

// judgeOpenFiles compares fs.file-max, which applies to all processes without privileges, with the sum of the supervisor's
// maxima.
func judgeOpenFiles(e *evidence) (Status, string) {
	limit, err := strconv.ParseUint(e.host.fileMax, 10, 64)
	if err != nil {
		return Degraded, "fs.file-max is not known"
	}
	f, known := e.facts[factFiles]
	need, err := strconv.ParseUint(f.detail, 10, 64)
	switch {
	case !known || err != nil:
		return Degraded, "the supervisor does not report how many it needs"
	case limit < need:
		return Degraded, fmt.Sprintf("fs.file-max is %d, less than %d", limit, need)
	}
	return OK, fmt.Sprintf("%d are needed", need)
}

// judgeAudit names the file of the audit log that is removed next: that is how the log is kept within its bound, and no fault.
func judgeAudit(e *evidence) (Status, string) {
	f, known := e.facts[factAudit]
	switch {
	case !known:
		return Degraded, "the supervisor does not report which files it removes"
	case f.detail != "":
		return OK, f.detail + " is removed when the current file is full (audit.keep): copy it to keep it"
	}
	return OK, "no file is about to be removed"
}

// judgeErrors counts the mistakes of the supervisor that ended single jobs, which nobody else may have noticed.
func judgeErrors(e *evidence) (Status, string) {
	f, known := e.facts[factErrors]
	switch {
	case !known:
		return Degraded, "the supervisor does not report them"
	case f.detail != "0":
		return Degraded, f.detail + " since the supervisor started: each ended a job, a session or a connection"
	}
	return OK, "none since the supervisor started"
}

// judgeExposed reports what the supervisor has found in the configuration that it read last.
func judgeExposed(e *evidence) (Status, string) {
	f, known := e.facts[factExpose]
	switch {
	case !known:
		return Degraded, "the supervisor does not report it"
	case f.detail != "":
		return Degraded, f.detail
	}
	return OK, "no socket in a toolchain, no service of this host by the network's rules"
}

// judgeKernel judges the kernel by its series. 5.15 is the first long-term series with id-mapped mounts and cgroup.kill.
// Flaws that need no privilege, such as CVE-2022-0847 (Dirty Pipe) and CVE-2024-1086 (nf_tables), are not fixed in series
// that are no longer maintained.
func judgeKernel(e *evidence) (Status, string) {
	major, minor, err := version(e.host.kernel)
	switch v := major*1000 + minor; {
	case err != nil:
		return Degraded, err.Error()
	case v < 5015:
		return Fail, e.host.kernel + ": older than 5.15, which lacks features that the confinement needs"
	case v < 6001:
		return Degraded, e.host.kernel + ": older than 6.1; flaws such as CVE-2024-1086 are fixed by the distribution or not at all"
	}
	return OK, e.host.kernel
}

func judgeFlaws(e *evidence) (Status, string) {
	var open []string
	for name, state := range e.host.flaws {
		if strings.HasPrefix(state, "Vulnerable") {
			open = append(open, name)
		}
	}
	slices.Sort(open)
	if slices.Contains(strings.Fields(e.host.cmdline), "mitigations=off") {
		return Degraded, "mitigations=off is on the kernel's command line; open: " + strings.Join(open, ", ")
	}
	if len(open) > 0 {
		return Degraded, "open: " + strings.Join(open, ", ")
	}
	return OK, fmt.Sprintf("%d known", len(e.host.flaws))
}

// judgeCrashes checks core_pattern, see core(5): a program that it pipes to runs as root outside all namespaces, on input
// that the crashed program prepared. A core size limit of 0 does not prevent that, but a limit of 1 does (do_coredump in
// fs/coredump.c).
func judgeCrashes(e *evidence) (Status, string) {
	if e.host.core == "" || e.host.core[0] != '|' && e.host.core[0] != '@' {
		return OK, fmt.Sprintf("kernel.core_pattern is %q", clip(e.host.core))
	}
	for line := range strings.Lines(e.section("limits")) {
		if rest, ok := strings.CutPrefix(line, "Max core file size"); ok {
			if f := strings.Fields(rest); len(f) > 0 && f[0] == "1" {
				return OK, "kernel.core_pattern does not apply to jobs"
			}
		}
	}
	return Degraded, fmt.Sprintf("kernel.core_pattern is %q", clip(e.host.core))
}

func judgeHardening(e *evidence) (Status, string) {
	var weak []string
	for _, s := range hardening {
		if v, err := strconv.Atoi(e.host.sysctls[s.name]); err == nil && v < s.min {
			weak = append(weak, fmt.Sprintf("%s=%d", s.name, s.min))
		}
	}
	if len(weak) > 0 {
		return OK, "recommended: " + strings.Join(weak, " ")
	}
	return OK, "nothing to add"
}
