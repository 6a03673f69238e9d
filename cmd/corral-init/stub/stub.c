/* corral-stub: process 1 of a job, its reaper, and the parent of process 2, which becomes the job.
 *
 * The jail's init starts it in fresh namespaces, in the job's cgroup, with a socket to the supervisor as descriptor 3. It
 * reports hello, receives a struct prepare, runs the steps possible before the job is known, and forks process 2, which
 * does the same. It reports ready, receives a struct plan, mounts what the plan names, and passes the plan on to process
 * 2, which becomes the job. Then it reaps; when the job's first process has ended, it kills the others, or waits for them if
 * the job was told to end, reports and exits. Whenever it exits, the kernel kills every other process of the PID namespace. It also exits when the supervisor
 * closes its end of the socket.
 *
 * Under the name users it creates user namespaces for the supervisor: see users.c. Under the name probe it examines files
 * of the supervisor's clients: see probe.c. */
#include "stub.h"

#include <linux/mman.h>
#include <linux/poll.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/signal.h>
#include <linux/time.h>
#include <linux/wait.h>

enum { DONTWAIT = 0x40 }; /* MSG_DONTWAIT of recv(2) */

static void report(u32 kind, const char *step, int error, int status, int fd)
{
	struct report out = { .version = PLAN_VERSION, .kind = kind, .error = error, .status = status };
	for (int i = 0; step && step[i] && i < STEP_SIZE - 1; i++)
		out.step[i] = step[i];
	pass(FD_CONTROL, &out, sizeof out, &fd, fd >= 0);
}

static _Noreturn void fail(const char *step, int error)
{
	report(REPORT_FAILED, step, -error, 0, -1);
	leave(1);
}

/* --- process 2, as seen from here --- */

/* listen receives process 2's report. With DONTWAIT, 0 means that there is none; it never means that process 2 ended
 * well. No descriptor is accepted from process 2. */
static int listen(struct word *w, int flags)
{
	long r;
	do
		r = SYS6(__NR_recvfrom, FD_SECOND, w, sizeof *w, flags, 0, 0);
	while (r == -EINTR);
	return r == sizeof *w;
}

/* fail_second reports a failure of process 2. That process is unprivileged by then, so its message is untrusted: the step
 * and errno are range-checked before use. */
static _Noreturn void fail_second(const struct word *w, const char *otherwise)
{
	int at = w->step - slot_count, error = w->error < 0 && w->error > -4096 ? w->error : -EIO;
	if (at >= 0 && at < ahead_count)
		fail(ahead_steps[at].name, error);
	at -= ahead_count + place_count;
	if (at >= 0 && at < confine_count)
		fail(confine_steps[at].name, error);
	fail(otherwise, error);
}

/* map_ids writes an id map of process 2: the jail's root is 0, and its user or group is own. */
static void map_ids(const struct job *j, long pid, const char *file, u32 own)
{
	char path[64], text[64], *at = put_number(put(text, "0 0 1\n"), own);
	put(put_number(put(path, "/proc/"), (u64)pid), file);
	at = put(put_number(put(at, " "), j->prepare.uid), " 1\n");
	int fd = (int)SYS4(__NR_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
	if (fd < 0)
		fail("own-ids", fd);
	long r = SYS3(__NR_write, fd, text, at - text);
	if (r < 0)
		fail("own-ids", (int)r);
	SYS1(__NR_close, fd);
}

/* fork_second forks process 2 and waits until its steps before the plan are done. Process 2 is born in the job's cgroups:
 * if the clone of this process could not join them, the supervisor moved it there before sending struct prepare, or step
 * cgroups did. */
static long fork_second(struct job *j)
{
	enum { NONBLOCK = 04000 };
	u64 child_mask = 1ull << (SIGCHLD - 1);
	struct word w = { -1, -EPIPE };
	int pair[2];
	long r = make_pair(pair);
	if (r < 0)
		fail("fork", (int)r);
	long pid = SYS5(__NR_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		second(j, pair[1]);
	if (pid < 0)
		fail("fork", (int)pid);
	SYS1(__NR_close, pair[1]);
	SYS1(__NR_close, FD_SETTINGS);
	int ended = (int)SYS4(__NR_signalfd4, -1, &child_mask, 8, O_CLOEXEC | NONBLOCK);
	if (ended < 0)
		fail("reaper", ended);
	if (pair[0] != FD_SECOND || ended != FD_ENDED)
		fail("reaper", -EBADF);
	if (!listen(&w, 0) || w.error)
		fail_second(&w, "fork");
	if (j->prepare.own_uid) {
		map_ids(j, pid, "/gid_map", j->prepare.own_gid);
		map_ids(j, pid, "/uid_map", j->prepare.own_uid);
	}
	return pid;
}

/* await_plan waits until there is something to receive. If process 2 was killed meanwhile, it exits, so that no job gets this slot. */
static void await_plan(void)
{
	struct pollfd p[2] = { { FD_CONTROL, POLLIN, 0 }, { FD_ENDED, POLLIN, 0 } };
	while (SYS5(__NR_ppoll, p, 2, 0, 0, 0) < 0)
		;
	if (!p[0].revents)
		leave(1);
}

static void start(struct job *j)
{
	await_plan();
	int failed, r = take_plan(j, 0);
	if (r >= 0 && j->plan.flags & PLAN_KEPT)
		r = take_kept(j);
	if (r < 0)
		fail("plan", r);
	r = run_steps(place_steps, place_count, slot_count + ahead_count, j, &failed);
	if (r < 0)
		fail(place_steps[failed - slot_count - ahead_count].name, r);
	if (j->plan.flags & PLAN_TTY)
		report(REPORT_TTY, 0, 0, 0, j->master);
	r = hand_over(j);
	if (r < 0)
		fail("fork", r);
}

/* now returns the time since the host started, in nanoseconds. */
static u64 now(void)
{
	u64 t[2] = { 0, 0 }; /* struct timespec of the kernel: seconds, nanoseconds */
	SYS2(__NR_clock_gettime, CLOCK_MONOTONIC, t);
	return t[0] * 1000000000u + t[1];
}

/* await_helpers gives processes that end with their parent (erl_child_setup, a pager) a moment to do so. */
static void await_helpers(void)
{
	enum { MOMENT = 20000000 };
	struct pollfd p = { FD_ENDED, POLLIN, 0 };
	u64 until = now() + MOMENT;
	for (;;) {
		char sink[128 * 4];
		long r;
		while ((r = SYS4(__NR_wait4, -1, 0, WNOHANG | __WALL, 0)) > 0)
			;
		u64 t = now(), left[2] = { 0, t < until ? until - t : 0 };
		if ((r < 0 && r != -EINTR) || !left[1])
			return;
		if (SYS5(__NR_ppoll, &p, 1, left, 0, 0) > 0)
			SYS3(__NR_read, FD_ENDED, sink, sizeof sink);
	}
}

/* finish reports the job's exit status, kills its remaining processes, and reports when the last one is gone. Then it
 * waits for the supervisor to close the socket: the namespaces are torn down with this process, which is much work for
 * the kernel, and the report must not wait for the processor that does it. If there are no children, there is no other
 * process: orphans are reparented to this process before their parent can be reaped. */
static _Noreturn void finish(const struct job *j, int status)
{
	struct word w;
	if (listen(&w, DONTWAIT))
		fail_second(&w, "plan");
	u32 full = status ? full_directories(j) : 0;
	int other = 0;
	long r = SYS4(__NR_wait4, -1, &other, WNOHANG | __WALL, 0);
	if (r >= 0) {
		report(REPORT_EXITED, 0, 0, status, -1); /* known already, however long the others take */
		await_helpers();
	}
	while (r >= 0 || r == -EINTR) {
		if (r > 0 && (other & 127) == SIGKILL) /* the one that ends by itself at this moment was not left running */
			full |= GONE_LEFT;
		SYS2(__NR_kill, -1, SIGKILL);
		r = SYS4(__NR_wait4, -1, &other, __WALL, 0);
	}
	report(REPORT_GONE, 0, (int)full, status, -1);
	struct order o;
	while (receive(&o, sizeof o, 0, 0) > 0)
		; /* discard orders for a job that is gone */
	leave(0);
}

/* reap collects all ended processes. When the job's first process has ended, so has the job, unless it was told to end: then
 * a shell, make or another wrapper often ends first, and the job has ended with its last process. Others bound that time. */
static void reap(struct job *j, long first)
{
	int status;
	for (;;) {
		long pid = SYS4(__NR_wait4, -1, &status, WNOHANG | __WALL, 0);
		if (pid == -ECHILD && j->first_ended)
			finish(j, j->first_status);
		if (pid <= 0)
			return;
		if (pid != first)
			continue;
		if (!j->ending)
			finish(j, status);
		j->first_ended = 1;
		j->first_status = status;
		report(REPORT_EXITED, 0, 0, status, -1); /* the time of the others begins now, if it did not before */
	}
}

/* serve_order sends a signal. One that ends the job also continues it, as systemd.kill(5) does: a stopped process would not
 * act on the signal. */
static void serve_order(struct job *j, long first)
{
	struct order o;
	long r = receive(&o, sizeof o, 0, 0);
	if (r < 0)
		leave(0); /* the supervisor is gone; exiting kills the job */
	if (r != sizeof o || o.version != PLAN_VERSION)
		return;
	j->ending |= o.ending;
	if (o.everyone)
		SYS2(__NR_kill, -1, o.signal);
	else if (!j->first_ended) /* its number is free */
		SYS2(__NR_kill, first, o.signal);
	if (o.ending)
		SYS2(__NR_kill, -1, SIGCONT);
}

/* watch waits for orders, the deadline and the end of the job. It does not wait for process 2 to become the job unless
 * the plan requests that: it would be a wake-up while the job starts, and a failure is noticed at the latest when process
 * 2 has ended. */
static _Noreturn void watch(struct job *j, long first)
{
	u64 deadline = j->plan.wall_ns ? now() + j->plan.wall_ns : 0;
	struct pollfd p[3] = { { FD_CONTROL, POLLIN, 0 }, { FD_ENDED, POLLIN, 0 }, { -1, POLLIN, 0 } };
	if (j->plan.flags & PLAN_SAY_STARTED)
		p[2].fd = FD_SECOND;
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
			struct word w;
			if (listen(&w, DONTWAIT))
				fail_second(&w, "plan");
			report(REPORT_STARTED, 0, 0, 0, -1);
			p[2].fd = -1;
		}
		if (p[0].revents)
			serve_order(j, first);
		if (p[1].revents) {
			char sink[128 * 4];
			reap(j, first); /* usually the job has ended, and the signal need not be read */
			SYS3(__NR_read, FD_ENDED, sink, sizeof sink);
			reap(j, first); /* processes that ended before the signal was read */
		}
	}
}

static void map_filter(struct job *j, int fd)
{
	enum { END = 2, PROT_R = 1 };
	long size = SYS3(__NR_lseek, fd, 0, END);
	long map = size <= (long)j->prepare.last ? -EINVAL : SYS6(__NR_mmap, 0, size, PROT_R, MAP_PRIVATE, fd, 0);
	if (is_error(map))
		fail("prepare", (int)map);
	j->filter = (void *)map;
	j->filter_bytes = (u32)size;
	SYS1(__NR_close, fd);
}

/* In zeroed memory rather than on the stack, which is small. Aligned, so that the fields needed once the plan has arrived
 * lie in the first page, which both processes have written to before. */
static struct job the_job __attribute__((aligned(4096)));

_Noreturn void run(long *stack);
_Noreturn void run(long *stack)
{
	struct job *j = &the_job;
	const char *name = stack[0] > 0 ? (const char *)stack[1] : "";
	int fds[MAX_FDS], count = 0, failed = 0;
	if (name[0] == 'u')
		make_users();
	if (name[0] == 'p')
		make_probes();
	j->repo = j->payload = j->in = j->out = j->err = j->exec = j->layer = j->common = j->terminal = j->master = j->rules = -1;
	SYS3(__NR_close_range, FD_CONTROL + 1, ~0u, 0); /* none should be open; the numbers of FD_SECOND and FD_ENDED depend on it */
	SYS5(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	SYS5(__NR_prctl, PR_SET_NAME, "corral-stub", 0, 0, 0); /* execveat(2) names it after the descriptor */
	u64 child_mask = 1ull << (SIGCHLD - 1), by_default[4] = { 0 };
	SYS4(__NR_rt_sigprocmask, SIG_SETMASK, &child_mask, 0, 8);
	SYS4(__NR_rt_sigaction, SIGCHLD, by_default, 0, 8); /* the jail's init ignores it, so that the kernel reaps its children */
	report(REPORT_HELLO, 0, 0, 0, -1);

	long r = receive(&j->prepare, sizeof j->prepare, fds, &count);
	if (r != sizeof j->prepare || j->prepare.version != PLAN_VERSION || j->prepare.groups > GROUPS || count != 1 + (int)j->prepare.groups)
		fail("prepare", r < 0 ? (int)r : -EINVAL);
	if (!MAY_SKIP && j->prepare.skip)
		fail("prepare", -EINVAL);
	for (int i = 1; i < count; i++)
		j->groups[i - 1] = fds[i];
	map_filter(j, fds[0]);
	r = run_steps(slot_steps, slot_count, 0, j, &failed);
	if (r < 0)
		fail(slot_steps[failed].name, (int)r);
	long first = fork_second(j);
	report(REPORT_READY, 0, 0, 0, -1);

	j->plan_bytes = 0; /* write to the page now, so that it is copied after the fork */
	start(j);
	watch(j, first);
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n\txor %ebp,%ebp\n\tmov %rsp,%rdi\n\tand $-16,%rsp\n\tcall run\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start:\n\tmov x29,#0\n\tmov x30,#0\n\tmov x0,sp\n\tbl run\n");
#endif
