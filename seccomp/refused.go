package seccomp

// refused is what a job may not call. A call needs no line here to be refused;
// it has one so that the reason is known, and so that a test can tell a call
// that was judged from one that was forgotten.
//
// Rows marked "moby allows" are what its default profile has and this lacks.
var refused = []family{
	// ENOSYS: the caller has an older way to do the same.
	{
		"clone3", Absent, "", "its flags are in memory, where a filter cannot look; C libraries fall back to clone",
		`clone3`,
	},
	{
		"openat2", Absent, "", "its mode is in memory, where a filter cannot look: set-id bits; moby allows",
		`openat2`,
	},
	{
		"io_uring", Absent, "", "a ring does calls that no filter sees; eight entries in the record of kernel exploits",
		`io_uring_setup io_uring_enter io_uring_register`,
	},
	{
		"newer than the table", Absent, "", "numbers above the last one judged: C libraries and run times have older ways; moby allows some",
		`cachestat fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue
		statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal
		setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr
		file_setattr listns rseq_slice_yield`,
	},

	// EPERM: things a job is not to do.
	{
		"mounts", Refuse, "", "the job's view is made before it starts",
		`mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount
		fspick mount_setattr`,
	},
	{
		"namespaces", Refuse, "", "a user namespace gives capabilities over kernel code never meant for users",
		`unshare setns sethostname setdomainname`,
	},
	{
		"file handles", Refuse, "", "opening by handle walks around mounts (the shocker exploit of 2014); moby allows name_to_handle_at",
		`name_to_handle_at open_by_handle_at`,
	},
	{
		"fanotify", Refuse, "", "sees files of the whole mount; moby allows fanotify_mark",
		`fanotify_init fanotify_mark`,
	},
	{
		"users", Refuse, "", "the job is one user, without capabilities; moby allows",
		`setuid setgid setregid setfsuid setfsgid
		setgroups capset`,
	},
	{
		"owners", Refuse, "", "files belong to the job's user; tar, cp -p and install cope; moby allows",
		`chown fchown lchown fchownat`,
	},
	{
		"other processes' memory", Refuse, "", "ptrace is the one way, where it is allowed; moby allows process_vm_* and process_mrelease",
		`process_vm_readv process_vm_writev process_madvise process_mrelease kcmp
		pidfd_getfd migrate_pages move_pages`,
	},
	{
		"kernel programs", Refuse, "", "code run in the kernel and its counters",
		`bpf perf_event_open uretprobe uprobe lookup_dcookie`,
	},
	{
		"page fault handling", Refuse, "", "stops the kernel in mid-call, which makes races winnable",
		`userfaultfd`,
	},
	{
		"keyrings", Refuse, "", "keyrings are per uid and session, not per namespace",
		`add_key request_key keyctl`,
	},
	{
		"secret memory", Refuse, "", "memory out of reach of accounting and dumps; moby allows",
		`memfd_secret`,
	},
	{
		"page games", Refuse, "", "gifts user pages to pipes, or remaps files page by page: no user left; moby allows",
		`vmsplice remap_file_pages`,
	},
	{
		"lock all memory", Refuse, "", "defeats reclaim within the job's limit; moby allows",
		`mlockall`,
	},
	{
		"segments", Refuse, "", "16-bit segments, a source of exploits; 64-bit programs have no use for them; moby allows",
		`modify_ldt`,
	},
	{
		"scheduling", Refuse, "", "real-time and deadline classes and I/O priorities belong to the host; moby allows",
		`sched_setparam sched_setattr ioprio_set`,
	},
	{
		"memory placement", Refuse, "", "which node's memory is used belongs to the host",
		`mbind set_mempolicy set_mempolicy_home_node`,
	},
	{
		"clocks", Refuse, "", "the clock is the host's; moby allows adjtimex and clock_adjtime",
		`settimeofday clock_settime adjtimex clock_adjtime`,
	},
	{
		"kernel AIO", Refuse, "", "rings shared with the kernel and a machine-wide quota; databases do without; moby allows",
		`io_setup io_destroy io_getevents io_submit io_cancel io_pgetevents`,
	},
	{
		"quotas and accounting", Refuse, "", "administration of file systems and accounting",
		`quotactl quotactl_fd acct`,
	},
	{
		"machine", Refuse, "", "administration of the machine",
		`reboot kexec_load kexec_file_load swapon swapoff init_module finit_module
		delete_module iopl ioperm syslog vhangup`,
	},
	{
		"relics", Refuse, "", "removed, never implemented, or used by nothing",
		`uselib ustat sysfs nfsservctl _sysctl create_module get_kernel_syms
		query_module getpmsg putpmsg afs_syscall tuxcall security vserver
		epoll_ctl_old epoll_wait_old set_thread_area get_thread_area`,
	},
}
