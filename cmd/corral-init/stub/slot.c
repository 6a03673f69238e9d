/* Process 1 of a job, before the job is known: all steps that need the jail's privileges. It reads only messages of the
 * supervisor, never data written by a client or a job. */
#include "stub.h"

#include <linux/mount.h>
#include <linux/prctl.h>
#include <linux/sched.h>

/* Mount point in the jail's root for another root, see rootfs. */
#define ROOT_DIR "/var/root"

enum { MNT_DETACH = 2 }; /* umount2(2); not in the kernel's uapi */

#ifndef MS_NOSUID
#error "linux/mount.h lacks the mount flags"
#endif

static int private_mounts(struct job *j)
{
	(void)j;
	return mount_at(0, "/", 0, MS_REC | MS_PRIVATE, 0);
}

/* groups joins the cgroups that the clone of this process could not join. The supervisor opened the files and has the
 * permission. When a thread moves itself, the kernel does not take the lock that blocks every fork on the machine. */
static int groups(struct job *j)
{
	long r = 0;
	for (u32 i = 0; i < j->prepare.groups; i++) {
		if (r >= 0)
			r = SYS3(__NR_write, j->groups[i], "0", 1);
		SYS1(__NR_close, j->groups[i]);
	}
	return r < 0 ? (int)r : 0;
}

static int cgroup_namespace(struct job *j)
{
	(void)j;
	return (int)SYS1(__NR_unshare, CLONE_NEWCGROUP);
}

static int host_name(struct job *j)
{
	(void)j;
	long r = SYS2(__NR_sethostname, "jail", 4);
	return r < 0 ? (int)r : (int)SYS2(__NR_setdomainname, "", 0);
}

static int process_table(struct job *j)
{
	(void)j;
	int r = mount_at("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, 0);
	/* When memory runs out for all jobs of a user, the kernel is to kill a job, and not the jail's process 1 with all of them,
	 * which may be the largest process: files in private directories are no process's. */
	return r < 0 ? r : set("/proc/self/oom_score_adj", "1000", 4);
}

/* socket_settings makes the kernel return no copies of sent data to the sender (SO_TIMESTAMPING, which a control message
 * of sendmsg(2) can set, too): they are not charged to the job. Older kernels have this setting for the whole host only. */
static int socket_settings(struct job *j)
{
	(void)j;
	int r = set("/proc/sys/net/core/tstamp_allow_data", "0", 1);
	return r == -ENOENT || r == -EACCES ? 0 : r;
}

/* The same names as rootfs.MaskedProc, which has the reasons; a test compares. */
static const char *const masked_files[] = {
	"/proc/allocinfo", "/proc/bootconfig", "/proc/buddyinfo", "/proc/cmdline", "/proc/config.gz",
	"/proc/diskstats", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/kallsyms", "/proc/kcore",
	"/proc/key-users", "/proc/keys", "/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags",
	"/proc/latency_stats", "/proc/locks", "/proc/mdstat", "/proc/modules", "/proc/mtrr", "/proc/pagetypeinfo",
	"/proc/partitions", "/proc/sched_debug", "/proc/schedstat", "/proc/slabinfo", "/proc/softirqs",
	"/proc/sysrq-trigger", "/proc/timer_list", "/proc/timer_stats", "/proc/vmallocinfo", "/proc/vmcore",
	"/proc/zoneinfo",
};
static const char *const masked_dirs[] = {
	"/proc/acpi", "/proc/asound", "/proc/bus", "/proc/driver", "/proc/dynamic_debug", "/proc/fs", "/proc/irq",
	"/proc/pressure", "/proc/scsi",
};

/* cover bind-mounts with over each of the paths that this kernel has. */
static int cover(const char *with, const char *const *paths, size_t count)
{
	/* ENOENT of mount(2) would not say which of the two paths is missing. */
	long r = SYS4(__NR_faccessat, AT_FDCWD, with, 0, 0);
	for (size_t i = 0; r >= 0 && i < count; i++) {
		r = mount_at(with, paths[i], 0, MS_BIND, 0);
		if (r == -ENOENT)
			r = 0;
	}
	return (int)r;
}

static int masks(struct job *j)
{
	(void)j;
	int r = cover("/var/masked", masked_files, sizeof masked_files / sizeof *masked_files);
	return r < 0 ? r : cover("/var/empty", masked_dirs, sizeof masked_dirs / sizeof *masked_dirs);
}

static int kernel_settings(struct job *j)
{
	if (j->prepare.own_uid) {
		int fd = (int)SYS4(__NR_openat, AT_FDCWD, "/proc/sys/user", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
		long moved = fd < 0 ? fd : SYS3(__NR_dup3, fd, FD_SETTINGS, O_CLOEXEC);
		if (moved < 0)
			return (int)moved;
		SYS1(__NR_close, fd);
	}
	int r = mount_at("/proc/sys", "/proc/sys", 0, MS_BIND, 0);
	if (r < 0)
		return r;
	/* mount(2) ignores attributes on the first bind; only a remount sets them. */
	r = mount_at(0, "/proc/sys", 0, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, 0);
	if (r < 0)
		return r;
	/* The same in all jails, the kernel's own would tell jobs of two users that they share a machine. */
	return mount_at("/var/boot-id", "/proc/sys/kernel/random/boot_id", 0, MS_BIND, 0);
}

static int terminals(struct job *j)
{
	(void)j;
	/* The host allows about 3,000 for all such mounts together (kernel.pty.max minus kernel.pty.reserve). */
	return mount_at("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,max=64");
}

/* message_queues mounts the queues of the job's IPC namespace. mq_open(3) finds them without, but Landlock allows only what a rule names. */
static int message_queues(struct job *j)
{
	(void)j;
	int r = mount_at("mqueue", "/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, 0);
	return r == -ENODEV ? 0 : r; /* this kernel has none (CONFIG_POSIX_MQUEUE) */
}

/* share mounts a directory of the session's layer in place of one that is otherwise private to each job. The mount point
 * exists: it is /tmp or the home directory. */
static int share(struct job *j, int mount, const char *target)
{
	int i = private_index(target);
	if (i >= 0)
		j->shared |= 1u << i;
	int r = mount_over(mount, target);
	SYS1(__NR_close, mount);
	return r;
}

/* toolchains binds the toolchains that private directories hide. The mounts kept aside are read-only, and so are copies
 * of them. If source is empty, only the mount point is created; a failure to do so (the requested size may be larger) is
 * reported by the later mount. */
static int toolchains(struct job *j)
{
	struct bind b;
	for (u32 i = 0; i < j->prepare.binds; i++) {
		int mount, r = receive_bind(&b, &mount);
		if (r < 0)
			return r;
		if (mount >= 0) {
			r = share(j, mount, b.target);
			if (r < 0)
				return r;
			continue;
		}
		r = make_way(b.target);
		if (!b.source[0])
			continue;
		if (r >= 0)
			r = mount_at(b.source, b.target, 0, MS_BIND | MS_REC, 0);
		if (r < 0)
			return r;
	}
	return 0;
}

static int home(struct job *j)
{
	if (j->prepare.roots)
		return 0; /* the session's root has one */
	long r = SYS3(__NR_mkdirat, AT_FDCWD, "/home/job", 0700);
	if (r < 0)
		return (int)r;
	return (int)SYS5(__NR_fchownat, AT_FDCWD, "/home/job", j->prepare.uid, j->prepare.uid, 0);
}

/* name_user makes the file aside and mounts it over path: it contains this job's account in place of that of the jail's first job, the
 * same text with other numbers, the first and all further ones. Listing all users of a jail instead would make 512 accounts of the
 * same name. aside stays: of a file without a name, programs that resolve paths find that it was deleted. */
static int name_user(const char *path, const char *aside, u32 number, u32 further)
{
	enum { CREATE_NEW = 0301 }; /* O_WRONLY | O_CREAT | O_EXCL */
	static const char mark[] = "\njob:x:";
	char text[1024], out[sizeof text + 64];
	int fd = (int)SYS4(__NR_openat, AT_FDCWD, path, O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	long n = SYS3(__NR_read, fd, text, sizeof text - 1);
	SYS1(__NR_close, fd);
	if (n < 0 || n == sizeof text - 1)
		return n < 0 ? (int)n : -EFBIG;
	text[n] = 0;
	char *from = text, *at = out;
	while (*from && memcmp(from, mark, sizeof mark - 1))
		*at++ = *from++;
	if (!*from)
		return -EINVAL;
	at = put(at, mark);
	for (from += sizeof mark - 1; *from >= '0' && *from <= '9'; *at++ = ':') {
		at = put_number(at, number);
		number = further;
		while (*from >= '0' && *from <= '9')
			from++;
		from += *from == ':';
	}
	at = put(at, from);
	fd = (int)SYS4(__NR_openat, AT_FDCWD, aside, CREATE_NEW | O_CLOEXEC, 0644);
	if (fd < 0)
		return fd;
	long r = SYS3(__NR_write, fd, out, at - out);
	SYS1(__NR_close, fd);
	if (r >= 0 && r != at - out)
		r = -ENOSPC;
	if (r >= 0)
		r = mount_at(aside, path, 0, MS_BIND, 0);
	if (r >= 0)
		r = mount_at(0, path, 0, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, 0);
	return r < 0 ? (int)r : 0;
}

static int accounts(struct job *j)
{
	if (j->prepare.roots)
		return 0; /* all jobs of the session have the same user */
	const struct prepare *p = &j->prepare;
	u32 uid = p->own_uid ? p->own_uid : p->uid, gid = p->own_uid ? p->own_gid : p->uid;
	int r = name_user("/etc/passwd", "/home/.passwd", uid, gid);
	return r < 0 ? r : name_user("/etc/group", "/home/.group", gid, gid);
}

/* graft clones a directory of the jail, with all mounts in it, into the new root. */
static int graft(const char *from, const char *to)
{
	enum { RECURSIVE = 0x8000 }; /* AT_RECURSIVE */
	int copy = (int)SYS3(__NR_open_tree, AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | RECURSIVE);
	if (copy < 0)
		return copy;
	int r = mount_over(copy, to);
	SYS1(__NR_close, copy);
	return r;
}

/* own_root switches to the session's own root, if it has one; its mounts come as descriptors. Earlier and concurrent jobs
 * write to it, so this runs after all other mounts: the only paths looked up in it are mount points, and without
 * following symlinks. */
static int own_root(struct job *j)
{
	struct bind b;
	char path[sizeof ROOT_DIR + PATH_SIZE];
	if (!j->prepare.roots)
		return 0;
	for (u32 i = 0; i < j->prepare.roots; i++) {
		int mount, r = receive_bind(&b, &mount);
		if (r < 0 || mount < 0)
			return r < 0 ? r : -EINVAL;
		put(put(path, ROOT_DIR), i ? b.target : "");
		r = mount_over(mount, path);
		SYS1(__NR_close, mount);
		if (r < 0)
			return r;
	}
	int r = graft("/dev", ROOT_DIR "/dev");
	if (r >= 0)
		r = graft("/proc", ROOT_DIR "/proc");
	if (r >= 0)
		r = (int)SYS1(__NR_chdir, ROOT_DIR);
	/* The old root is then mounted over the new one and is detached (pivot_root(2), "pivot_root(".", ".")"). */
	if (r >= 0)
		r = (int)SYS2(__NR_pivot_root, ".", ".");
	if (r >= 0)
		r = (int)SYS2(__NR_umount2, ".", MNT_DETACH);
	return r < 0 ? r : (int)SYS1(__NR_chdir, "/");
}

int bounding_set(struct job *j)
{
	(void)j;
	for (int c = 0; c < 64; c++) {
		long r = SYS5(__NR_prctl, PR_CAPBSET_DROP, c, 0, 0, 0);
		if (r == -EINVAL)
			return 0; /* beyond the kernel's last capability */
		if (r < 0)
			return (int)r;
	}
	return 0;
}

static int dispositions(struct job *j)
{
	/* struct sigaction of the kernel: handler, flags, restorer or mask; all zero is the default action. */
	u64 action[4] = { 0 };
	(void)j;
	for (int s = 1; s <= 64; s++) {
		long r = SYS4(__NR_rt_sigaction, s, action, 0, 8);
		if (r < 0 && r != -EINVAL) /* EINVAL: SIGKILL and SIGSTOP */
			return (int)r;
	}
	SYS1(__NR_umask, 022);
	SYS5(__NR_prctl, PR_SET_TIMERSLACK, 50000, 0, 0, 0); /* ns: the kernel's default; the supervisor's is higher */
	return (int)SYS3(__NR_setpriority, 0, 0, 0); /* the supervisor has a higher priority than its jobs */
}

const struct step slot_steps[] = {
	{ "private-mounts", "a mount made here must not reach the jail or another job", private_mounts },
	{ "cgroups", "the job's limits, on hosts where a process cannot be created in all of its cgroups", groups },
	{ "cgroup-namespace", "the job sees its own cgroup as the root", cgroup_namespace },
	{ "host-name", "the job does not need the host's name", host_name },
	{ "loopback", "programs expect 127.0.0.1; nothing else is in the network namespace", loopback },
	{ "proc", "shows processes of this job only", process_table },
	{ "socket-settings", "timestamps of sent data would put copies of it, which no limit counts, into the sender's queue", socket_settings },
	{ "door", "if the job may reach hosts: the addresses that stand for them, and sockets through which others answer for them", door },
	{ "proc-masks", "hides files that reveal the host, its devices and kernel addresses", masks },
	{ "proc-sys", "kernel settings are read-only as a whole: mode bits are not enough (kernel.pid_max is the namespace owner's)", kernel_settings },
	{ "devpts", "the job's own terminals", terminals },
	{ "mqueue", "the job's own message queues; before landlock-rules, which allows them", message_queues },
	{ "private-directories", "temporary files that no other job sees, bounded in bytes and inodes", private_directories },
	{ "home", "the job's own home directory, removed with the job", home },
	{ "accounts", "the job's own user has a name, users of other jobs do not", accounts },
	{ "toolchains", "toolchains that a private directory would hide, the repository's mount point, and directories shared by the jobs of a session", toolchains },
	{ "root", "a session's own root file system, instead of the jail's", own_root },
	{ "bounding-set", "no executed file can regain a capability", bounding_set },
	{ "dispositions", "signal actions, priority, umask and timer slack are inherited through fork and execve: reset to the defaults", dispositions },
};
const int slot_count = sizeof slot_steps / sizeof *slot_steps;

