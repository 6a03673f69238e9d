/* Examines files for the supervisor. A file system that a client serves may block any process that accesses a file of it,
 * even after a SIGKILL. This process takes that risk, since the supervisor can abandon it, instead of a thread of the
 * supervisor. */
#include "stub.h"

#include <asm/statfs.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <linux/stat.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

/* confine drops all privileges but the right to traverse directories of other users. CAP_DAC_READ_SEARCH would permit
 * reading files too, but the filter allows no system call that reads one. */
static long confine(u32 id)
{
	enum { READ_SEARCH = 1 << CAP_DAC_READ_SEARCH };
#define PERMIT(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	static const struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		PERMIT(recvmsg), PERMIT(sendmsg), PERMIT(openat2), PERMIT(statx), PERMIT(fstatfs), PERMIT(fcntl), PERMIT(close),
		PERMIT(close_range), PERMIT(exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { .len = sizeof rules / sizeof *rules, .filter = (struct sock_filter *)rules };
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct sets[2] = { { READ_SEARCH, READ_SEARCH, 0 }, { 0, 0, 0 } };
	long r = id == ~0u ? -EINVAL : SYS5(__NR_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0);
	if (r >= 0)
		r = SYS2(__NR_setgroups, 0, 0);
	if (r >= 0)
		r = SYS3(__NR_setresgid, id, id, id);
	if (r >= 0)
		r = SYS3(__NR_setresuid, id, id, id);
	if (r >= 0)
		r = SYS2(__NR_capset, &head, sets);
	if (r >= 0) /* the change of user reset it to fs.suid_dumpable */
		r = SYS5(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (r >= 0)
		r = SYS5(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (r >= 0)
		r = SYS3(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
	return r;
}

static long look(int fd, struct probed *p)
{
	struct statx st;
	struct statfs fs;
	long r = SYS5(__NR_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st);
	if (r >= 0)
		r = SYS2(__NR_fstatfs, fd, &fs);
	if (r < 0)
		return r;
	p->mode = st.stx_mode;
	p->uid = st.stx_uid;
	p->gid = st.stx_gid;
	p->dev_major = st.stx_dev_major;
	p->dev_minor = st.stx_dev_minor;
	p->ino = st.stx_ino;
	p->fs_type = (u64)fs.f_type;
	p->fs_flags = (u64)fs.f_flags;
	p->free_bytes = (u64)fs.f_bfree * (u64)fs.f_bsize;
	p->free_files = (u64)fs.f_ffree;
	return 0;
}

/* What closing a descriptor may block on. */
enum { NOTHING, FILE_SYSTEM, FOREIGN };

/* closing returns, without a request to any file system, what closing fd may block on. The last two calls fail for all
 * files but pipes and files in memory. With O_PATH the file is not open, but closing the last descriptor of a mount
 * unmounts its file system: one with a device is not a user's own, and that of a directory is the one it is on, also on
 * an overlay. */
static int closing(int fd)
{
	enum { GETFL = 3, GETPIPE_SZ = 1032, GET_SEALS = 1034, TYPE = 0170000, DIRECTORY = 0040000 };
	struct statx st;
	long flags = SYS3(__NR_fcntl, fd, GETFL, 0);
	if (flags >= 0 && flags & O_PATH) {
		if (SYS5(__NR_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
			return FILE_SYSTEM;
		return (st.stx_mode & TYPE) == DIRECTORY && st.stx_dev_major != 0 ? NOTHING : FILE_SYSTEM;
	}
	return SYS3(__NR_fcntl, fd, GETPIPE_SZ, 0) >= 0 || SYS3(__NR_fcntl, fd, GET_SEALS, 0) >= 0 ? NOTHING : FOREIGN;
}

/* closed closes descriptors, and reports that if the supervisor waits for it before its next request. */
static void closed(const int *fds, int count, int report)
{
	static const struct probed done;
	for (int i = 0; i < count; i++)
		SYS1(__NR_close, fds[i]);
	if (report)
		pass(FD_CONTROL, &done, sizeof done, 0, 0);
}

/* take receives a message on behalf of the supervisor. If closing a received descriptor may hang, this process exits,
 * which closes it: so it is this process that hangs and is abandoned. */
static void take(int socket)
{
	enum { MESSAGE = 65536, MAX_RECEIVED = 6 }; /* MaxMessage and MaxDescriptors of isolate/wire */
	static struct {
		struct probed head;
		char message[MESSAGE];
	} answer;
	int fds[MAX_FDS], count = 0;
	long r = receive_from(socket, answer.message, sizeof answer.message, fds, &count);
	SYS1(__NR_close, socket); /* not the last copy: the supervisor keeps its own until it has the answer */
	answer.head.error = r < 0 ? (s32)r : count > MAX_RECEIVED ? -EMSGSIZE : r == 0 && count == 0 ? -EPIPE : 0;
	answer.head.closing = 0;
	for (int i = 0; i < count; i++) {
		int takes = closing(fds[i]);
		if (takes == FOREIGN)
			answer.head.error = -EBADFD;
		if (takes == FILE_SYSTEM)
			answer.head.closing = 1;
	}
	int failed = answer.head.error != 0;
	pass(FD_CONTROL, &answer, sizeof answer.head + (failed ? 0 : (size_t)r), fds, failed ? 0 : count);
	if (failed)
		leave(1); /* which closes descriptors that no other process has; requests for other users must not wait for that */
	closed(fds, count, (int)answer.head.closing);
}

/* serve answers one request: it examines the descriptor sent along, or opens a path below that or the root. The result is
 * opened with O_PATH only. */
static void serve(struct probe *q, int fd)
{
	struct probed p = { 0 };
	int opened = -1;
	if (q->kind == PROBE_OPEN) {
		struct open_how how = { .flags = q->flags | O_PATH | O_CLOEXEC, .resolve = q->resolve };
		opened = (int)SYS4(__NR_openat2, fd < 0 ? AT_FDCWD : fd, q->path, &how, sizeof how);
		p.error = opened < 0 ? opened : (s32)look(opened, &p);
		p.closing = opened >= 0 && closing(opened) != NOTHING;
	} else {
		p.error = q->kind == PROBE_LOOK ? (s32)look(fd, &p) : -EINVAL;
	}
	if (fd >= 0)
		SYS1(__NR_close, fd); /* not the last copy: the supervisor keeps its own until it has the answer */
	pass(FD_CONTROL, &p, sizeof p, &opened, opened >= 0 && p.error == 0);
	closed(&opened, opened >= 0, (int)p.closing);
}

/* release closes all descriptors that are held and reports that. It may block forever on a client's file system: the
 * supervisor has closed its own copies before. */
static void release(void)
{
	struct probed p = { 0 };
	SYS3(__NR_close_range, 0, FD_CONTROL - 1, 0); /* it was started without standard streams */
	p.error = (s32)SYS3(__NR_close_range, FD_CONTROL + 1, ~0u, 0);
	pass(FD_CONTROL, &p, sizeof p, 0, 0);
}

/* make_probes serves requests until the supervisor closes the socket. */
_Noreturn void make_probes(void)
{
	enum { HEAD = offsetof(struct probe, path) };
	static struct probe q; /* the stack is small */
	struct probed ready = { 0 };
	int fds[MAX_FDS], count = 0;
	SYS5(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	SYS3(__NR_close_range, FD_CONTROL + 1, ~0u, 0);
	if (receive(&q, sizeof q, 0, 0) < HEAD || q.version != PLAN_VERSION || q.kind != PROBE_START)
		leave(1);
	ready.error = (s32)confine(q.uid);
	pass(FD_CONTROL, &ready, sizeof ready, 0, 0);
	if (ready.error)
		leave(1);
	for (;;) {
		long r = receive(&q, sizeof q, fds, &count);
		if (r <= HEAD || count > 1 || q.version != PLAN_VERSION || q.path[r - HEAD - 1])
			leave(1);
		if (q.kind == PROBE_HOLD)
			continue;
		if (q.kind == PROBE_CLOSE) {
			release();
			continue;
		}
		if (q.kind == PROBE_RECEIVE && count)
			take(fds[0]);
		else
			serve(&q, count ? fds[0] : -1);
	}
}
