/* Declarations shared by the stub's source files. */
#ifndef CORRAL_STUB_H
#define CORRAL_STUB_H

#include "plan.h"

#include <linux/fcntl.h>

/* Process 1's own descriptors, besides FD_CONTROL, which is the supervisor's socket. They are created before the plan
 * arrives, so descriptors received with the plan have higher numbers. In process 2, FD_CONTROL is the other end of
 * FD_SECOND. */
enum { FD_SECOND = 4, FD_ENDED = 5, FD_RECEIVED = 6 };

/* FD_SETTINGS is the directory /proc/sys/user, where it can be written; for process 2, if it gets a user namespace. */
enum { FD_SETTINGS = 64 };

enum { NO_LANDLOCK = -2 }; /* instead of a rule set: the kernel has no Landlock */

/* The state that steps read and write, hottest fields first: process 1 and process 2 each have their own copy of the
 * first page before the plan arrives. Absent descriptors are -1. */
struct job {
	int repo, payload, in, out, err, exec, layer, common; /* owned; marked close-on-exec */
	int terminal, master; /* the two sides of the job's own terminal */
	int rules; /* the Landlock rule set, or NO_LANDLOCK */
	int groups[GROUPS]; /* tasks files; prepare.groups entries are set */
	u32 filter_bytes;
	char *filter; /* the seccomp programs, mapped */
	u64 may_read, may_write; /* access rights that a Landlock rule for a directory can grant */
	char *repo_path, *cwd, *common_path; /* point into the plan */
	char *env, *env_end; /* the plan's variables */
	u32 shared; /* bit i: private directory i is shared by the session's jobs */
	u32 plan_bytes;
	u32 kept_bytes; /* length of kept.list */
	u32 file_count;
	u32 ending; /* the job was told to end, see struct order */
	int first_ended, first_status; /* process 2 has ended, with this wait status, and others have not */
	char **argv, **envp; /* point into the payload, which process 2 maps */
	char *files, *end; /* the payload's file section and its end */
	struct prepare prepare;
	struct plan plan;
	struct kept kept;
};

/* Whether this is the stub for tests, which leaves out steps of confinement to show what they prevent. The other one has no code for it, and
 * is not prepared by a message that tells it to. */
#ifdef TEST_STUB
enum { MAY_SKIP = 1 };
#else
enum { MAY_SKIP = 0 };
#endif

/* A step of the confinement. Steps run in table order; errors are reported with the step's name. */
struct step {
	const char *name;
	const char *reason;
	int (*run)(struct job *); /* 0, or -errno */
};

/* The four tables. A step's index, as used by prepare.skip, counts through all four in this order. */
extern const struct step slot_steps[]; /* process 1, before the job is known */
extern const struct step ahead_steps[]; /* process 2, before the job is known */
extern const struct step place_steps[]; /* process 1, once the plan has arrived */
extern const struct step confine_steps[]; /* process 2, which becomes the job */
extern const int slot_count, ahead_count, place_count, confine_count;

/* run_steps runs a table whose first step has index base. It returns 0, or -errno with the failed step's index in
 * *failed. */
int run_steps(const struct step *table, int count, int base, struct job *j, int *failed);

/* second is the main function of process 2: it runs ahead_steps, reports the result on pair, receives the plan there, and
 * becomes the job. */
_Noreturn void second(struct job *j, int pair);

/* Process 2's report of its progress: sent once before the plan, and once after it if it fails to become the job. */
struct word {
	s32 step; /* index of the failed step; -1: not a step of the tables */
	s32 error; /* 0 or -errno */
};

/* A Landlock rule (struct landlock_path_beneath_attr), copied from the kernel's uapi: the installed headers may be older. */
struct __attribute__((packed)) ll_beneath {
	u64 access;
	s32 fd;
};

/* Steps that are not defined in the file of their table. */
int loopback(struct job *j); /* of slot_steps, like the next two */
int door(struct job *j);
int private_directories(struct job *j);
int sizes(struct job *j); /* of place_steps */
int worktrees(struct job *j); /* of place_steps */
int keep(struct job *j); /* of place_steps */

/* bounding_set is a step that process 2 repeats in a new user namespace. */
int bounding_set(struct job *j);

/* load_filter loads a seccomp program; if bytes is 0 there is nothing to load. */
int load_filter(void *program, u32 bytes);

/* Helpers shared by slot_steps and place_steps, see mounts.c. */
int private_index(const char *path);
/* set writes a value to a file of /proc. */
int set(const char *path, const char *value, u64 size);
int mount_at(const char *source, const char *target, const char *type, unsigned long flags, const char *data);
int mount_over(int mount, const char *path);
int make_way(char *path);
int below_private(const char *path);
u32 full_directories(const struct job *j);

/* Messages, see message.c. All but make_pair, receive_from and pass use FD_CONTROL or FD_SECOND; receiving from
 * FD_CONTROL ends this process when the peer has closed its end. */
long make_pair(int *ends);
long receive(void *to, size_t size, int *fds, int *count);
long receive_from(int socket, void *to, size_t size, int *fds, int *count);
long pass(int socket, const void *what, size_t size, const int *fds, int count);
int receive_bind(struct bind *b, int *mount);
int take_plan(struct job *j, int inside);
int take_kept(struct job *j);
int hand_over(struct job *j);

/* make_users is the main function of the stub when started under the name users, see users.c. */
_Noreturn void make_users(void);

/* make_probes is the main function of the stub when started under the name probe, see probe.c. */
_Noreturn void make_probes(void);

enum { MAX_FDS = 8 };

static inline int is_error(long r)
{
	return r < 0 && r >= -4095;
}

#endif
