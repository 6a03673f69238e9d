package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A host holds properties of the machine that can be read without privileges.
type host struct {
	kernel     string            // uname -r
	system     string            // PRETTY_NAME of os-release(5)
	memory     int64             // bytes
	namespaces map[string]string // namespaces of this process, as in /proc/self/ns
	landlock   int               // version of the ABI, 0 for none
	swap       bool              // swap is configured
	flaws      map[string]string // flaws of the CPU by name, with the kernel's report on each
	cmdline    string
	core       string            // kernel.core_pattern
	sysctls    map[string]string // values of the settings in hardening
	fileMax    string            // fs.file-max
	subuid     []idRange         // subordinate ids of users, subuid(5)

	authorities []authorityFile // see readAuthorities
}

type idRange struct {
	owner       string
	first, size uint64
}

// kinds are the namespaces that a job must have for itself.
var kinds = []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"}

// hardening lists kernel settings with the minimum that every host should have.
var hardening = []struct {
	name string
	min  int
}{
	{"fs.protected_symlinks", 1},
	{"fs.protected_hardlinks", 1},
	{"fs.protected_fifos", 1},
	{"fs.protected_regular", 1},
	{"kernel.dmesg_restrict", 1},
	{"kernel.kptr_restrict", 1},
	{"kernel.unprivileged_bpf_disabled", 1},
	{"kernel.perf_event_paranoid", 2},
	{"kernel.yama.ptrace_scope", 1},
}

// read returns a file's content without surrounding space, or "" if it cannot be read.
func read(path string) string {
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b))
}

func seeHost(state string) *host {
	h := &host{
		kernel: read("/proc/sys/kernel/osrelease"), landlock: landlockABI(), cmdline: read("/proc/cmdline"),
		core: read("/proc/sys/kernel/core_pattern"), fileMax: read("/proc/sys/fs/file-max"), swap: strings.Count(read("/proc/swaps"), "\n") > 0,
		namespaces: map[string]string{}, flaws: map[string]string{}, sysctls: map[string]string{},
		system: "Linux", subuid: ranges(read("/etc/subuid")),
	}
	for _, kind := range kinds {
		h.namespaces[kind], _ = os.Readlink("/proc/self/ns/" + kind)
	}
	files, _ := filepath.Glob("/sys/devices/system/cpu/vulnerabilities/*")
	for _, f := range files {
		h.flaws[filepath.Base(f)] = read(f)
	}
	for _, s := range hardening {
		h.sysctls[s.name] = read("/proc/sys/" + strings.ReplaceAll(s.name, ".", "/"))
	}
	for line := range strings.Lines(read("/etc/os-release")) {
		if value, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			h.system = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	h.authorities = readAuthorities(state)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		h.memory = int64(info.Totalram) * int64(info.Unit)
	}
	return h
}

func (h *host) describe(facts map[string]fact) Host {
	return Host{
		Kernel: h.kernel, Architecture: runtime.GOARCH, System: h.system, CPUs: runtime.NumCPU(), Memory: h.memory,
		Cgroup: facts["cgroup layout"].detail, Landlock: h.landlock,
	}
}

// landlockABI returns the version of the Landlock ABI, 0 for none (landlock_create_ruleset(2)).
func landlockABI() int {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(version)
}

// A mount is a line of proc_pid_mountinfo(5).
type mount struct {
	point, fsType string
	options       []string // options of the mount, not of the file system
}

func parseMount(line string) (mount, bool) {
	before, after, _ := strings.Cut(line, " - ")
	head, tail := strings.Fields(before), strings.Fields(after)
	if len(head) < 6 || len(tail) < 1 {
		return mount{}, false
	}
	return mount{head[4], tail[0], strings.Split(head[5], ",")}, true
}

// ranges parses the format of subuid(5). Invalid lines are ignored.
func ranges(text string) []idRange {
	var list []idRange
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(f[1], 10, 32)
		size, err2 := strconv.ParseUint(f[2], 10, 32)
		if errors.Join(err1, err2) == nil {
			list = append(list, idRange{f[0], first, size})
		}
	}
	return list
}

// version returns the first two numbers of a kernel's release.
func version(release string) (major, minor int, err error) {
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return 0, 0, fmt.Errorf("kernel release %q is not understood", release)
	}
	return major, minor, nil
}
