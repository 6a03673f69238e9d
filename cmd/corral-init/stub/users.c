/* Creates user namespaces for the supervisor. Each is created by a process forked from this one, which has little to
 * copy; the supervisor has much memory and a few tens of descriptors for each jail. */
#include "stub.h"

#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/signal.h>
#include <linux/wait.h>

/* quarter lets each user of this process's user namespace have a quarter of the host's limit per user. The namespace's
 * users together cannot exceed one such limit, since their use is charged to the namespace's owner too: without the
 * quarter, one job could use it all. If /proc/sys is not writable, it still can. */
static void quarter(const char *host, const char *here)
{
	char text[24];
	u64 limit = 0;
	int fd = (int)SYS4(__NR_openat, AT_FDCWD, host, O_CLOEXEC, 0);
	long n = SYS3(__NR_read, fd, text, sizeof text);
	for (long i = 0; i < n && text[i] >= '0' && text[i] <= '9'; i++)
		limit = limit * 10 + (u64)(text[i] - '0');
	SYS1(__NR_close, fd);
	if (limit < 4)
		return;
	fd = (int)SYS4(__NR_openat, AT_FDCWD, here, 1 | O_CLOEXEC, 0);
	SYS3(__NR_write, fd, text, put_number(text, limit / 4) - text);
	SYS1(__NR_close, fd);
}

/* raise raises a limit of this process to the highest value permitted. A user namespace inherits it from its creator as
 * the limit for all of its users together; each user also has a limit of their own. */
static void raise(int resource)
{
	u64 have[2], all[2] = { ~0ul, ~0ul };
	if (SYS4(__NR_prlimit64, 0, resource, all, have) >= 0 || SYS4(__NR_prlimit64, 0, resource, 0, have) < 0)
		return;
	have[0] = have[1];
	SYS4(__NR_prlimit64, 0, resource, have, 0);
}

/* own creates a user namespace whose owner is the given host user, reports the result on socket, and holds the namespace
 * until socket is closed. Resources used by a jail's users (inotify instances, queued signals) are charged to their
 * namespace's owner as well: it must not be root, since that is the user of the host's own services. Capabilities are
 * kept, for hosts where creating a user namespace requires them. */
static _Noreturn void own(u32 id, int socket)
{
	enum { SET_SECUREBITS = 28, NO_SETUID_FIXUP = 1 << 2, NPROC = 6, SIGPENDING = 11 };
	static const int summed[] = { NPROC, SIGPENDING };
	long r = id == ~0u ? -EINVAL : 0; /* setresuid(-1) would leave this process root */
	if (r >= 0)
		r = SYS5(__NR_prctl, SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0);
	if (r >= 0)
		r = SYS2(__NR_setgroups, 0, 0);
	if (r >= 0)
		r = SYS3(__NR_setresgid, id, id, id);
	if (r >= 0)
		r = SYS3(__NR_setresuid, id, id, id);
	for (unsigned i = 0; i < sizeof summed / sizeof *summed; i++)
		raise(summed[i]);
	if (r >= 0)
		r = SYS1(__NR_unshare, CLONE_NEWUSER);
	if (r >= 0) {
		quarter("/proc/sys/fs/inotify/max_user_instances", "/proc/sys/user/max_inotify_instances");
		quarter("/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches");
	}
	s32 result = (s32)r;
	pass(socket, &result, sizeof result, 0, 0);
	SYS3(__NR_read, socket, &result, sizeof result);
	leave(0);
}

/* fork_owner returns the id of a process in a new user namespace, or -errno. Closing *pair ends that process. */
static long fork_owner(u32 id, int *pair)
{
	int ends[2];
	long r = make_pair(ends);
	if (r < 0)
		return r;
	long pid = SYS5(__NR_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) {
		SYS1(__NR_close, FD_CONTROL);
		SYS1(__NR_close, ends[0]);
		own(id, ends[1]);
	}
	SYS1(__NR_close, ends[1]);
	*pair = ends[0];
	return pid;
}

static void serve(const struct owner *o)
{
	struct owner next;
	int pair = -1;
	s32 result = -EPIPE;
	long pid = fork_owner(o->uid, &pair);
	if (pid > 0 && SYS3(__NR_read, pair, &result, sizeof result) != sizeof result)
		result = -EPIPE;
	struct holder h = { (s32)(pid > 0 && result < 0 ? result : pid) };
	pass(FD_CONTROL, &h, sizeof h, 0, 0);
	receive(&next, sizeof next, 0, 0);
	SYS1(__NR_close, pair);
	if (pid > 0)
		SYS4(__NR_wait4, pid, 0, __WALL, 0);
}

/* make_users serves requests until the supervisor closes the socket. */
_Noreturn void make_users(void)
{
	struct owner o;
	SYS5(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	SYS3(__NR_close_range, FD_CONTROL + 1, ~0u, 0);
	while (receive(&o, sizeof o, 0, 0) == sizeof o && o.version == PLAN_VERSION)
		serve(&o);
	leave(1);
}
