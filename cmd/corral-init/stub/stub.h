/* The stub's parts and what they share. */
#ifndef CORRAL_STUB_H
#define CORRAL_STUB_H

#include "plan.h"

#include <linux/fcntl.h>

/* What a step works on. Descriptors are -1 when absent. */
struct job {
	struct prepare prepare;
	struct plan plan;
	struct kept kept;
	u32 kept_bytes; /* of its list */
	int repo, payload, in, out, err, exec, layer, common; /* owned; marked close-on-exec */
	int terminal; /* the slave side of the job's own terminal */
	void *filter; /* the seccomp program, mapped */
	u32 filter_bytes;
	char **argv, **envp; /* in the payload, mapped by the job's process */
	char *files, *end; /* what follows its strings, and where it ends */
	u32 file_count;
};

/* A step of the confinement. Steps run in the order of their table; the name is the place an error is reported at. */
struct step {
	const char *name;
	const char *reason;
	int (*run)(struct job *); /* 0, or -errno */
};

/* The three tables. A step's number, for prepare.skip, counts through all three in this order. */
extern const struct step slot_steps[]; /* process 1, before the job is known */
extern const struct step place_steps[]; /* process 1, when the plan is here */
extern const struct step confine_steps[]; /* process 2, which becomes the job */
extern const int slot_count, place_count, confine_count;

/* run_steps runs a table whose first step has number base. It returns 0, or -errno with *failed at the step. */
int run_steps(const struct step *table, int count, int base, struct job *j, const struct step **failed);

/* keep is a step of place_steps. */
int keep(struct job *j);

/* receive_bind takes the next struct bind from the supervisor, and its descriptor when mount is not 0. */
int receive_bind(struct bind *b, int *mount);

static inline int is_error(long r)
{
	return r < 0 && r >= -4095;
}

#endif
