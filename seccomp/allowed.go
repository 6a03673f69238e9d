package seccomp

// allowed is what a job may call. Names that exist on one architecture only
// are skipped on the other.
//
// A row with a strict verdict is what "strict" takes away: calls that shells,
// git, Python, C and Go tool chains do without. Of the candidates, splice and
// tee stay (Go's copy between sockets takes any error but EINVAL for final), and
// so do inotify, pidfd and robust futexes (run times use them unasked).
var allowed = []family{
	{
		"bytes", Allow, "", "reading and writing open descriptors",
		`read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2
		lseek sendfile copy_file_range splice tee readahead fadvise64`,
	},
	{
		"open", Allow, "", "opening and making files; no set-id bits by the mode",
		`open openat creat`,
	},
	{
		"descriptors", Allow, "", "the job's own descriptor table; locks and flags",
		`close close_range dup dup2 dup3 fcntl flock pipe pipe2`,
	},
	{
		"devices", Allow, "", "terminals, sockets and attributes of files; no driver's, and no terminal injection",
		`ioctl`,
	},
	{
		"metadata", Allow, "", "looking at files",
		`stat fstat lstat newfstatat statx access faccessat faccessat2 readlink
		readlinkat getdents getdents64 statfs fstatfs`,
	},
	{
		"names", Allow, "", "making, moving and removing names below what is mounted",
		`mkdir mkdirat rmdir rename renameat renameat2 link linkat symlink symlinkat
		unlink unlinkat chdir fchdir getcwd umask`,
	},
	{
		"nodes", Allow, "", "FIFOs, sockets and regular files; never a device",
		`mknod mknodat`,
	},
	{
		"mode", Allow, "", "permissions of own files; no set-id bits",
		`chmod fchmod fchmodat`,
	},
	{
		"times and size", Allow, "", "time stamps, length and allocation of own files",
		`utime utimes futimesat utimensat truncate ftruncate fallocate`,
	},
	{
		"attributes", Allow, "", "user.* attributes; the other name spaces need capabilities",
		`setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr
		llistxattr flistxattr removexattr lremovexattr fremovexattr`,
	},
	{
		"durability", Allow, "", "git, databases and package managers flush what they wrote",
		`fsync fdatasync sync_file_range`,
	},
	{
		"flush all", Allow, Refuse, "package managers; strict: it flushes whole file systems of the host, a load on others",
		`sync syncfs`,
	},
	{
		"watching files", Allow, "", "tail -f, build watchers, language servers",
		`inotify_init inotify_init1 inotify_add_watch inotify_rm_watch`,
	},
	{
		"waiting", Allow, "", "event loops",
		`poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait
		epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd signalfd4 timerfd_create
		timerfd_settime timerfd_gettime`,
	},
	{
		"memory", Allow, "", "the process's own address space; locking is bounded by its rlimit",
		`brk mmap munmap mremap mprotect madvise msync mincore mlock mlock2 munlock
		munlockall pkey_alloc pkey_free pkey_mprotect membarrier get_mempolicy`,
	},
	{
		"memory files", Allow, Refuse, "libffi, Wayland, sealed buffers; strict: code that never had a name on a file system",
		`memfd_create`,
	},
	{
		"processes", Allow, "", "making, running and waiting for processes; no namespaces. execveat also starts the job itself",
		`clone fork vfork execve execveat exit exit_group wait4 waitid`,
	},
	{
		"identity", Allow, "", "asking who one is",
		`getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid
		getgroups getpgid getpgrp getsid setpgid setsid capget`,
	},
	{
		"threads", Allow, "", "what a C library, Go and a JVM need for threads",
		`futex set_robust_list get_robust_list set_tid_address rseq arch_prctl
		sched_yield sched_getaffinity sched_setaffinity sched_getparam
		sched_getscheduler sched_getattr sched_get_priority_max
		sched_get_priority_min sched_rr_get_interval getcpu restart_syscall`,
	},
	{
		"scheduling class", Allow, "", "Mono sets each thread's; the ordinary classes only",
		`sched_setscheduler`,
	},
	{
		"futex vectors", Allow, Refuse, "Windows emulation; strict: young code that little else uses",
		`futex_waitv`,
	},
	{
		"signals", Allow, "", "signals reach the job's own PID namespace and uid only",
		`rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait
		rt_sigqueueinfo rt_tgsigqueueinfo rt_sigsuspend sigaltstack kill tkill tgkill
		pause pidfd_open pidfd_send_signal`,
	},
	{
		"time", Allow, "", "reading clocks, sleeping, timers",
		`time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep alarm
		getitimer setitimer timer_create timer_settime timer_gettime
		timer_getoverrun timer_delete times`,
	},
	{
		"limits", Allow, "", "rlimits can only be lowered, niceness only raised",
		`getrlimit setrlimit prlimit64 getrusage getpriority setpriority ioprio_get`,
	},
	{
		"system", Allow, "", "facts about the machine that programs size themselves by",
		`uname sysinfo getrandom`,
	},
	{
		"sockets", Allow, "", "local and loopback connections; families and options by argument",
		`socket socketpair setsockopt getsockopt bind connect listen accept accept4
		getsockname getpeername sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg
		shutdown`,
	},
	{
		"System V IPC", Allow, Refuse, "databases, fakeroot; own IPC namespace. strict: old kernel code with a record of use-after-free",
		`shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv
		msgctl`,
	},
	{
		"message queues", Allow, Refuse, "POSIX queues in the own IPC namespace; strict: hardly used",
		`mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`,
	},
	{
		"self-confinement", Allow, "", "programs that sandbox themselves further; all of it only takes away",
		`prctl seccomp landlock_create_ruleset landlock_add_rule
		landlock_restrict_self`,
	},
	{
		"personality", Allow, "", "debuggers switch address randomization off; strict: asking only",
		`personality`,
	},
	{
		"tracing", Allow, Refuse, "gdb, strace, LeakSanitizer on the job's own processes; strict: much kernel code for few programs",
		`ptrace`,
	},
	{
		"own identity", Allow, "", "seteuid(3) of one's own id: make does so before it starts a program; without capabilities there is no other to take",
		`setresuid setresgid`,
	},
	{
		"tracer's identity", Allow, Refuse, "strace takes its own uid again before it starts a program; without capabilities there is no other to take",
		`setreuid`,
	},
}
