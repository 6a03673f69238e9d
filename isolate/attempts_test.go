package isolate

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
)

// An attempt is something that a job tries, in Perl, which is installed everywhere and can make system calls
// directly. The value of code is compared with want: kernel(…) yields the number of the system call's error, or "ok".
//
// layers names the confinement steps each of which alone prevents the attempt: it is refused until all of them are
// left out. "step:n" counts from version n of the kernel's Landlock. An attempt without layers is refused by
// something that cannot be left out here (a read-only mount, a namespace, the jail's own settings). TestMeasures leaves
// out what confines a job and is no step.
type attempt struct {
	name   string
	code   string
	want   string
	layers string
}

// Steps that remove privileges: any of them keeps a job from being the jail's root with its capabilities.
const powerless = "identity own-ids capabilities bounding-set"

// refusedOrDone is appended to a call that more than one layer refuses, with different errors.
const refusedOrDone = ` eq "ok" ? "done" : "refused"`

// call returns the Perl for a system call.
func call(number int, args ...any) string {
	words := []string{fmt.Sprint(number)}
	for i, a := range args {
		word := fmt.Sprint(a)
		if strings.HasPrefix(word, `"`) { // Perl passes only variables to the kernel, which may write to them
			word = fmt.Sprintf("my $a%d = %s", i, word)
		}
		words = append(words, word)
	}
	return "kernel(syscall(" + strings.Join(words, ", ") + "))"
}

// other is the number of a user that the jail has, and none of its first jobs.
const other = host.FirstJobUID + host.JobUIDs - 1

// attempts run one after the other, each in a process of its own. The effects of those that succeed end with the job.
var attempts = []attempt{
	// Refused by the filter only.
	{"clone3", call(unix.SYS_CLONE3, 0, 0), "ENOSYS", "seccomp"},
	{"openat2", call(unix.SYS_OPENAT2, -100, `"/"`, 0, 24), "ENOSYS", "openat2"},
	{"io_uring", call(unix.SYS_IO_URING_SETUP, 0, 0), "ENOSYS", "seccomp"},
	{"other memory", call(unix.SYS_PROCESS_VM_READV, "$$", 0, 0, 0, 0, 0), "ENOSYS", "seccomp"},
	{"add a key", call(unix.SYS_ADD_KEY, `"user"`, `"x"`, `"x"`, 1, -1), "ENOSYS", "seccomp"},
	{"session keyring", call(unix.SYS_KEYCTL, 0, -3, 0), "ENOSYS", "seccomp"},
	{"kernel AIO", `my $id = "\0" x 8; ` + call(unix.SYS_IO_SETUP, 1, "$id"), "ENOSYS", "seccomp"},
	{"file handle", `my $h = pack("Ii", 0, 0) . "\0" x 8; ` + call(unix.SYS_NAME_TO_HANDLE_AT, -100, `"/"`, "$h", `"\0" x 4`, 0), "ENOSYS", "seccomp"},
	{"netlink", call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC), "EPROTONOSUPPORT", "seccomp"},
	{"netlink, high bits", call(unix.SYS_SOCKET, "0x100000010", unix.SOCK_RAW, unix.NETLINK_GENERIC), "EPROTONOSUPPORT", "seccomp"},
	{"terminal input", call(unix.SYS_IOCTL, 0, unix.TIOCSTI, `"x"`), "EPERM", "seccomp"},
	{"line discipline", call(unix.SYS_IOCTL, 0, unix.TIOCSETD, 0), "EPERM", "seccomp"},
	{"lock of an open file", `open(my $f, "+>", "/tmp/locked"); ` + call(unix.SYS_FCNTL, "fileno($f)", unix.F_OFD_SETLK, `"\0" x 32`), "EINVAL", "seccomp"},
	{"set-user-id bit", `open(my $f, ">", "/tmp/set-id"); kernel(chmod(04755, "/tmp/set-id") ? 0 : -1)`, "EPERM", "seccomp"},
	{"personality", call(unix.SYS_PERSONALITY, 0x0400000), "EPERM", "seccomp"},

	// Refused by the filter and for lack of privilege.
	{"mount namespace", call(unix.SYS_UNSHARE, unix.CLONE_NEWNS), "EPERM", "seccomp " + powerless},
	{"host name", call(unix.SYS_SETHOSTNAME, `"x"`, 1), "EPERM", "seccomp " + powerless},

	// Refused for lack of privilege only.
	{"be root", call(unix.SYS_SETUID, 0), "EPERM", "identity"},
	{"be somebody else", call(unix.SYS_SETUID, other) + refusedOrDone, "refused", powerless},
	{"be in a group", `my $g = pack("I", 0); ` + call(unix.SYS_SETGROUPS, 1, "$g"), "EPERM", powerless},
	{"give a file away", `my $name = "x"; my $fd = ` + fmt.Sprintf("syscall(%d, $name, 0); ", unix.SYS_MEMFD_CREATE) + call(unix.SYS_FCHOWN, "$fd", other, other) + refusedOrDone, "refused", "seccomp " + powerless},
	{"signal to process 1", "kernel(kill(0, 1) ? 0 : -1)", "EPERM", "identity landlock:6"},

	// Each checks one property that one step establishes.
	{"not root", `$< == 0 ? "root" : "nobody"`, "nobody", "identity"},
	{"bounding set", `status("CapBnd")`, "0000000000000000", "bounding-set own-ids"},
	{"effective capabilities", `status("CapEff")`, "0000000000000000", powerless},
	{"inheritable capabilities", `status("CapInh")`, "0000000000000000", ""},
	{"timer slack", fmt.Sprintf("syscall(%d, %d, 0, 0, 0, 0)", unix.SYS_PRCTL, unix.PR_GET_TIMERSLACK), "50000", "dispositions"},
	{"Landlock", "landlocks()", "15", "landlock"},
	{"open files", `my @f; while (@f < 200 && open(my $f, "<", "/")) { push @f, $f } @f < 200 ? kernel(-1) : "ok"`, "EMFILE", "rlimits"},
	{"real-time class", `my $p = pack("I", 1); ` + call(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_FIFO, "$p"), "EPERM", ""},
	{"real-time I/O", call(unix.SYS_IOPRIO_SET, 1, 0, 1<<13), "EPERM", ""},
	{"raise a limit", `my $l = pack("QQ", 1 << 20, 1 << 20); ` + call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, "$l", 0), "EPERM", ""},
	{"kernel addresses", `shown("/proc/kallsyms")`, "hidden", "proc-masks"},
	{"boot parameters", `shown("/proc/cmdline")`, "hidden", "proc-masks"},
	{"kernel settings", `open(my $f, "+<", "/proc/sys/kernel/ns_last_pid") ? "ok" : kernel(-1)`, "EROFS", "proc-sys"},
	{"processes of others", `readlink("/proc/self") == $$ ? "own" : "others"`, "own", "proc"},
	{"domain name", `my $u = "\0" x 390; syscall(` + fmt.Sprint(unix.SYS_UNAME) + `, $u); unpack("Z65", substr($u, 325))`, "", "host-name"},
	{"loopback", "loopback()", "ok", "loopback"},
	{"copies of sent data", "copies()", "none", "socket-settings"},
	{"control group", `open(my $f, "<", "/proc/self/cgroup"); join("", map { m{:/$} ? () : $_ } <$f>) ? "shown" : "hidden"`, "hidden", "cgroup-namespace"},
	{"temporary files", `open(my $f, ">", "/tmp/x") ? "ok" : kernel(-1)`, "ok", "private-directories"},
	{"home", `-d "/home/job" ? "ok" : kernel(-1)`, "ok", "home"},
	{"terminals", `open(my $f, "+<", "/dev/ptmx") ? "ok" : kernel(-1)`, "ok", "devpts"},
	{"descriptors", `join(" ", @FD)`, "0 1 2", ""}, // process 2 starts without descriptors, and those it receives close at exec
	{"working directory", `(stat("."))[1] == $ENV{INODE} ? "repository" : "elsewhere"`, "repository", "cwd"},
	{"size of /tmp", `open(my $f, ">", "/tmp/big"); syswrite($f, "x" x (1 << 20)) && syswrite($f, "x" x (1 << 20)) ? "ok" : kernel(-1)`, "ENOSPC", "tmp-size"},

	{"files of /tmp", `my $n = 0; while ($n < 200 && open(my $f, ">", "/tmp/n$n")) { $n++ } my $v = $n < 200 ? kernel(-1) : "ok"; unlink "/tmp/n$_" for 0..$n; $v`, "ENOSPC", "tmp-size"},
	{"size of a file", `$SIG{XFSZ} = "IGNORE"; my $name = "x"; my $fd = ` + fmt.Sprintf("syscall(%d, $name, 0); ", unix.SYS_MEMFD_CREATE) + call(unix.SYS_FTRUNCATE, "$fd", 8<<20), "EFBIG", "rlimits"},

	// Refused by the filter and by the jail's process 1.
	{"user namespace", call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER) + refusedOrDone, "refused", "seccomp no-user-namespaces"},
	{"user namespace by clone", call(unix.SYS_CLONE, unix.CLONE_NEWUSER|17, 0, 0, 0, 0) + refusedOrDone, "refused", "seccomp no-user-namespaces"},

	// Refused by something that is not a step.
	{"system directory", `open(my $f, ">", "/usr/x") ? "ok" : kernel(-1)`, "EROFS", ""},
	{"a program of the system", `kernel(unlink("/usr/bin/perl") ? 0 : -1)`, "EROFS", ""},
	{"configuration", `kernel(rename("/etc/passwd", "/etc/x") ? 0 : -1)`, "EROFS", ""},
	{"a file in the root", `open(my $f, ">", "/x") ? "ok" : kernel(-1)`, "EROFS", ""},
	{"trace process 1", call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0), "EPERM", ""},
	{"no new privileges", `status("NoNewPrivs")`, "1", ""}, // the jail's process 1 has it set already
	{"disk", call(unix.SYS_MKNODAT, -100, `"/tmp/disk"`, 0o60600, unix.Mkdev(8, 0)) + refusedOrDone, "refused", ""},
	{"network", `use Socket; socket(my $s, PF_INET, SOCK_DGRAM, 0); connect($s, sockaddr_in(53, inet_aton("192.0.2.1"))) ? "ok" : kernel(-1)`, "ENETUNREACH", ""},
	{"chroot", call(unix.SYS_CHROOT, `"/tmp"`), "EPERM", ""},                           // the jail's root does not have that capability either
	{"raw socket", call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, 1), "EPERM", ""}, // the same
	{"memory of process 1", `open(my $f, "<", "/proc/1/mem") ? "ok" : kernel(-1)`, "EACCES", ""},

	// These affect other attempts if they succeed, so they come last.
	{"mount", call(unix.SYS_MOUNT, `"x"`, `"/tmp"`, `"tmpfs"`, 0, 0), "EPERM", "seccomp landlock " + powerless},
	{"unmount", call(unix.SYS_UMOUNT2, `"/tmp"`, unix.MNT_DETACH), "EPERM", "seccomp landlock " + powerless},
	{"remount /proc/sys", call(unix.SYS_MOUNT, `"x"`, `"/proc/sys"`, 0, unix.MS_REMOUNT|unix.MS_BIND, 0), "EPERM", "seccomp landlock " + powerless},
}

// prelude defines the functions that attempts use.
var prelude = fmt.Sprintf(`
use strict; use POSIX (); use Socket;
our @FD = do { opendir(my $d, "/proc/self/fd"); my $own = fileno($d); sort grep { /^\d/ && $_ != $own } readdir($d) };
sub kernel { $_[0] < 0 ? $!+0 : "ok" }
sub status { open(my $f, "<", "/proc/self/status"); for (<$f>) { return $1 if /^$_[0]:\s*(\S+)/ } "?" }
sub shown { my $b; open(my $f, "<", $_[0]) or return "hidden"; sysread($f, $b, 1) ? "shown" : "hidden" }
sub landlocks { # a process can have 16 at most, see landlock(7)
	my $rules = pack("Q", 1); my $fd = syscall(%d, $rules, 8, 0); my $n = 0;
	$n++ while $n < 20 && syscall(%d, $fd, 0) == 0; $n }
sub loopback {
	socket(my $s, PF_INET, SOCK_STREAM, 0); bind($s, sockaddr_in(0, INADDR_LOOPBACK)); listen($s, 1);
	socket(my $c, PF_INET, SOCK_STREAM, 0); connect($c, getsockname($s)) ? "ok" : kernel(-1) }
sub copies { # a control message requests them (SO_TIMESTAMPING); they wait in the queue of errors (MSG_ERRQUEUE)
	socket(my $s, PF_INET, SOCK_DGRAM, 0); bind($s, sockaddr_in(0, INADDR_LOOPBACK)); my $to = getsockname($s);
	my ($data, $flag, $type, $buffer) = ("x", pack("QiiIx4", 20, 1, 37, 2), 0, "\0" x 512);
	my $vector = pack("PQ", $data, 1); my $m = pack("PIx4PQPQix4", $to, length($to), $vector, 1, $flag, 24, 0);
	syscall(%d, fileno($s), $m, 0) == 1 or return "none"; # without a loopback interface
	my $space = pack("PQ", $buffer, 512); my $r = pack("QIx4PQQQix4", 0, 0, $space, 1, 0, 0, 0);
	syscall(%d, fileno($s), $r, 0x2040) < 0 ? "none" : "some" }
sub attempt { my ($name, $code) = @_;
	pipe(my $r, my $w); my $pid = fork;
	if (!$pid) { my $v = eval { $code->() }; $v = "died: $@" if $@; syswrite($w, "$name=$v\n"); POSIX::_exit(0) }
	close $w; print scalar(<$r>) // "$name=killed\n"; waitpid($pid, 0) }
$| = 1;
`, unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_RESTRICT_SELF, unix.SYS_SENDMSG, unix.SYS_RECVMSG)

// program returns the Perl that makes every attempt and prints name=value lines.
func program() string {
	var b strings.Builder
	b.WriteString(prelude)
	for _, a := range attempts {
		fmt.Fprintf(&b, "attempt(%q, sub { no warnings; no strict; %s });\n", a.name, a.code)
	}
	return b.String()
}
