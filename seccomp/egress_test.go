package seccomp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// refusedEgress judges the arguments of a call of corral-egress, independently of egressConditions.
func refusedEgress(name string, a [6]uint32) bool {
	switch name {
	case "socket":
		return a[0] != 2 && a[0] != 10 || a[1]&15 != 1 && a[1]&15 != 2 || a[2] != 0 && a[2] != 6 && a[2] != 17
	case "clone":
		return a[0]&0x10000 == 0 || a[0]&0x7e020080 != 0
	case "mmap":
		return a[2]&4 != 0 || a[3]&0x40000 != 0
	case "mprotect":
		return a[2]&4 != 0
	case "fcntl":
		return !slices.Contains([]uint32{1030, 1, 2, 3, 4, 1031}, a[1])
	case "pipe2":
		return a[1] != 0x80800
	case "splice":
		return a[5] != 2
	case "sendto":
		return a[3] != 0 && a[3] != 0x4000
	case "openat":
		return a[2]&^0xa88c3 != 0
	case "renameat2":
		return a[4] != 0
	case "unlinkat":
		return a[2] != 0
	case "setsockopt":
		return !slices.Contains(map[uint32][]uint32{1: {2, 6, 9, 13}, 6: {1, 4, 5, 6}, 41: {26}}[a[1]], a[2])
	}
	panic("no oracle for the arguments of " + name)
}

var egressCases = []struct {
	call string
	args [6]uint64
	want uint32
}{
	{"socket", [6]uint64{2, 0x80801, 0}, wantAllow},
	{"socket", [6]uint64{10, 0x80802, 17}, wantAllow},
	{"socket", [6]uint64{1, 1, 0}, wantEPERM},   // AF_UNIX
	{"socket", [6]uint64{16, 3, 0}, wantEPERM},  // AF_NETLINK
	{"socket", [6]uint64{40, 1, 0}, wantEPERM},  // AF_VSOCK
	{"socket", [6]uint64{2, 3, 6}, wantEPERM},   // raw
	{"socket", [6]uint64{2, 1, 262}, wantEPERM}, // MPTCP
	{"clone", [6]uint64{0x50f00}, wantAllow},    // a thread of Go
	{"clone", [6]uint64{17}, wantEPERM},         // fork
	{"clone", [6]uint64{0x4111}, wantEPERM},     // vfork
	{"clone", [6]uint64{0x50050f00}, wantEPERM}, // a thread, and namespaces
	{"mmap", [6]uint64{0, 4096, 3, 0x22}, wantAllow},
	{"mmap", [6]uint64{0, 4096, 5, 0x22}, wantEPERM},
	{"mmap", [6]uint64{0, 4096, 3, 0x40022}, wantEPERM},
	{"mprotect", [6]uint64{0, 4096, 3}, wantAllow},
	{"mprotect", [6]uint64{0, 4096, 7}, wantEPERM},
	{"fcntl", [6]uint64{0, 1030}, wantAllow},
	{"fcntl", [6]uint64{0, 1031}, wantAllow}, // F_SETPIPE_SZ
	{"fcntl", [6]uint64{0, 8}, wantEPERM},    // F_SETOWN: signals to others
	{"pipe2", [6]uint64{0, 0x80800}, wantAllow},
	{"pipe2", [6]uint64{0, 0x80880}, wantEPERM}, // O_NOTIFICATION_PIPE
	{"splice", [6]uint64{3, 0, 4, 0, 1, 2}, wantAllow},
	{"splice", [6]uint64{3, 0, 4, 0, 1, 10}, wantEPERM}, // SPLICE_F_GIFT
	{"sendto", [6]uint64{3, 0, 1, 0x4000}, wantAllow},
	{"sendto", [6]uint64{3, 0, 1, 0}, wantAllow},
	{"sendto", [6]uint64{3, 0, 1, 1}, wantEPERM},          // MSG_OOB
	{"sendto", [6]uint64{3, 0, 1, 0x20000000}, wantEPERM}, // MSG_FASTOPEN
	{"setsockopt", [6]uint64{3, 1, 13}, wantAllow},        // SO_LINGER
	{"setsockopt", [6]uint64{3, 6, 1}, wantAllow},         // TCP_NODELAY
	{"setsockopt", [6]uint64{3, 6, 31}, wantEPERM},        // TCP_ULP
	{"setsockopt", [6]uint64{3, 1, 26}, wantEPERM},        // SO_ATTACH_FILTER
	{"setsockopt", [6]uint64{3, 1, 36}, wantEPERM},        // SO_MARK
	{"setsockopt", [6]uint64{3, 0, 1}, wantEPERM},         // IP_TOS
	{"setsockopt", [6]uint64{3, 41, 26}, wantAllow},
}

// storeCases are those of EgressStore in addition.
var storeCases = []struct {
	call string
	args [6]uint64
	want uint32
}{
	{"openat", [6]uint64{5, 0, 0xa0000}, wantAllow},  // O_NOFOLLOW|O_CLOEXEC on amd64
	{"openat", [6]uint64{5, 0, 0x888c1}, wantAllow},  // to write a new file, on arm64
	{"openat", [6]uint64{5, 0, 0x200000}, wantEPERM}, // O_PATH
	{"openat", [6]uint64{5, 0, 0x400002}, wantEPERM}, // O_TMPFILE
	{"openat", [6]uint64{5, 0, 0x10000}, wantEPERM},  // O_DIRECTORY on amd64
	{"openat", [6]uint64{5, 0, 0x4000}, wantEPERM},   // and on arm64
	{"openat", [6]uint64{5, 0, 0x201}, wantEPERM},    // O_TRUNC
	{"renameat2", [6]uint64{5, 0, 5, 0, 0}, wantAllow},
	{"renameat2", [6]uint64{5, 0, 5, 0, 2}, wantEPERM}, // RENAME_EXCHANGE
	{"unlinkat", [6]uint64{5, 0, 0}, wantAllow},
	{"unlinkat", [6]uint64{5, 0, 0x200}, wantEPERM}, // AT_REMOVEDIR
}

// TestEgressProfile compares the program with the oracle for every call, and for its argument rules, each of which has a row that
// is allowed and one that is refused.
func TestEgressProfile(t *testing.T) {
	for _, profile := range []string{Egress, EgressStore} {
		cases, conditions := egressCases, egressConditions
		if profile == EgressStore {
			cases, conditions = slices.Concat(cases, storeCases), slices.Concat(conditions, storeConditions)
		}
		for _, a := range arches {
			o, m := newOracle(t, profile, a.name), load(compile(t, profile, a.name))
			for _, nr := range callNumbers() {
				expect(t, o, m, seccompData{nr: nr, arch: audits[a.name]})
			}
			seen := map[string]map[uint32]bool{}
			for _, c := range cases {
				nr, ok := numberOf(o, c.call)
				if !ok {
					t.Fatalf("%s has no %s", a.name, c.call)
				}
				for _, d := range highBits(seccompData{nr: nr, arch: audits[a.name], args: c.args}) {
					if got, err := m.run(d); err != nil || got != c.want {
						t.Errorf("%s: %s%#x: action %s (%v), want %s", a.name, c.call, d.args, actionNames[got], err, actionNames[c.want])
					}
					expect(t, o, m, d)
				}
				if seen[c.call] == nil {
					seen[c.call] = map[uint32]bool{}
				}
				seen[c.call][c.want] = true
			}
			for _, c := range conditions {
				if !seen[c.call][wantAllow] || !seen[c.call][wantEPERM] {
					t.Errorf("%s: rows have %v, want one allowed and one refused", c.call, seen[c.call])
				}
			}
		}
	}
}

// TestEgressCalls lists what the profile has. A change of the list is one to what a program can do that jobs may have taken over.
func TestEgressCalls(t *testing.T) {
	var got []string
	once := map[string]int{}
	for _, r := range Table(Egress) {
		once[r.Name]++
		if r.Verdict == Allow || r.Verdict == ByArgument {
			got = append(got, r.Name)
		}
		if r.Reason == "" || r.Family == "" || (r.Verdict == ByArgument) != (r.Condition != "") {
			t.Errorf("%+v", r)
		}
	}
	for _, r := range Table(defaultProfile) {
		if once[r.Name] != 1 {
			t.Errorf("%s has %d rules, want 1", r.Name, once[r.Name])
		}
	}
	slices.Sort(got)
	want := []string{
		"accept4", "bind", "clock_gettime", "clock_nanosleep", "clone", "close", "connect", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait",
		"eventfd2", "exit", "exit_group", "fcntl", "futex", "getpeername", "getpid", "getrandom", "getsockname", "getsockopt", "gettid",
		"gettimeofday", "listen", "madvise", "mmap", "mprotect", "munmap", "nanosleep", "pipe2", "poll", "ppoll", "read", "readv", "recvfrom",
		"recvmsg", "restart_syscall", "rseq", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sched_getaffinity", "sched_yield", "sendto",
		"set_robust_list", "setsockopt", "shutdown", "sigaltstack", "socket", "splice", "tgkill", "write", "writev",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	var more []string
	for _, r := range Table(EgressStore) {
		if r.Verdict == Allow || r.Verdict == ByArgument {
			more = append(more, r.Name)
		}
	}
	want = append(want, "fstat", "getdents64", "openat", "renameat2", "unlinkat", "utimensat")
	if slices.Sort(more); !slices.Equal(more, slices.Sorted(slices.Values(want))) {
		t.Errorf("with a store: got %q\nwant %q", more, want)
	}
	if slices.Contains(Profiles(), Egress) || slices.Contains(Profiles(), EgressStore) {
		t.Error("a job can request a profile of corral-egress")
	}
	if ahead, last, err := Split(Egress, "amd64"); !errors.Is(err, ErrProfile) || ahead != nil || last != nil {
		t.Errorf("Split returns %v", err)
	}
}

// TestVerifyEgress checks that a fault in any instruction of the program is found.
func TestVerifyEgress(t *testing.T) {
	for _, profile := range []string{Egress, EgressStore} {
		for _, a := range arches {
			program := compile(t, profile, a.name)
			for i := 0; i < len(program); i += instructionSize {
				faulty := slices.Clone(program)
				fault(faulty[i : i+instructionSize])
				if verify(load(faulty), profile, a) == nil {
					t.Errorf("%s: verify accepts a fault in instruction %d (%x)", a.name, i/instructionSize, program[i:i+instructionSize])
				}
			}
		}
	}
}

// egressAttempts are calls that a program that was taken over would make. All of them fail, most with EPERM.
var egressAttempts = []attempt{
	{call: "execve", args: []any{"/bin/true", 0, 0}, want: unix.EPERM},
	{call: "execveat", args: []any{unix.AT_FDCWD, "/bin/true", 0, 0, 0}, want: unix.EPERM},
	{call: "openat", args: []any{unix.AT_FDCWD, "/etc/passwd", unix.O_RDONLY, 0}, want: unix.EPERM},
	{call: "openat", args: []any{unix.AT_FDCWD, "new", unix.O_CREAT | unix.O_RDWR, 0o600}, want: unix.EPERM},
	{call: "openat2", args: []any{unix.AT_FDCWD, "/etc/passwd", 0, 0}, want: unix.ENOSYS},
	{call: "newfstatat", args: []any{unix.AT_FDCWD, "/etc/passwd", 0, 0}, want: unix.EPERM},
	{call: "pipe2", args: []any{0, 0}, want: unix.EPERM},
	{call: "tee", args: []any{-1, -1, 1, 0}, want: unix.EPERM},
	{call: "vmsplice", args: []any{-1, 0, 0, 0}, want: unix.ENOSYS},
	{call: "memfd_create", args: []any{"m", 0}, want: unix.EPERM},
	{call: "sendmsg", args: []any{-1, 0, 0}, want: unix.EPERM},
	{call: "sendmmsg", args: []any{-1, 0, 0, 0}, want: unix.EPERM},
	{call: "sendto", args: []any{-1, "x", 1, unix.MSG_OOB, 0, 0}, want: unix.EPERM},
	{call: "sendto", args: []any{-1, "x", 1, 0, 0, 0}, want: unix.EBADF},
	{call: "socket", args: []any{unix.AF_UNIX, unix.SOCK_STREAM, 0}, want: unix.EPERM},
	{call: "socket", args: []any{unix.AF_NETLINK, unix.SOCK_RAW, 0}, want: unix.EPERM},
	{call: "socket", args: []any{unix.AF_PACKET, unix.SOCK_RAW, 0}, want: unix.EPERM},
	{call: "socketpair", args: []any{unix.AF_UNIX, unix.SOCK_STREAM, 0, 0}, want: unix.EPERM},
	{call: "ptrace", args: []any{unix.PTRACE_TRACEME, 0, 0, 0}, want: unix.EPERM},
	{call: "process_vm_readv", args: []any{0, 0, 0, 0, 0, 0}, want: unix.ENOSYS},
	{call: "process_vm_writev", args: []any{0, 0, 0, 0, 0, 0}, want: unix.ENOSYS},
	{call: "pidfd_getfd", args: []any{-1, 0, 0}, want: unix.ENOSYS},
	{call: "unshare", args: []any{0}, want: unix.EPERM},
	{call: "setns", args: []any{-1, 0}, want: unix.EPERM},
	{call: "clone", args: []any{int(unix.SIGCHLD), 0, 0, 0, 0}, want: unix.EPERM},
	{call: "clone3", args: []any{0, 0}, want: unix.ENOSYS},
	{call: "io_uring_setup", args: []any{1, 0}, want: unix.ENOSYS},
	{call: "bpf", args: []any{0, 0, 0}, want: unix.EPERM},
	{call: "keyctl", args: []any{unix.KEYCTL_GET_KEYRING_ID, -1, 0}, want: unix.ENOSYS},
	{call: "kill", args: []any{0, 0}, want: unix.EPERM},
	{call: "prctl", args: []any{unix.PR_SET_DUMPABLE, 1, 0, 0, 0}, want: unix.EPERM},
	{call: "prlimit64", args: []any{0, unix.RLIMIT_NOFILE, 0, 0}, want: unix.EPERM},
	{call: "ioctl", args: []any{1, unix.TCGETS, 0}, want: unix.EPERM},
	{call: "mmap", args: []any{0, 4096, unix.PROT_READ | unix.PROT_EXEC, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS, -1, 0}, want: unix.EPERM},
}

// childEgress connects to itself and prints a JSON array with the errno of each attempt.
func childEgress([]string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	echoed := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, err = io.Copy(conn, conn)
			err = errors.Join(err, conn.Close())
		}
		echoed <- err
	}()
	if got, err := say(listener.Addr(), "hello"); err != nil || got != "hello" {
		return errors.Join(err, errors.New("echo is "+got))
	}
	if err := <-echoed; err != nil {
		return err
	}
	results := make([]int, len(egressAttempts))
	for i, a := range egressAttempts {
		results[i] = a.try()
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}

// TestEgressAttempts checks that the kernel refuses the calls under the filter, under which connections work.
func TestEgressAttempts(t *testing.T) {
	cmd := child(t, "egress", Egress)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var got []int
	if err != nil || json.Unmarshal(out, &got) != nil || len(got) != len(egressAttempts) {
		t.Fatalf("%v: %s%s", err, out, stderr.Bytes())
	}
	for i, a := range egressAttempts {
		if errno := syscall.Errno(got[i]); got[i] >= 0 && errno != a.want {
			t.Errorf("%s%v: %v, want %v", a.call, a.args, errno, a.want)
		}
	}
}
