/* Messages between the supervisor and the stub: fixed layouts, little endian, one message per datagram of a
 * SOCK_SEQPACKET pair. isolate/inside/plan.go has the same layouts; a test there compares them with the assertions below. */
#ifndef CORRAL_PLAN_H
#define CORRAL_PLAN_H

#include "rt.h"

enum { PLAN_VERSION = 8, PATH_SIZE = 4096, PATHS = 3, ENV_BYTES = 8192, STEP_SIZE = 24, RLIMITS = 16, GROUPS = 4 };

/* Descriptor numbers the stub is started with. */
enum { FD_CONTROL = 3 };

/* The network of a slot: DOOR_NONE is a loopback interface and nothing else. With DOOR_OPEN the stub sends the sockets of
 * a door. With DOOR_THERE the slot's network namespace is a session's, and has one. */
enum { DOOR_NONE, DOOR_THERE, DOOR_OPEN };

/* struct prepare is sent with the seccomp programs as a descriptor and one tasks file for each of groups: everything
 * needed for the steps before the job is known. It is followed by as many struct bind as binds and roots say. */
struct prepare {
	u32 version;
	u32 uid; /* the job's user inside the jail's user namespace; the group id is the same number */
	u64 skip; /* bit n: skip step n; 0 unless MAY_SKIP */
	u64 tmp_bytes; /* size of each private tmpfs */
	u64 tmp_inodes;
	u32 binds;
	u32 roots; /* number of mounts of the job's own root; 0: it uses the jail's */
	u32 groups; /* at most GROUPS cgroups of version 1, which this process joins by itself */
	u32 last; /* size in bytes of the program that is loaded last, at the end of the programs */
	u32 door; /* one of the DOOR constants */
	u32 own_uid; /* the number that the job's user has for the job, in a user namespace of its own; 0: it has none, and the number is uid */
	u32 own_gid; /* likewise, of its group */
	u32 below; /* maximum number of user namespaces below that one */
};
_Static_assert(sizeof(struct prepare) == 64, "prepare");

/* struct bind has three forms. With a source: a toolchain that a private directory would hide, bound from source, a mount
 * kept aside. With an empty source: a directory to create, for a mount that is put on it once the job is known. With a
 * descriptor: a mount that the session's jobs share at target. Then follows one for each of roots, with its mount as
 * descriptor and an empty source: the first has target "/". */
struct bind {
	u32 version;
	u32 unused;
	char source[64];
	char target[PATH_SIZE];
};
_Static_assert(sizeof(struct bind) == 4168, "bind");

enum { PLAN_TTY = 1, PLAN_READONLY = 2, PLAN_STDIN = 4, PLAN_EXEC_FD = 8, PLAN_SAY_STARTED = 16, PLAN_LAYER = 32, PLAN_ROOT_CWD = 64, PLAN_KEPT = 128, PLAN_COMMON = 256, PLAN_NO_REPO = 512, PLAN_MODES = 1024 };

/* struct plan is sent with the descriptors repo (not with PLAN_NO_REPO), payload, stdout, stderr and, with PLAN_STDIN,
 * stdin; with PLAN_EXEC_FD the program comes next, then with PLAN_LAYER the mount of the session's layer, then with
 * PLAN_COMMON that of the common git directory. With PLAN_TTY stdout and stderr are absent: the stub sends the master of
 * a new terminal back. */
struct plan {
	u32 version;
	u32 flags;
	u64 wall_ns; /* the stub's own deadline; 0: none */
	u64 tmp_bytes;
	u64 tmp_inodes;
	u32 rlimit_mask; /* bit n: set resource n */
	u16 rows, cols;
	u64 soft[RLIMITS];
	u64 hard[RLIMITS];
	/* Three strings, each terminated by NUL; only their actual length is sent. First the absolute mount point of the
	 * repo. Then the working directory: relative to the repo, "." for the repo itself; with PLAN_ROOT_CWD relative to the
	 * job's root. Last, with PLAN_COMMON, the absolute mount point of the git directory that the repo is a worktree of;
	 * otherwise "". Then any number of variables, NAME=value, likewise terminated: the job's environment gets those whose
	 * names it lacks. */
	char paths[PATHS * PATH_SIZE + ENV_BYTES];
};
_Static_assert(offsetof(struct plan, wall_ns) == 8, "wall_ns");
_Static_assert(offsetof(struct plan, rlimit_mask) == 32, "rlimit_mask");
_Static_assert(offsetof(struct plan, soft) == 40, "soft");
_Static_assert(offsetof(struct plan, hard) == 168, "hard");
_Static_assert(offsetof(struct plan, paths) == 296, "paths");
_Static_assert(sizeof(struct plan) == 20776, "plan");

enum { KEPT_BYTES = 57344 };

/* struct kept follows the plan with PLAN_KEPT: the paths that the job must not change, as found by the jail's scanner.
 * Each entry is a letter and a path, terminated by NUL: r read-only, p pinned (cannot be moved or removed), o writable though
 * the repository (r with the path ".") is not, h hidden; R and P mean that the path is below the common directory. A w is followed by an absolute path: a directory to create,
 * for .git of another worktree of the repository. */
struct kept {
	u32 version;
	u32 count;
	char list[KEPT_BYTES]; /* only its actual length is sent */
};
_Static_assert(offsetof(struct kept, list) == 8, "list");
_Static_assert(sizeof(struct kept) == 57352, "kept");

/* struct order requests a signal; it has no descriptors and may be sent any time after the plan. */
struct order {
	u32 version;
	s32 signal;
	u32 everyone; /* 0: the job's first process; else every process of the job */
	u32 ending; /* not 0: from now on, the end of the first process leaves the others their time to end by themselves */
};
_Static_assert(sizeof(struct order) == 16, "order");

enum { REPORT_HELLO = 1, REPORT_READY, REPORT_TTY, REPORT_STARTED, REPORT_FAILED, REPORT_EXITED, REPORT_DEADLINE, REPORT_GONE, REPORT_DOOR };

/* struct report is sent by the stub. DOOR comes before READY, with three sockets of the slot's network namespace: one for
 * datagrams, bound to 127.0.0.1:53, and two for streams, not bound. TTY comes with the terminal's master. FAILED has a step's
 * name and an errno. GONE has the wait status of the job's first process and, as its error, full_directories, with GONE_LEFT if
 * other processes had to be killed because the first one had ended. It is sent once all of them are reaped; if there are others to
 * wait for, EXITED reports the status first. STARTED is sent only
 * on request (PLAN_SAY_STARTED): it costs a wake-up of two processes. A failed step of process 2 is reported at once if it is before the plan or STARTED was
 * requested, otherwise when process 2 has ended. */
enum { GONE_LEFT = 16 };
struct report {
	u32 version;
	u32 kind;
	s32 error;
	s32 status;
	char step[STEP_SIZE];
};
_Static_assert(sizeof(struct report) == 40, "report");

/* struct owner is sent to the stub named users: create a user namespace. The stub answers with a struct holder, and
 * releases the namespace on the next message, whatever that contains. */
struct owner {
	u32 version;
	u32 uid; /* host user id; the group id is the same number */
};
_Static_assert(sizeof(struct owner) == 8, "owner");

struct holder {
	s32 pid; /* a process in the new namespace, whose ids are not mapped yet; or -errno */
};
_Static_assert(sizeof(struct holder) == 4, "holder");

enum { PROBE_START = 1, PROBE_LOOK, PROBE_OPEN, PROBE_RECEIVE, PROBE_HOLD, PROBE_CLOSE };

/* struct probe is a request to the stub named probe. START comes first: the process becomes user uid. LOOK examines the
 * descriptor sent along. OPEN opens path, relative to the directory sent along as a descriptor or, without one, to the
 * root. RECEIVE comes with a socket, from which the stub receives a message. HOLD comes with a descriptor, which the stub
 * keeps open; it has no answer. CLOSE closes all descriptors held. Only the actual length of path
 * is sent, with its NUL.
 *
 * The answer is a struct probed, with the opened or received descriptors, followed by the received message. If closing is
 * set, the stub closes its own copies after the answer, which may take as long as the file system likes, and then sends
 * an empty struct probed. */
struct probe {
	u32 version;
	u32 kind;
	u32 uid; /* host user id; the group id is the same number */
	u32 unused;
	u64 flags; /* of openat2(2); O_PATH is added */
	u64 resolve; /* of openat2(2) */
	char path[PATH_SIZE];
};
_Static_assert(offsetof(struct probe, path) == 32, "probe path");
_Static_assert(sizeof(struct probe) == 4128, "probe");

struct probed {
	s32 error; /* 0 or -errno; then the rest is 0 */
	u32 mode; /* from statx(2), like the next five fields */
	u32 uid, gid;
	u32 dev_major, dev_minor;
	u64 ino;
	u64 fs_type; /* from fstatfs(2), like the next three fields */
	u64 fs_flags;
	u64 free_bytes;
	u64 free_files;
	u32 closing;
	u32 unused;
};
_Static_assert(sizeof(struct probed) == 72, "probed");

/* The payload is a sealed memfd that the front-end writes and the job's process reads after dropping all privileges: this
 * header, then argc + envc strings, each terminated by NUL; then for each file its absolute path, NUL, the length of its
 * content as a u32, the content, NUL. Nothing follows, so the last byte is NUL. */
enum { PAYLOAD_MAGIC = 0x4c524f43 };
struct payload {
	u32 magic;
	u32 argc;
	u32 envc;
	u32 files;
};
_Static_assert(sizeof(struct payload) == 16, "payload");

#endif
