/* Process 2 of a job, before the job is known: it drops its privileges and waits for the plan as an unprivileged user. */
#include "stub.h"

#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/openat2.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/signal.h>

/* Landlock constants and structures from the kernel's uapi: the installed headers may be too old to have them. */
enum {
	LL_EXECUTE = 1 << 0, LL_WRITE = 1 << 1, LL_READ = 1 << 2, LL_READ_DIR = 1 << 3, LL_MAKE_CHAR = 1 << 6,
	LL_MAKE_BLOCK = 1 << 11, LL_REFER = 1 << 13, LL_TRUNCATE = 1 << 14, LL_IOCTL_DEV = 1 << 15,
	LL_SCOPE_ABSTRACT = 1, LL_SCOPE_SIGNAL = 2,
};
struct ll_ruleset {
	u64 fs, net, scope;
};

static int session(struct job *j)
{
	(void)j;
	long r = SYS0(__NR_setsid);
	if (r < 0)
		return (int)r;
	/* The standard input inherited from the jail's init is one open file description (flags, locks) shared by all stubs.
	 * Open one of the job's own. */
	int null = (int)SYS4(__NR_openat, AT_FDCWD, "/dev/null", O_CLOEXEC, 0);
	if (null < 0)
		return null;
	r = SYS3(__NR_dup3, null, 0, 0);
	SYS1(__NR_close, null);
	return r < 0 ? (int)r : 0;
}

static int identity(struct job *j)
{
	u32 id = j->prepare.uid;
	long r = SYS2(__NR_setgroups, 1, &id); /* getgroups(2) lists the own group, as after a login */
	if (r >= 0)
		r = SYS3(__NR_setresgid, id, id, id);
	if (r >= 0)
		r = SYS3(__NR_setresuid, id, id, id);
	/* The change of user reset the dumpable flag to fs.suid_dumpable (prctl(2)). Until this process is the job, other
	 * processes of the same user must not be able to inspect it. */
	if (r >= 0)
		r = SYS5(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	return (int)r;
}

static int capabilities(struct job *j)
{
	/* Leaving uid 0 emptied the effective and permitted sets; the inheritable one stays otherwise (CVE-2022-24769). */
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };
	(void)j;
	long r = SYS5(__NR_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return r < 0 ? (int)r : (int)SYS2(__NR_capset, &head, none);
}

/* own_ids enters a user namespace in which the job's user and group have the same numbers whichever of the jail's they are: files
 * that keep the number of their owner (the index of git) stay right from one job to the next, and outside. Process 1 writes the maps.
 * All that the kernel counts or compares is the jail's user as before, who owns this namespace, too. */
static int own_ids(struct job *j)
{
	char text[24];
	if (!j->prepare.own_uid)
		return 0;
	long r = SYS1(__NR_unshare, CLONE_NEWUSER);
	int fd = r < 0 ? -1 : (int)SYS4(__NR_openat, FD_SETTINGS, "max_user_namespaces", O_WRONLY | O_CLOEXEC, 0);
	if (r >= 0)
		r = fd < 0 ? fd : SYS3(__NR_write, fd, text, put_number(text, j->prepare.below) - text);
	SYS1(__NR_close, fd);
	SYS1(__NR_close, FD_SETTINGS);
	/* A process starts with all capabilities in its new user namespace, and may inherit them. */
	if (r >= 0)
		r = bounding_set(j);
	if (r >= 0)
		r = capabilities(j);
	if (r >= 0)
		r = SYS5(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0); /* reset as in identity */
	return (int)r;
}

static int session_keyring(struct job *j)
{
	(void)j;
	long r = SYS2(__NR_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0);
	return r < 0 ? (int)r : 0;
}

static int no_new_privileges(struct job *j)
{
	(void)j;
	return (int)SYS5(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/* allow adds a rule for a directory. In a session with its own root an earlier job may have put anything there: a path
 * that is not a directory, is behind a symlink or cannot be reached gets no rule. */
static int allow(int ruleset, const char *path, u64 access)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
	int fd = (int)SYS4(__NR_openat2, AT_FDCWD, path, &how, sizeof how);
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP || fd == -EACCES)
		return 0;
	if (fd < 0)
		return fd;
	struct ll_beneath rule = { access, fd };
	long r = SYS4(__NR_landlock_add_rule, ruleset, 1, &rule, 0);
	SYS1(__NR_close, fd);
	return (int)r;
}

/* The access rights and scopes that each version of the Landlock ABI adds. */
static const struct {
	int abi;
	u64 fs, scope;
} landlock_versions[] = {
	{ 1, (1 << 13) - 1, 0 },
	{ 2, LL_REFER, 0 },
	{ 3, LL_TRUNCATE, 0 },
	{ 5, LL_IOCTL_DEV, 0 },
	{ 6, 0, LL_SCOPE_ABSTRACT | LL_SCOPE_SIGNAL },
};

/* rules creates the rule set, without the rules that depend on the plan. The paths are this slot's own; in a session's
 * root other jobs can replace them meanwhile, but the rule for "/" lets the job write there anyway. */
static int rules(struct job *j)
{
	long abi = SYS3(__NR_landlock_create_ruleset, 0, 0, 1);
	if (abi <= 0) {
		j->rules = NO_LANDLOCK; /* not every kernel has this second layer of defense; `corral doctor` reports it */
		return 0;
	}
	struct ll_ruleset rules = { 0, 0, 0 };
	for (size_t i = 0; i < sizeof landlock_versions / sizeof *landlock_versions; i++)
		if (abi >= landlock_versions[i].abi) {
			rules.fs |= landlock_versions[i].fs;
			rules.scope |= landlock_versions[i].scope;
		}
	/* The structure grew with the ABI versions; an older kernel rejects unknown fields and takes the shorter one. */
	size_t size = abi >= 6 ? sizeof rules : sizeof rules.fs;
	int set = (int)SYS3(__NR_landlock_create_ruleset, &rules, size, 0);
	if (set < 0)
		return set;
	j->rules = set;
	u64 read = j->may_read = LL_EXECUTE | LL_READ | LL_READ_DIR;
	u64 write = j->may_write = rules.fs & ~(u64)(LL_MAKE_CHAR | LL_MAKE_BLOCK | LL_IOCTL_DEV);
	u64 device = rules.fs & (LL_READ | LL_WRITE | LL_READ_DIR | LL_TRUNCATE | LL_IOCTL_DEV);
	const struct {
		const char *path;
		u64 access;
	} list[] = {
		{ "/", j->prepare.roots ? write : read }, { "/dev", device }, { "/proc", rules.fs & (read | LL_WRITE | LL_TRUNCATE) },
		{ "/tmp", write }, { "/var/tmp", write }, { "/home", write }, { "/dev/shm", write }, { "/dev/mqueue", write },
	};
	for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
		int r = allow(set, list[i].path, list[i].access);
		if (r < 0)
			return r;
	}
	return 0;
}

static int system_calls(struct job *j)
{
	return load_filter(j->filter, j->filter_bytes - j->prepare.last);
}

const struct step ahead_steps[] = {
	{ "session", "no terminal of the host can become the controlling terminal, and no other process shares the standard input", session },
	{ "identity", "the job is an unprivileged user on the host, in no group of it; while it waits, no process of the same user can inspect it", identity },
	{ "own-ids", "the job's user has the number of the repository's owner, which programs keep in files; no capability comes with it", own_ids },
	{ "keyring", "all jobs of the jail would share the jail's session keyring; the job's own is charged to its user's quota", session_keyring },
	{ "capabilities", "all five capability sets are empty", capabilities },
	{ "no-new-privs", "no set-uid file or file capability restores privileges; before Landlock, which requires it", no_new_privileges },
	{ "landlock-rules", "rules for this slot's own directories, added as the job's user; enforced once the repository is mounted", rules },
	{ "seccomp", "loaded before the job is known, as it takes as long as all later steps; those need one call that jobs may not make, see openat2", system_calls },
};
const int ahead_count = sizeof ahead_steps / sizeof *ahead_steps;

/* say reports to process 1, which never replies: if this step failed, it ends, and so does this process; otherwise this
 * process waits for the plan. */
static void say(int step, int error)
{
	struct word w = { step, error };
	pass(FD_CONTROL, &w, sizeof w, 0, 0);
}

/* look touches the pages that are needed once the plan has arrived: a first page fault costs more than a system call. */
static void look(const struct job *j)
{
	const volatile char *filter = j->filter;
	for (u32 i = 0; i < j->filter_bytes; i += 4096)
		(void)filter[i];
}

_Noreturn void second(struct job *j, int pair)
{
	u64 none = 0;
	int failed = -1;
	/* Close the supervisor's socket first, and all other descriptors of process 1 but the one that own_ids uses: this process may wait
	 * for long, as an unprivileged user. */
	long r = SYS3(__NR_dup3, pair, FD_CONTROL, O_CLOEXEC);
	if (r >= 0)
		r = SYS3(__NR_close_range, FD_CONTROL + 1, FD_SETTINGS - 1, 0);
	if (r >= 0)
		r = SYS3(__NR_close_range, FD_SETTINGS + 1, ~0u, 0);
	if (r >= 0)
		r = SYS4(__NR_rt_sigprocmask, SIG_SETMASK, &none, 0, 8);
	if (r >= 0)
		r = run_steps(ahead_steps, ahead_count, slot_count, j, &failed);
	if (r < 0) {
		say(failed, (int)r);
		leave(1);
	}
	look(j);
	say(-1, 0);
	r = take_plan(j, 1);
	failed = -1;
	if (r >= 0)
		r = run_steps(confine_steps, confine_count, slot_count + ahead_count + place_count, j, &failed);
	say(failed, (int)r);
	leave(1);
}
