package seccomp

// refused lists the calls that a job may not make. A call without a row is refused too; the row records the reason,
// and lets a test distinguish a call that was judged from one that was forgotten.
//
// A call that a kernel may lack (an option of its configuration, or removed by now) is ENOSYS, so that programs fall back. One that needs
// privileges is EPERM, as from the kernel.
//
// "moby allows" marks rows that moby's default profile allows and this package does not.
var refused = []family{
	// ENOSYS
	{
		"clone3", Absent, "", "its flags are in memory, which a filter cannot read; C libraries fall back to clone",
		`clone3`,
	},
	{
		"openat2", Absent, "", "its mode with set-id bits is in memory, which a filter cannot read; moby allows",
		`openat2`,
	},
	{
		"io_uring", Absent, "", "a ring executes operations that no filter sees; used by eight recorded kernel exploits",
		`io_uring_setup io_uring_enter io_uring_register`,
	},
	{
		"newer than the table", Absent, "", "numbers above the last one judged: C libraries and runtimes fall back; moby allows some",
		`cachestat fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue
		statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal
		setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr
		file_setattr listns rseq_slice_yield`,
	},
	{
		"file handles", Absent, "", "opening by handle bypasses mounts (the shocker exploit of 2014); moby allows name_to_handle_at",
		`name_to_handle_at open_by_handle_at`,
	},
	{
		"fanotify", Absent, "", "watches files of the whole mount; moby allows fanotify_mark",
		`fanotify_init fanotify_mark`,
	},
	{
		"other processes' memory", Absent, "", "only ptrace may access them, where it is allowed; moby allows process_vm_* and process_mrelease",
		`process_vm_readv process_vm_writev process_madvise process_mrelease kcmp
		pidfd_getfd migrate_pages move_pages`,
	},
	{
		"keyrings", Absent, "", "keyrings are per user ID and session, not per namespace",
		`add_key request_key keyctl`,
	},
	{
		"secret memory", Absent, "", "memory that accounting and dumps do not cover; moby allows",
		`memfd_secret`,
	},
	{
		"page operations", Absent, "", "moving user pages into pipes, or remapping files page by page; no program needs them; moby allows",
		`vmsplice remap_file_pages`,
	},
	{
		"segments", Absent, "", "16-bit segments, a source of exploits that 64-bit programs do not need; moby allows",
		`modify_ldt`,
	},
	{
		"memory placement", Absent, "", "NUMA placement belongs to the host",
		`mbind set_mempolicy set_mempolicy_home_node`,
	},
	{
		"kernel AIO", Absent, "", "rings shared with the kernel, and a machine-wide quota; databases work without it; moby allows",
		`io_setup io_destroy io_getevents io_submit io_cancel io_pgetevents`,
	},
	{
		"obsolete", Absent, "", "removed, never implemented, or unused",
		`uselib ustat sysfs nfsservctl _sysctl create_module get_kernel_syms
		query_module getpmsg putpmsg afs_syscall tuxcall security vserver
		epoll_ctl_old epoll_wait_old set_thread_area get_thread_area`,
	},

	// EPERM
	{
		"mounts", Refuse, "", "the job's mounts are set up before it starts",
		`mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount
		fspick mount_setattr`,
	},
	{
		"namespaces", Refuse, "", "a user namespace gives capabilities over kernel code not designed for unprivileged users",
		`setns sethostname setdomainname`,
	},
	{
		"kernel programs", Refuse, "", "code that runs in the kernel, and performance counters",
		`bpf perf_event_open uretprobe uprobe lookup_dcookie`,
	},
	{
		"page fault handling", Refuse, "", "pauses the kernel in the middle of a call, which makes races winnable",
		`userfaultfd`,
	},
	{
		"clocks", Refuse, "", "the clock belongs to the host",
		`settimeofday clock_settime`,
	},
	{
		"quotas and accounting", Refuse, "", "administration of file systems and of process accounting",
		`quotactl quotactl_fd acct`,
	},
	{
		"machine", Refuse, "", "administration of the machine",
		`reboot kexec_load kexec_file_load swapon swapoff init_module finit_module
		delete_module iopl ioperm syslog vhangup`,
	},
}
