/* The stub's parts and what they share. */
#ifndef CORRAL_STUB_H
#define CORRAL_STUB_H

#include "plan.h"

#include <linux/fcntl.h>

/* Process 1's own descriptors beside FD_CONTROL, which is the supervisor's. They are made before the plan comes, so what
 * comes with that has higher numbers. In process 2, FD_CONTROL is the other end of FD_SECOND. */
enum { FD_SECOND = 4, FD_ENDED = 5, FD_RECEIVED = 6 };

enum { NO_LANDLOCK = -2 }; /* in place of a rule set: the kernel has none */

/* What a step works on, hottest first: process 1 and process 2 have each a copy of the first page before the plan comes.
 * Descriptors are -1 when absent. */
struct job {
	int repo, payload, in, out, err, exec, layer, common; /* owned; marked close-on-exec */
	int terminal, master; /* the two sides of the job's own terminal */
	int rules; /* the Landlock rule set, or NO_LANDLOCK */
	int groups[GROUPS]; /* tasks files, as many as prepare says */
	u32 filter_bytes;
	char *filter; /* the seccomp programs, mapped */
	u64 may_read, may_write; /* what a rule of it can allow in a directory */
	char *repo_path, *cwd, *common_path; /* in the plan */
	u32 shared; /* bit i: private directory i is the session's */
	u32 plan_bytes;
	u32 kept_bytes; /* of its list */
	u32 file_count;
	char **argv, **envp; /* in the payload, mapped by the job's process */
	char *files, *end; /* what follows its strings, and where it ends */
	struct prepare prepare;
	struct plan plan;
	struct kept kept;
};

/* A step of the confinement. Steps run in the order of their table; the name is the place an error is reported at. */
struct step {
	const char *name;
	const char *reason;
	int (*run)(struct job *); /* 0, or -errno */
};

/* The four tables. A step's number, for prepare.skip, counts through all four in this order. */
extern const struct step slot_steps[]; /* process 1, before the job is known */
extern const struct step ahead_steps[]; /* process 2, before the job is known */
extern const struct step place_steps[]; /* process 1, when the plan is here */
extern const struct step confine_steps[]; /* process 2, which becomes the job */
extern const int slot_count, ahead_count, place_count, confine_count;

/* run_steps runs a table whose first step has number base. It returns 0, or -errno with the step's number in *failed. */
int run_steps(const struct step *table, int count, int base, struct job *j, int *failed);

/* second is the life of process 2: it does ahead_steps, says so on pair, gets the plan there, and becomes the job. */
_Noreturn void second(struct job *j, int pair);

/* What process 2 says of itself, once before the plan and, should it not become the job, once after it. */
struct word {
	s32 step; /* that failed; -1: none of the tables */
	s32 error; /* 0 or -errno */
};

/* A rule of Landlock, from the kernel's uapi: headers at hand may be older. */
struct __attribute__((packed)) ll_beneath {
	u64 access;
	s32 fd;
};

/* These are steps of place_steps. */
int sizes(struct job *j);
int keep(struct job *j);

/* load_filter loads a seccomp program; one of no bytes is none. */
int load_filter(void *program, u32 bytes);

/* What slot_steps and place_steps share, see slot.c. */
int mount_at(const char *source, const char *target, const char *type, unsigned long flags, const char *data);
int mount_over(int mount, const char *path);
int make_way(char *path);
int below_private(const char *path);

/* Messages, see message.c. All but make_pair and pass are with who is at FD_CONTROL, and end this process when that is gone. */
long make_pair(int *ends);
long receive(void *to, size_t size, int *fds, int *count);
long receive_from(int socket, void *to, size_t size, int *fds, int *count);
long pass(int socket, const void *what, size_t size, const int *fds, int count);
int receive_bind(struct bind *b, int *mount);
int take_plan(struct job *j, int inside);
int take_kept(struct job *j);
int hand_over(struct job *j);

/* make_users is the life of the stub by the name of users, see users.c. */
_Noreturn void make_users(void);

/* make_probes is its life by the name of probe, see probe.c. */
_Noreturn void make_probes(void);

_Noreturn void leave(int code);

enum { MAX_FDS = 8 };

static inline int is_error(long r)
{
	return r < 0 && r >= -4095;
}

#endif
