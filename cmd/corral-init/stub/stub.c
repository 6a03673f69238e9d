/* corral-stub: process 1 of a job, its reaper, and the parent of process 2, which becomes the job.
 *
 * It is started by the jail's init in fresh namespaces, in the job's cgroup, with a socket to the supervisor as
 * descriptor 3. It says hello; gets a struct prepare and does what can be done before the job is known; says ready;
 * gets a struct plan; starts the job; reaps; and when the job's first process has ended, ends the others, reports and
 * exits. Whenever it exits, the kernel ends every other process of the PID namespace. When the supervisor's end of the
 * socket closes, it exits too.
 *
 * By other names it holds a user namespace for the supervisor: see hold and own.
 */
#include "stub.h"

#include <linux/mman.h>
#include <linux/poll.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/signal.h>
#include <linux/time.h>
#include <linux/wait.h>

void *memset(void *to, int byte, size_t n)
{
	char *t = to;
	while (n--)
		*t++ = (char)byte;
	return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
	char *t = to;
	const char *f = from;
	while (n--)
		*t++ = *f++;
	return to;
}

void *memmove(void *to, const void *from, size_t n)
{
	char *t = to;
	const char *f = from;
	if (t < f)
		return memcpy(to, from, n);
	while (n--)
		t[n] = f[n];
	return to;
}

int memcmp(const void *a, const void *b, size_t n)
{
	const u8 *x = a, *y = b;
	for (; n; n--, x++, y++)
		if (*x != *y)
			return *x - *y;
	return 0;
}

static _Noreturn void leave(int code)
{
	for (;;)
		SYS1(__NR_exit_group, code);
}

/* --- messages --- */

enum { MAX_FDS = 8, SOL_SOCKET_ = 1, SCM_RIGHTS_ = 1, NOSIGNAL = 0x4000, CMSG_CLOEXEC = 0x40000000, TRUNCATED = 0x28 };

struct vector {
	void *base;
	size_t size;
};
struct message { /* struct msghdr */
	void *name;
	u32 name_size;
	struct vector *vectors;
	size_t vector_count;
	void *control;
	size_t control_size;
	u32 flags;
};
struct control { /* struct cmsghdr and room for the descriptors */
	size_t size;
	s32 level, type;
	s32 fds[MAX_FDS + (MAX_FDS & 1)];
};

/* receive returns the bytes of the next message, 0 at the end of the supervisor, with *count descriptors. */
static long receive(void *to, size_t size, int *fds, int *count)
{
	struct control c = { 0 };
	struct vector v = { to, size };
	struct message m = { .vectors = &v, .vector_count = 1, .control = &c, .control_size = sizeof c };
	long r;
	do
		r = SYS3(__NR_recvmsg, FD_CONTROL, &m, CMSG_CLOEXEC);
	while (r == -EINTR);
	if (count)
		*count = 0;
	if (r > 0 && m.control_size >= 16 && c.level == SOL_SOCKET_ && c.type == SCM_RIGHTS_ && fds) {
		*count = (int)((c.size - 16) / sizeof(s32));
		for (int i = 0; i < *count; i++)
			fds[i] = c.fds[i];
	}
	return r > 0 && (m.flags & TRUNCATED) ? -EMSGSIZE : r;
}

int receive_bind(struct bind *b, int *mount)
{
	int fds[MAX_FDS], count = 0;
	long r = receive(b, sizeof *b, fds, &count);
	if (r == 0)
		leave(0);
	if (r != sizeof *b || b->version != PLAN_VERSION || b->source[0] != (mount ? 0 : '/') || b->target[0] != '/' ||
	    b->source[sizeof b->source - 1] || b->target[sizeof b->target - 1] || count != (mount ? 1 : 0))
		return r < 0 ? (int)r : -EINVAL;
	if (mount)
		*mount = fds[0];
	return 0;
}

static void report(u32 kind, const char *step, int error, int status, int fd)
{
	struct report out = { .version = PLAN_VERSION, .kind = kind, .error = error, .status = status };
	struct control c = { .size = 16 + sizeof(s32), .level = SOL_SOCKET_, .type = SCM_RIGHTS_, .fds = { fd } };
	struct vector v = { &out, sizeof out };
	struct message m = { .vectors = &v, .vector_count = 1 };
	for (int i = 0; step && step[i] && i < STEP_SIZE - 1; i++)
		out.step[i] = step[i];
	if (fd >= 0) {
		m.control = &c;
		m.control_size = 24; /* CMSG_SPACE of one descriptor */
	}
	SYS3(__NR_sendmsg, FD_CONTROL, &m, NOSIGNAL);
}

static _Noreturn void fail(const char *step, int error)
{
	report(REPORT_FAILED, step, -error, 0, -1);
	leave(1);
}

int run_steps(const struct step *table, int count, int base, struct job *j, const struct step **failed)
{
	for (int i = 0; i < count; i++) {
		if (j->prepare.skip & (1ull << (base + i)))
			continue;
		int r = table[i].run(j);
		if (r < 0) {
			*failed = &table[i];
			return r;
		}
	}
	return 0;
}

/* --- the job --- */

struct failure { /* from process 2, over a pipe that execve closes */
	s32 step, error;
};

static _Noreturn void child(struct job *j, int pipe)
{
	const struct step *failed = 0;
	u64 none = 0;
	SYS4(__NR_rt_sigprocmask, SIG_SETMASK, &none, 0, 8);
	int r = run_steps(confine_steps, confine_count, slot_count + place_count, j, &failed);
	struct failure f = { .step = failed ? (s32)(failed - confine_steps) : confine_count - 1, .error = r };
	SYS3(__NR_write, pipe, &f, sizeof f);
	leave(1);
}

/* take_kept waits for the list that comes after the plan. */
static void take_kept(struct job *j)
{
	enum { HEAD = offsetof(struct kept, list) };
	long r = receive(&j->kept, sizeof j->kept, 0, 0);
	if (r == 0)
		leave(0);
	if (r < HEAD || j->kept.version != PLAN_VERSION || (r > HEAD && j->kept.list[r - HEAD - 1]))
		fail("plan", r < 0 ? (int)r : -EINVAL);
	j->kept_bytes = (u32)r - HEAD;
}

/* take_plan waits for the plan and takes over its descriptors. */
static void take_plan(struct job *j)
{
	int fds[MAX_FDS], count = 0, next = 0;
	long r = receive(&j->plan, sizeof j->plan, fds, &count);
	if (r == 0)
		leave(0);
	if (r != sizeof j->plan || j->plan.version != PLAN_VERSION)
		fail("plan", r < 0 ? (int)r : -EINVAL);
	u32 f = j->plan.flags;
	int want = (f & PLAN_NO_REPO ? 1 : 2) + (f & PLAN_TTY ? 0 : 2) + (f & PLAN_STDIN ? 1 : 0) + (f & PLAN_EXEC_FD ? 1 : 0) + (f & PLAN_LAYER ? 1 : 0) +
		   (f & PLAN_COMMON ? 1 : 0);
	if (count != want || j->plan.repo[0] != '/' || j->plan.repo[PATH_SIZE - 1] || j->plan.cwd[PATH_SIZE - 1] ||
	    j->plan.common[PATH_SIZE - 1] || (f & PLAN_COMMON && j->plan.common[0] != '/') ||
	    (f & PLAN_NO_REPO && (f & (PLAN_ROOT_CWD | PLAN_COMMON | PLAN_KEPT)) != PLAN_ROOT_CWD))
		fail("plan", -EINVAL);
	if (!(f & PLAN_NO_REPO))
		j->repo = fds[next++];
	j->payload = fds[next++];
	if (!(f & PLAN_TTY)) {
		j->out = fds[next++];
		j->err = fds[next++];
	}
	if (f & PLAN_STDIN)
		j->in = fds[next++];
	else
		j->in = (int)SYS4(__NR_openat, AT_FDCWD, "/dev/null", O_CLOEXEC, 0);
	if (f & PLAN_EXEC_FD)
		j->exec = fds[next++];
	if (f & PLAN_LAYER)
		j->layer = fds[next++];
	if (f & PLAN_COMMON)
		j->common = fds[next++];
	if (f & PLAN_KEPT)
		take_kept(j);
}

static long start(struct job *j, int *pipe)
{
	const struct step *failed = 0;
	int r = run_steps(place_steps, place_count, slot_count, j, &failed);
	if (r < 0)
		fail(failed->name, r);
	if (j->plan.flags & PLAN_TTY) {
		report(REPORT_TTY, 0, 0, 0, j->out);
		SYS1(__NR_close, j->out);
		j->out = -1;
	}
	r = (int)SYS2(__NR_pipe2, pipe, O_CLOEXEC);
	if (r < 0)
		fail("pipe", r);
	long pid = SYS5(__NR_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		child(j, pipe[1]);
	if (pid < 0)
		fail("fork", (int)pid);
	/* What the job has is not held open here: a pipe's other end must see the job close it. */
	int mine[] = { pipe[1], j->repo, j->payload, j->in, j->out, j->err, j->exec, j->layer, j->common, j->terminal };
	for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
		if (mine[i] >= 0)
			SYS1(__NR_close, mine[i]);
	return pid;
}

/* finish ends what the job left running and says when the last of it is gone: only then, for what is left to do in this
 * process's own exit is the kernel's (the namespaces), and nobody need wait for it. */
static _Noreturn void finish(int status)
{
	SYS2(__NR_kill, -1, SIGKILL);
	long r = SYS4(__NR_wait4, -1, 0, WNOHANG | __WALL, 0);
	if (r >= 0)
		report(REPORT_EXITED, 0, 0, status, -1); /* it is known already, whatever the rest does */
	while (r >= 0 || r == -EINTR) {
		SYS2(__NR_kill, -1, SIGKILL);
		r = SYS4(__NR_wait4, -1, 0, __WALL, 0);
	}
	report(REPORT_GONE, 0, 0, status, -1);
	leave(0);
}

/* reap collects every ended process; with the job's first one the job is over. */
static void reap(long first)
{
	int status;
	for (;;) {
		long pid = SYS4(__NR_wait4, -1, &status, WNOHANG | __WALL, 0);
		if (pid <= 0)
			return;
		if (pid == first)
			finish(status);
	}
}

static void obey(long first)
{
	struct order o;
	long r = receive(&o, sizeof o, 0, 0);
	if (r <= 0)
		leave(0); /* the supervisor is gone, and so is its job */
	if (r == sizeof o && o.version == PLAN_VERSION)
		SYS2(__NR_kill, o.everyone ? -1 : first, o.signal);
}

static u64 now(void)
{
	u64 t[2] = { 0, 0 }; /* struct timespec of the kernel: seconds, nanoseconds */
	SYS2(__NR_clock_gettime, CLOCK_MONOTONIC, t);
	return t[0] * 1000000000u + t[1];
}

static _Noreturn void watch(struct job *j, long first, int pipe, u64 deadline)
{
	u64 child_mask = 1ull << (SIGCHLD - 1);
	int ended = (int)SYS4(__NR_signalfd4, -1, &child_mask, 8, O_CLOEXEC | 04000);
	if (ended < 0)
		fail("reaper", ended);
	struct pollfd p[3] = { { FD_CONTROL, POLLIN, 0 }, { ended, POLLIN, 0 }, { pipe, POLLIN, 0 } };
	for (;;) {
		u64 left[2], *timeout = 0;
		if (deadline) {
			u64 t = now(), rest = deadline > t ? deadline - t : 0;
			left[0] = rest / 1000000000u;
			left[1] = rest % 1000000000u;
			timeout = left;
		}
		long r = SYS5(__NR_ppoll, p, 3, timeout, 0, 0);
		if (r == 0) {
			report(REPORT_DEADLINE, 0, 0, 0, -1);
			leave(0);
		}
		if (r < 0)
			continue;
		if (p[2].revents) {
			struct failure f;
			r = SYS3(__NR_read, pipe, &f, sizeof f);
			if (r == sizeof f)
				fail(confine_steps[f.step].name, f.error);
			if (j->plan.flags & PLAN_SAY_STARTED)
				report(REPORT_STARTED, 0, 0, 0, -1);
			p[2].fd = -1;
			SYS1(__NR_close, pipe);
		}
		if (p[0].revents)
			obey(first);
		if (p[1].revents) {
			char sink[128 * 4];
			SYS3(__NR_read, ended, sink, sizeof sink);
			reap(first);
		}
	}
}

/* hold keeps a user namespace alive while the supervisor opens it: it ends with its standard input. */
static _Noreturn void hold(void)
{
	char c;
	SYS3(__NR_read, 0, &c, 1);
	leave(0);
}

static long number(const char *digits)
{
	long n = 0;
	for (; *digits >= '0' && *digits <= '9'; digits++)
		n = 10 * n + (*digits - '0');
	return n;
}

/* own makes a user namespace whose owner is the given host user, says so on standard output, and holds it. What a jail's
 * users use up (inotify instances, queued signals) is charged to their namespace's owner as well: it must not be root,
 * of whom the host's own services are. Capabilities are kept, for hosts on which making one takes them. */
static _Noreturn void own(const char *user)
{
	enum { SET_SECUREBITS = 28, NO_SETUID_FIXUP = 1 << 2 };
	long id = number(user);
	long r = SYS5(__NR_prctl, SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0);
	if (r >= 0)
		r = SYS2(__NR_setgroups, 0, 0);
	if (r >= 0)
		r = SYS3(__NR_setresgid, id, id, id);
	if (r >= 0)
		r = SYS3(__NR_setresuid, id, id, id);
	if (r >= 0)
		r = SYS1(__NR_unshare, CLONE_NEWUSER);
	u8 said = r < 0 ? (u8)-r : 0;
	SYS3(__NR_write, 1, &said, 1);
	hold();
}

static void map_filter(struct job *j, int fd)
{
	enum { END = 2, PROT_R = 1 };
	long size = SYS3(__NR_lseek, fd, 0, END);
	long map = size <= 0 ? -EINVAL : SYS6(__NR_mmap, 0, size, PROT_R, MAP_PRIVATE, fd, 0);
	if (is_error(map))
		fail("prepare", (int)map);
	j->filter = (void *)map;
	j->filter_bytes = (u32)size;
	SYS1(__NR_close, fd);
}

static struct job the_job; /* in zeroed memory rather than on the stack, which is small */

_Noreturn void run(long *stack);
_Noreturn void run(long *stack)
{
	struct job *j = &the_job;
	const char *name = stack[0] > 0 ? (const char *)stack[1] : "";
	int fds[MAX_FDS], count = 0, pipe[2];
	const struct step *failed = 0;
	if (name[0] == 'h')
		hold();
	if (name[0] == 'o' && stack[0] > 1)
		own((const char *)stack[2]);
	j->repo = j->payload = j->in = j->out = j->err = j->exec = j->layer = j->common = j->terminal = -1;
	SYS5(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	u64 child_mask = 1ull << (SIGCHLD - 1);
	SYS4(__NR_rt_sigprocmask, SIG_SETMASK, &child_mask, 0, 8);
	report(REPORT_HELLO, 0, 0, 0, -1);

	long r = receive(&j->prepare, sizeof j->prepare, fds, &count);
	if (r == 0)
		leave(0);
	if (r != sizeof j->prepare || j->prepare.version != PLAN_VERSION || count != 1)
		fail("prepare", r < 0 ? (int)r : -EINVAL);
	map_filter(j, fds[0]);
	r = run_steps(slot_steps, slot_count, 0, j, &failed);
	if (r < 0)
		fail(failed->name, (int)r);
	report(REPORT_READY, 0, 0, 0, -1);

	take_plan(j);
	u64 deadline = j->plan.wall_ns ? now() + j->plan.wall_ns : 0;
	long first = start(j, pipe);
	watch(j, first, pipe[0], deadline);
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n\txor %ebp,%ebp\n\tmov %rsp,%rdi\n\tand $-16,%rsp\n\tcall run\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start:\n\tmov x29,#0\n\tmov x30,#0\n\tmov x0,sp\n\tbl run\n");
#endif
