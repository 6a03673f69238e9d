package seccomp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Descriptors that are open in the child.
const (
	socketFD = 100 // a TCP socket
	fileFD   = 101 // a regular file, "file"
)

// lock is a struct flock for a whole file: F_RDLCK is 0.
var lock = strings.Repeat("\x00", 32)

// An attempt is a system call of a job and its expected errno.
type attempt struct {
	call string // name, or empty for nr
	nr   int
	args []any // uint64 or int: a value; string: a pointer to it
	want syscall.Errno
	// strict is the errno under "strict" if it differs.
	strict syscall.Errno
	// bare calls succeed without a filter, so an error is the filter's alone.
	bare bool
}

const high = uint64(1) << 32

var attempts = append([]attempt{
	// Namespaces and mounts.
	{call: "unshare", args: []any{unix.CLONE_NEWUSER}, want: unix.EPERM},
	{call: "unshare", args: []any{unix.CLONE_FILES}, bare: true},
	{call: "setns", args: []any{-1, 0}, want: unix.EPERM},
	{call: "clone", args: []any{unix.CLONE_NEWUSER | unix.CLONE_THREAD}, want: unix.EPERM},
	{call: "clone", args: []any{high | unix.CLONE_NEWUSER | unix.CLONE_THREAD}, want: unix.EPERM},
	{call: "mount", args: []any{0, 0, 0, 0, 0}, want: unix.EPERM},
	{call: "fsopen", args: []any{"tmpfs", -1}, want: unix.EPERM},
	{call: "open_tree", args: []any{unix.AT_FDCWD, ".", 0}, want: unix.EPERM, bare: true},

	// Absent calls.
	{call: "clone3", args: []any{0, 0}, want: unix.ENOSYS},
	{call: "openat2", args: []any{unix.AT_FDCWD, "file", 0, 0}, want: unix.ENOSYS},
	{call: "io_uring_setup", args: []any{1, 0}, want: unix.ENOSYS},
	{call: "io_uring_enter", args: []any{-1, 0, 0, 0, 0}, want: unix.ENOSYS},
	{nr: 452, args: []any{unix.AT_FDCWD, "file", 0o4755, 0}, want: unix.ENOSYS},
	{nr: 1000, want: unix.ENOSYS},
	{nr: x32Bit | 39, want: unix.ENOSYS},
	{call: "_sysctl", want: unix.ENOSYS},
	{call: "io_setup", args: []any{1, 0}, want: unix.ENOSYS},
	{nr: 0x3fffffff, want: unix.ENOSYS},

	// Sockets.
	{call: "socket", args: []any{unix.AF_UNIX, unix.SOCK_STREAM, 0}, bare: true},
	{call: "socket", args: []any{unix.AF_INET, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC, 0}, bare: true},
	{call: "socket", args: []any{unix.AF_NETLINK, unix.SOCK_RAW, 0}, strict: unix.EAFNOSUPPORT, bare: true},
	{call: "socket", args: []any{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}, want: unix.EPROTONOSUPPORT, strict: unix.EAFNOSUPPORT, bare: true},
	{call: "socket", args: []any{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, want: unix.EAFNOSUPPORT},
	{call: "socket", args: []any{high | unix.AF_VSOCK, unix.SOCK_STREAM, 0}, want: unix.EAFNOSUPPORT},
	{call: "socket", args: []any{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, want: unix.EAFNOSUPPORT},
	{call: "socket", args: []any{unix.AF_PACKET, unix.SOCK_RAW, 0}, want: unix.EAFNOSUPPORT},
	{call: "socket", args: []any{unix.AF_INET, high | unix.SOCK_RAW, unix.IPPROTO_TCP}, want: unix.EPERM},
	{call: "socket", args: []any{unix.AF_INET, unix.SOCK_DGRAM, 136}, want: unix.EPROTONOSUPPORT},     // UDP-Lite
	{call: "socket", args: []any{unix.AF_INET, unix.SOCK_SEQPACKET, 132}, want: unix.ESOCKTNOSUPPORT}, // SCTP
	{call: "socketpair", args: []any{unix.AF_INET, unix.SOCK_STREAM, 0, lock}, want: unix.EOPNOTSUPP},
	{call: "socketpair", args: []any{unix.AF_TIPC, unix.SOCK_STREAM, 0, 0}, want: unix.EAFNOSUPPORT},
	{call: "setsockopt", args: []any{socketFD, unix.IPPROTO_TCP, tcpULP, "tls", 3}, want: unix.EPERM},
	{call: "setsockopt", args: []any{socketFD, high | unix.IPPROTO_TCP, high | tcpULP, "tls", 3}, want: unix.EPERM},
	{call: "setsockopt", args: []any{socketFD, unix.IPPROTO_TCP, unix.TCP_NODELAY, "\x01\x00\x00", 4}, bare: true},

	{call: "setsockopt", args: []any{socketFD, unix.IPPROTO_TCP, tcpMD5Sig, 0, 0}, want: unix.ENOPROTOOPT},
	{call: "setsockopt", args: []any{socketFD, high | unix.IPPROTO_IPV6, high | ipv6OldOptions, 0, 0}, want: unix.ENOPROTOOPT},
	{call: "setsockopt", args: []any{socketFD, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, "\x00\x00\x00", 4}, want: unix.ENOPROTOOPT, bare: true},
	{call: "setsockopt", args: []any{socketFD, unix.SOL_SOCKET, unix.SO_TIMESTAMPING_NEW, "\x00\x00\x00", 4}, want: unix.ENOPROTOOPT, bare: true},
	{call: "setsockopt", args: []any{socketFD, high | unix.SOL_SOCKET, high | unix.SO_TIMESTAMPING, "\x00\x00\x00", 4}, want: unix.ENOPROTOOPT, bare: true},

	// Filters of the job's own: no listener.
	{call: "seccomp", args: []any{unix.SECCOMP_SET_MODE_FILTER, 0, 0}, want: unix.EFAULT},
	{call: "seccomp", args: []any{unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, 0}, want: unix.EINVAL},
	{call: "seccomp", args: []any{high | unix.SECCOMP_SET_MODE_FILTER, high | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, 0}, want: unix.EINVAL},

	// Locks: no open file description locks.
	{call: "fcntl", args: []any{fileFD, unix.F_OFD_SETLK, lock}, want: unix.EINVAL},
	{call: "fcntl", args: []any{fileFD, high | unix.F_OFD_SETLKW, lock}, want: unix.EINVAL},
	{call: "fcntl", args: []any{fileFD, unix.F_OFD_GETLK, lock}, want: unix.EINVAL},
	{call: "fcntl", args: []any{fileFD, unix.F_SETLK, lock}, bare: true},

	// Terminals: on this regular file, the kernel without a filter returns ENOTTY.
	{call: "ioctl", args: []any{fileFD, unix.TIOCSTI, "x"}, want: unix.EPERM},
	{call: "ioctl", args: []any{fileFD, high | unix.TIOCSTI, "x"}, want: unix.EPERM},
	{call: "ioctl", args: []any{fileFD, unix.TIOCLINUX, "x"}, want: unix.EPERM},
	{call: "ioctl", args: []any{fileFD, unix.TIOCSETD, "xxxx"}, want: unix.EPERM},
	{call: "ioctl", args: []any{fileFD, unix.TCGETS, 0}, want: unix.ENOTTY},
	{call: "ioctl", args: []any{fileFD, 0xc0506617, 0}, want: unix.ENOTTY}, // FS_IOC_ADD_ENCRYPTION_KEY
	{call: "ioctl", args: []any{fileFD, 0xc0045878, 0}, want: unix.ENOTTY}, // FITHAW

	// Core scheduling: a kernel without it returns EINVAL.
	{call: "prctl", args: []any{unix.PR_SCHED_CORE, 1, 0, 0, 0}, want: unix.EINVAL},
	{call: "prctl", args: []any{high | unix.PR_SCHED_CORE, 1, 0, 0, 0}, want: unix.EINVAL},

	// Set-id bits.
	{call: "chmod", args: []any{"file", 0o755}, bare: true},
	{call: "chmod", args: []any{"file", 0o4755}, want: unix.EPERM, bare: true},
	{call: "fchmod", args: []any{fileFD, high | 0o2755}, want: unix.EPERM, bare: true},
	{call: "fchmodat", args: []any{unix.AT_FDCWD, "file", 0o4755}, want: unix.EPERM, bare: true},
	{call: "fchmodat", args: []any{unix.AT_FDCWD, "file", 0o644}, bare: true},
	{call: "open", args: []any{"a", unix.O_CREAT | unix.O_RDWR, 0o4755}, want: unix.EPERM, bare: true},
	{call: "openat", args: []any{unix.AT_FDCWD, "b", unix.O_CREAT | unix.O_RDWR, 0o4755}, want: unix.EPERM, bare: true},
	{call: "openat", args: []any{unix.AT_FDCWD, "c", unix.O_CREAT | unix.O_RDWR, 0o755}, bare: true},
	{call: "openat", args: []any{unix.AT_FDCWD, ".", unix.O_TMPFILE | unix.O_RDWR, 0o2755}, want: unix.EPERM, bare: true},
	{call: "creat", args: []any{"d", 0o6755}, want: unix.EPERM, bare: true},

	// Nodes and owners.
	{call: "mknodat", args: []any{unix.AT_FDCWD, "fifo", unix.S_IFIFO | 0o600, 0}, bare: true},
	{call: "mknodat", args: []any{unix.AT_FDCWD, "null", unix.S_IFCHR | 0o600, 0x103}, want: unix.EPERM},
	{call: "renameat2", args: []any{unix.AT_FDCWD, "fifo", unix.AT_FDCWD, "moved", unix.RENAME_NOREPLACE}, bare: true},
	{call: "renameat2", args: []any{unix.AT_FDCWD, "moved", unix.AT_FDCWD, "again", unix.RENAME_WHITEOUT}, want: unix.EINVAL, bare: true},
	{call: "renameat2", args: []any{unix.AT_FDCWD, "no", unix.AT_FDCWD, "n", high | unix.RENAME_WHITEOUT}, want: unix.EINVAL},
	{call: "fchownat", args: []any{unix.AT_FDCWD, "file", -1, -1, 0}, bare: true},

	// The IDs that the process already has: the kernel decides.
	{call: "fchownat", args: []any{unix.AT_FDCWD, "file", 5, 60, 0}, want: unix.EPERM},
	{call: "setresuid", args: []any{-1, -1, -1}, bare: true},
	{call: "setreuid", args: []any{-1, -1}, bare: true},
	{call: "setuid", args: []any{-1}, want: unix.EINVAL},
	{call: "setfsuid", args: []any{-1}},
	{call: "capset", args: []any{0, 0}, want: unix.EFAULT},
	{call: "ioprio_set", args: []any{-1, 0, 0}, want: unix.EINVAL},
	{call: "sched_setattr", args: []any{0, 0, 0}, want: unix.EINVAL},
	{call: "mlockall", args: []any{0}, want: unix.EINVAL},

	// Other processes and the kernel.
	{call: "ptrace", args: []any{unix.PTRACE_CONT, 0, 0, 0}, want: unix.ESRCH, strict: unix.EPERM},
	{call: "process_vm_readv", args: []any{0, 0, 0, 0, 0, 0}, want: unix.ENOSYS},
	{call: "keyctl", args: []any{unix.KEYCTL_GET_KEYRING_ID, -1, 0}, want: unix.ENOSYS},
	{call: "bpf", args: []any{0, 0, 0}, want: unix.EPERM},
	{call: "perf_event_open", args: []any{0, 0, 0, 0, 0}, want: unix.EPERM},
	{call: "userfaultfd", args: []any{-1}, want: unix.EPERM},
	{call: "personality", args: []any{0xffffffff}, bare: true},
	{call: "personality", args: []any{0x0400000}, want: unix.EPERM, bare: true},

	// Huge pages: a host without a pool returns ENOMEM, one without the feature EINVAL.
	{call: "mmap", args: []any{0, 4096, unix.PROT_READ, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_HUGETLB, -1, 0}, want: unix.ENOMEM},
	{call: "mmap", args: []any{0, 4096, unix.PROT_READ, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS, -1, 0}, bare: true},
	{call: "memfd_create", args: []any{"m", unix.MFD_HUGETLB}, want: unix.EINVAL, strict: unix.EPERM},

	// Calls that only strict refuses.
	{call: "memfd_create", args: []any{"m", 0}, strict: unix.EPERM, bare: true},
	{call: "shmctl", args: []any{-1, 0, 0}, want: unix.EINVAL, strict: unix.EPERM},
	{call: "personality", args: []any{0}, strict: unix.EPERM, bare: true},
}, attemptsOfRefused()...)

// attemptsOfRefused returns an attempt of each call that no profile allows, with arguments that the kernel refuses.
func attemptsOfRefused() (list []attempt) {
	for _, f := range refused {
		want := map[Verdict]syscall.Errno{Refuse: unix.EPERM, Absent: unix.ENOSYS}[f.verdict]
		for _, r := range f.rules(defaultProfile) {
			list = append(list, attempt{call: r.Name, args: []any{-1, -1, -1, -1, -1, -1}, want: want})
		}
	}
	return list
}

// try makes the call and returns its errno, or -1 if the architecture lacks it.
func (a attempt) try() int {
	nr := a.nr
	if a.call != "" {
		host, err := findArch(runtime.GOARCH)
		if err != nil {
			return -1
		}
		var ok bool
		if nr, ok = number(a.call, host); !ok {
			return -1
		}
	}
	var words [6]uintptr
	var texts [][]byte // referenced until the call is over
	for i, arg := range a.args {
		switch v := arg.(type) {
		case int:
			words[i] = uintptr(v)
		case uint64:
			words[i] = uintptr(v)
		case string:
			text := append([]byte(v), 0)
			texts = append(texts, text)
			words[i] = uintptr(unsafe.Pointer(&text[0]))
		}
	}
	_, _, errno := unix.Syscall6(uintptr(nr), words[0], words[1], words[2], words[3], words[4], words[5])
	runtime.KeepAlive(texts)
	return int(errno)
}

// tryAll makes all attempts in a child under a profile and returns their errnos.
func tryAll(t *testing.T, profile string) []int {
	t.Helper()
	cmd := child(t, "attempts", profile)
	cmd.Env = append(cmd.Env, childUser+"=ordinary")
	if err := os.WriteFile(cmd.Dir+"/file", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(cmd.Dir+"/file", nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.OpenFile(cmd.Dir+"/file", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket := os.NewFile(uintptr(fd), "socket")
	defer socket.Close()
	// A nil entry of ExtraFiles is a closed descriptor; they begin at 3.
	cmd.ExtraFiles = make([]*os.File, fileFD-3+1)
	cmd.ExtraFiles[socketFD-3] = socket
	cmd.ExtraFiles[fileFD-3] = file
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("child under %q: %v", profile, err)
	}
	var results []int
	if err := json.Unmarshal(out, &results); err != nil || len(results) != len(attempts) {
		t.Fatalf("child under %q printed %q: %v", profile, out, err)
	}
	return results
}

// TestAttempts checks the errnos of real calls under the filter on this kernel.
func TestAttempts(t *testing.T) {
	for _, profile := range Profiles() {
		t.Run(profile, func(t *testing.T) {
			results := tryAll(t, profile)
			for i, a := range attempts {
				want := a.want
				if profile == strictProfile && a.strict != 0 {
					want = a.strict
				}
				if got := syscall.Errno(results[i]); results[i] >= 0 && got != want {
					t.Errorf("%s(%d)%v: errno %d (%v), want %d (%v)", a.call, a.nr, a.args, got, got, want, want)
				}
			}
		})
	}
}

// TestAttemptsWithoutFilter checks that bare calls succeed without a filter.
func TestAttemptsWithoutFilter(t *testing.T) {
	results := tryAll(t, "")
	for i, a := range attempts {
		if a.bare && results[i] > 0 {
			t.Errorf("%s%v: %v without a filter, want success", a.call, a.args, syscall.Errno(results[i]))
		}
	}
}

// answersTable returns the attempts under the default profile that the kernel answers differently to an ordinary user without a filter: a
// row for each family of refused calls, and for each call with refused arguments.
func answersTable(t *testing.T) string {
	inside, outside := tryAll(t, defaultProfile), tryAll(t, "")
	var rows []string
	answers := map[string][]string{} // outside, by row
	tried, different := 0, 0
	for i, a := range attempts {
		if inside[i] < 0 {
			continue // this architecture lacks it
		}
		tried++
		if inside[i] == outside[i] {
			continue
		}
		different++
		row := fmt.Sprintf(" | %s | %s |\n", errnoName(inside[i]), a.reason())
		if answers[row] == nil {
			rows = append(rows, row)
		}
		answer := fmt.Sprintf("`%s` %s", cmp.Or(a.call, strconv.Itoa(a.nr)), errnoName(outside[i]))
		if !slices.Contains(answers[row], answer) {
			answers[row] = append(answers[row], answer)
		}
	}
	table := fmt.Sprintf("%d of %d attempts get another answer.\n\n", different, tried) +
		"| call, and its answer outside | inside | reason |\n|---|---|---|\n"
	for _, row := range rows {
		table += "| " + strings.Join(answers[row], ", ") + row
	}
	return table
}

// reason says why the call is refused, as the other tables name it: its family or, if some of its arguments are refused, the reason of
// these up to a colon.
func (a attempt) reason() string {
	for _, f := range refused {
		if slices.Contains(strings.Fields(f.calls), a.call) {
			return f.name
		}
	}
	reason, _, _ := strings.Cut(argumentReasons[a.call], ":")
	return cmp.Or(reason, "newer than the table")
}

func errnoName(errno int) string {
	if errno == 0 {
		return "succeeds"
	}
	return unix.ErrnoName(syscall.Errno(errno))
}
