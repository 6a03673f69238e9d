/* Looks at files for the supervisor. A file system that a client serves may keep whoever looks at a file of it waiting, even
 * after a SIGKILL: that is to be this process, which the supervisor can abandon, and no thread of the supervisor's own. */
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

/* confine gives up everything but the right to pass through directories of others. CAP_DAC_READ_SEARCH would let it read
 * files too: no system call that reads one is left. */
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
	if (r >= 0) /* the change of users set it to what fs.suid_dumpable says */
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

/* What it may take to close a descriptor. */
enum { NOTHING, FILE_SYSTEM, FOREIGN };

/* closing says, without a question to any file system, what it may take to close a descriptor. The two calls fail for all files
 * but pipes, and those in memory. With O_PATH the file is not open, but to close the last descriptor of a mount ends its file
 * system: one that has a device is no user's own, and that of a directory is the one it is on, also on an overlay. */
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

/* closed closes descriptors, and says so if the supervisor waits for that before its next question. */
static void closed(const int *fds, int count, int said)
{
	static const struct probed done;
	for (int i = 0; i < count; i++)
		SYS1(__NR_close, fds[i]);
	if (said)
		pass(FD_CONTROL, &done, sizeof done, 0, 0);
}

/* take receives a message in place of the supervisor. With a descriptor that may hang when it is closed, this process ends,
 * which closes it: so it is this process that hangs, and is abandoned. */
static void take(int socket)
{
	enum { MESSAGE = 65536, MOST = 6 }; /* MaxMessage and MaxDescriptors of isolate/wire */
	static struct {
		struct probed head;
		char message[MESSAGE];
	} answer;
	int fds[MAX_FDS], count = 0;
	long r = receive_from(socket, answer.message, sizeof answer.message, fds, &count);
	SYS1(__NR_close, socket); /* the supervisor has it until it has the answer, so this is not the last one */
	answer.head.error = r < 0 ? (s32)r : count > MOST ? -EMSGSIZE : r == 0 && count == 0 ? -EPIPE : 0;
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
		leave(1); /* which closes what nobody else has; another user's look must not wait for it */
	closed(fds, count, (int)answer.head.closing);
}

/* serve answers one question. A descriptor that came with it is looked at; or a path below that, or from the root, is opened.
 * What is opened is a place in the tree and nothing more (O_PATH). */
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
		SYS1(__NR_close, fd); /* the supervisor has it until it has the answer, so this is not the last one */
	pass(FD_CONTROL, &p, sizeof p, &opened, opened >= 0 && p.error == 0);
	closed(&opened, opened >= 0, (int)p.closing);
}

/* release closes everything that is held, and says so. It may wait for a client's file system for ever: the supervisor has
 * closed its own copies before. */
static void release(void)
{
	struct probed p = { 0 };
	SYS3(__NR_close_range, 0, FD_CONTROL - 1, 0); /* it began without standard streams */
	p.error = (s32)SYS3(__NR_close_range, FD_CONTROL + 1, ~0u, 0);
	pass(FD_CONTROL, &p, sizeof p, 0, 0);
}

/* make_probes does as it is told, until the supervisor closes the socket. */
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
