/* What the supervisor and the stub say to each other: fixed layouts, little endian, one message per datagram of a
 * SOCK_SEQPACKET pair. The same layouts stand in isolate/inside/plan.go; a test there compares them by the assertions below.
 */
#ifndef CORRAL_PLAN_H
#define CORRAL_PLAN_H

#include "sys.h"

enum { PLAN_VERSION = 4, PATH_SIZE = 4096, PATHS = 3, STEP_SIZE = 24, RLIMITS = 16, GROUPS = 4 };

/* Descriptor numbers the stub is started with. */
enum { FD_CONTROL = 3 };

/* struct prepare, with the seccomp programs as descriptor, and a tasks file for each of groups: what can be done before the
 * job is known. As many struct bind follow as it says. */
struct prepare {
	u32 version;
	u32 uid; /* of the job, inside the jail's user namespace; the group id is the same number */
	u64 skip; /* bit n: leave out step n; for tests that show what the step is good for */
	u64 tmp_bytes; /* size of each private tmpfs */
	u64 tmp_inodes;
	u32 binds;
	u32 roots; /* not 0: the job has a root of its own, of so many mounts */
	u32 groups; /* at most GROUPS: of cgroup version 1, which this process joins by itself */
	u32 last; /* how many bytes at the end of the programs are the one that is loaded last */
};
_Static_assert(sizeof(struct prepare) == 48, "prepare");

/* struct bind, a toolchain that a private directory would hide: bound from aside; or with an empty source a directory that
 * a mount is put on when the job is known; or, with a descriptor, a mount that the session's jobs share there. After those, one for each of roots, with its mount as descriptor and an empty
 * source: the first is "/". */
struct bind {
	u32 version;
	u32 unused;
	char source[64];
	char target[PATH_SIZE];
};
_Static_assert(sizeof(struct bind) == 4168, "bind");

enum { PLAN_TTY = 1, PLAN_READONLY = 2, PLAN_STDIN = 4, PLAN_EXEC_FD = 8, PLAN_SAY_STARTED = 16, PLAN_LAYER = 32, PLAN_ROOT_CWD = 64, PLAN_KEPT = 128, PLAN_COMMON = 256, PLAN_NO_REPO = 512 };

/* struct plan, with the descriptors repo (not with PLAN_NO_REPO), payload, stdout, stderr and, with PLAN_STDIN, stdin; with PLAN_EXEC_FD the
 * program comes next, with PLAN_LAYER the mount of the session's layer. With PLAN_TTY there is no stdio: the stub sends the master of a new terminal back. */
struct plan {
	u32 version;
	u32 flags;
	u64 wall_ns; /* 0: no deadline of the stub's own */
	u64 tmp_bytes;
	u64 tmp_inodes;
	u32 rlimit_mask; /* bit n: set resource n */
	u16 rows, cols;
	u64 soft[RLIMITS];
	u64 hard[RLIMITS];
	/* Three strings, each ended by NUL, and no more is sent than these are long. Where the repo is mounted: absolute. The
	 * working directory: relative to the repo, "." for itself; with PLAN_ROOT_CWD to the job's root. With PLAN_COMMON where
	 * the git directory is mounted that the repo is a worktree of, absolute; else "". */
	char paths[PATHS * PATH_SIZE];
};
_Static_assert(offsetof(struct plan, wall_ns) == 8, "wall_ns");
_Static_assert(offsetof(struct plan, rlimit_mask) == 32, "rlimit_mask");
_Static_assert(offsetof(struct plan, soft) == 40, "soft");
_Static_assert(offsetof(struct plan, hard) == 168, "hard");
_Static_assert(offsetof(struct plan, paths) == 296, "paths");
_Static_assert(sizeof(struct plan) == 12584, "plan");

enum { KEPT_BYTES = 57344 };

/* struct kept, after the plan with PLAN_KEPT: what the job is to leave alone, as the jail's scanner found it. Each is a
 * letter and a path, ended by NUL: r read-only, p pinned in its place; in capitals, below the common directory. */
struct kept {
	u32 version;
	u32 count;
	char list[KEPT_BYTES]; /* as much of it as there is */
};
_Static_assert(offsetof(struct kept, list) == 8, "list");
_Static_assert(sizeof(struct kept) == 57352, "kept");

/* struct order, without descriptors, any time after the plan: send a signal. */
struct order {
	u32 version;
	s32 signal;
	u32 everyone; /* 0: the job's first process; else every process of the job */
	u32 unused;
};
_Static_assert(sizeof(struct order) == 16, "order");

enum { REPORT_HELLO = 1, REPORT_READY, REPORT_TTY, REPORT_STARTED, REPORT_FAILED, REPORT_EXITED, REPORT_DEADLINE, REPORT_GONE };

/* struct report, from the stub. TTY comes with the terminal's master. FAILED names a step and has an errno. GONE
 * has the wait status of the job's first process and comes when every other is reaped too; when there are others to wait
 * for, EXITED says the status first. STARTED comes only when asked for: it costs two processes a wake-up. A step of
 * process 2 that fails is reported at once if it is before the plan or STARTED is asked for, else when process 2 has ended. */
struct report {
	u32 version;
	u32 kind;
	s32 error;
	s32 status;
	char step[STEP_SIZE];
};
_Static_assert(sizeof(struct report) == 40, "report");

/* struct owner, to the stub by the name of users: make a user namespace. It answers with a struct holder, and after any next
 * message lets go of what it made. */
struct owner {
	u32 version;
	u32 uid; /* of the host; the group id is the same number */
};
_Static_assert(sizeof(struct owner) == 8, "owner");

struct holder {
	s32 pid; /* of a process in the new namespace, which has no ids yet; or -errno */
};
_Static_assert(sizeof(struct holder) == 4, "holder");

enum { PROBE_START = 1, PROBE_LOOK, PROBE_OPEN, PROBE_RECEIVE, PROBE_HOLD, PROBE_CLOSE };

/* struct probe, to the stub by the name of probe. START comes first: it becomes this user. LOOK comes with the descriptor to
 * look at. OPEN opens path, from the directory that comes as a descriptor, or from the root. RECEIVE comes with a socket, from
 * which it receives a message. HOLD comes with a descriptor, which it keeps; it has no answer. CLOSE closes all that is kept. No
 * more is sent than path is long, with its NUL. It answers with a struct probed, with what it opened or received as descriptors,
 * and after it the message that it received. If closing is set, it closes its own copies after the answer, which may take as long
 * as a file system wants, and then sends an empty struct probed. */
struct probe {
	u32 version;
	u32 kind;
	u32 uid; /* of the host; the group id is the same number */
	u32 unused;
	u64 flags; /* of openat2(2); O_PATH is added */
	u64 resolve; /* likewise */
	char path[PATH_SIZE];
};
_Static_assert(offsetof(struct probe, path) == 32, "probe path");
_Static_assert(sizeof(struct probe) == 4128, "probe");

struct probed {
	s32 error; /* 0 or -errno; then the rest is 0 */
	u32 mode; /* of statx(2), as the next six */
	u32 uid, gid;
	u32 dev_major, dev_minor;
	u64 ino;
	u64 fs_type; /* of fstatfs(2), as the rest */
	u64 fs_flags;
	u64 free_bytes;
	u64 free_files;
	u32 closing;
	u32 unused;
};
_Static_assert(sizeof(struct probed) == 72, "probed");

/* The payload, a sealed memfd written by the front-end and read by the job's process once it is nobody: this header,
 * then argc + envc strings, each ended by NUL; then for each file its absolute path, NUL, the length of its content as a
 * u32, the content, NUL. That is all of it, so the last byte is NUL. */
enum { PAYLOAD_MAGIC = 0x4c524f43 };
struct payload {
	u32 magic;
	u32 argc;
	u32 envc;
	u32 files;
};
_Static_assert(sizeof(struct payload) == 16, "payload");

#endif
