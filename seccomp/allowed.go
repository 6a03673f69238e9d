package seccomp

// allowed lists the calls that a job may make. Names that exist on one architecture only are skipped on the other.
//
// "strict" takes away the rows with a strict verdict: calls that shells, git, Python, C and Go toolchains do without.
// splice and tee remain allowed (Go's copy between sockets falls back only on EINVAL), and so do inotify, pidfd and robust
// futexes (runtimes use them by default).
var allowed = []family{
	{
		"bytes", Allow, "", "reading and writing open descriptors",
		`read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2
		lseek sendfile copy_file_range splice tee readahead fadvise64`,
	},
	{
		"open", Allow, "", "opening and creating files; no set-id bits in the mode",
		`open openat creat`,
	},
	{
		"descriptors", Allow, "", "the job's own descriptor table; locks and flags",
		`close close_range dup dup2 dup3 fcntl flock pipe pipe2`,
	},
	{
		"devices", Allow, "", "terminals, sockets and file attributes; no drivers and no terminal injection",
		`ioctl`,
	},
	{
		"metadata", Allow, "", "inspecting files",
		`stat fstat lstat newfstatat statx access faccessat faccessat2 readlink
		readlinkat getdents getdents64 statfs fstatfs`,
	},
	{
		"names", Allow, "", "creating, moving and removing names within the mounted file systems",
		`mkdir mkdirat rmdir rename renameat renameat2 link linkat symlink symlinkat
		unlink unlinkat chdir fchdir getcwd umask`,
	},
	{
		"nodes", Allow, "", "FIFOs, sockets and regular files; no devices",
		`mknod mknodat`,
	},
	{
		"mode", Allow, "", "permissions of the job's own files; no set-id bits",
		`chmod fchmod fchmodat`,
	},
	{
		"times and size", Allow, "", "time stamps, length and allocation of the job's own files",
		`utime utimes futimesat utimensat truncate ftruncate fallocate`,
	},
	{
		"attributes", Allow, "", "user.* attributes; the other namespaces need capabilities",
		`setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr
		llistxattr flistxattr removexattr lremovexattr fremovexattr`,
	},
	{
		"durability", Allow, "", "git, databases and package managers flush their files",
		`fsync fdatasync sync_file_range`,
	},
	{
		"flush all", Allow, Refuse, "package managers; strict: flushing whole file systems of the host puts load on others",
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
		mlockall munlockall pkey_alloc pkey_free pkey_mprotect membarrier get_mempolicy`,
	},
	{
		"memory files", Allow, Refuse, "libffi, Wayland, sealed buffers; strict: it allows code without a name in any file system",
		`memfd_create`,
	},
	{
		"processes", Allow, "", "creating, running and waiting for processes and threads; no namespaces. execveat also starts the job itself",
		`clone unshare fork vfork execve execveat exit exit_group wait4 waitid`,
	},
	{
		"identity", Allow, "", "reading the process's own IDs",
		`getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid
		getgroups getpgid getpgrp getsid setpgid setsid capget`,
	},
	{
		"users", Allow, "", "browsers, Erlang and X servers set the IDs and capabilities that they already have; without capabilities the kernel refuses others",
		`setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset`,
	},
	{
		"owners", Allow, "", "install and tar set the owner that a file already has; without capabilities the kernel refuses others",
		`chown fchown lchown fchownat`,
	},
	{
		"threads", Allow, "", "C libraries, Go and JVMs need them for threads",
		`futex set_robust_list get_robust_list set_tid_address rseq arch_prctl
		sched_yield sched_getaffinity sched_setaffinity sched_getparam
		sched_getscheduler sched_getattr sched_get_priority_max
		sched_get_priority_min sched_rr_get_interval getcpu restart_syscall`,
	},
	{
		"scheduling class", Allow, "", "Mono sets the class of each thread; the kernel refuses real-time classes, for which the rlimit is 0",
		`sched_setscheduler sched_setparam sched_setattr`,
	},
	{
		"futex vectors", Allow, Refuse, "Windows emulation; strict: young code with few other users",
		`futex_waitv`,
	},
	{
		"signals", Allow, "", "signals reach only processes of the job's own PID namespace and user ID",
		`rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait
		rt_sigqueueinfo rt_tgsigqueueinfo rt_sigsuspend sigaltstack kill tkill tgkill
		pause pidfd_open pidfd_send_signal`,
	},
	{
		"time", Allow, "", "reading clocks, sleeping, timers; without capabilities the kernel refuses to adjust a clock",
		`time gettimeofday clock_gettime clock_getres adjtimex clock_adjtime clock_nanosleep nanosleep alarm
		getitimer setitimer timer_create timer_settime timer_gettime
		timer_getoverrun timer_delete times`,
	},
	{
		"limits", Allow, "", "rlimits can only be lowered, niceness only raised; the kernel refuses real-time I/O",
		`getrlimit setrlimit prlimit64 getrusage getpriority setpriority ioprio_get ioprio_set`,
	},
	{
		"system", Allow, "", "machine facts from which programs choose sizes",
		`uname sysinfo getrandom`,
	},
	{
		"sockets", Allow, "", "local and loopback connections; families and options are limited by argument",
		`socket socketpair setsockopt getsockopt bind connect listen accept accept4
		getsockname getpeername sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg
		shutdown`,
	},
	{
		"System V IPC", Allow, Refuse, "databases, fakeroot; the job has its own IPC namespace. strict: old kernel code with a record of use-after-free",
		`shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv
		msgctl`,
	},
	{
		"message queues", Allow, Refuse, "POSIX queues in the job's own IPC namespace; strict: hardly used",
		`mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`,
	},
	{
		"self-confinement", Allow, "", "programs that sandbox themselves further; these calls can only remove rights",
		`prctl seccomp landlock_create_ruleset landlock_add_rule
		landlock_restrict_self`,
	},
	{
		"personality", Allow, "", "debuggers disable address randomization; strict: query only",
		`personality`,
	},
	{
		"tracing", Allow, Refuse, "gdb, strace, LeakSanitizer on the job's own processes; strict: much kernel code for few programs",
		`ptrace`,
	},
}
