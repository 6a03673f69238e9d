/* Process 1 of a job, once the plan has arrived. */
#include "stub.h"

#include <linux/mount.h>
#include <linux/openat2.h>

/* mount_own attaches mount, a directory of the host, at path, which is created if it lies in a private directory. */
static int mount_own(const struct job *j, int mount, char *path)
{
	int r = mount_over(mount, path);
	if (r != -ENOENT || j->prepare.roots || !below_private(path))
		return r;
	r = make_way(path);
	return r < 0 ? r : mount_over(mount, path);
}

static int common(struct job *j)
{
	return j->plan.flags & PLAN_COMMON ? mount_own(j, j->common, j->common_path) : 0;
}

/* unmake removes the directories created by make_way and reports whether path is gone. */
static int unmake(const char *path)
{
	enum { REMOVE_DIR = 0x200 }; /* AT_REMOVEDIR */
	char rest[PATH_SIZE], *end = put(rest, path);
	int gone = 0;
	for (; below_private(rest) && SYS3(__NR_unlinkat, AT_FDCWD, rest, REMOVE_DIR) >= 0; gone = 1) {
		while (*end != '/')
			end--;
		*end = 0;
	}
	return gone;
}

/* hide leaves nothing visible at path, which may lie in a directory of the host that the jail shows. Only in a private
 * directory may path be missing: elsewhere ENOENT does not say what is there, or will be, and is an error. */
static int hide(const struct job *j, const char *path)
{
	if (!j->prepare.roots && below_private(path) && unmake(path))
		return 0;
	int empty = (int)SYS3(__NR_open_tree, AT_FDCWD, "/var/empty", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (empty < 0)
		return empty;
	int r = mount_over(empty, path);
	SYS1(__NR_close, empty);
	return r == -ENOENT && below_private(path) ? 0 : r;
}

static int repo(struct job *j)
{
	return j->plan.flags & PLAN_NO_REPO ? hide(j, j->repo_path) : mount_own(j, j->repo, j->repo_path);
}

static int layer(struct job *j)
{
	return j->plan.flags & PLAN_LAYER ? mount_over(j->layer, "/var/layer") : 0;
}

static int terminal(struct job *j)
{
	enum { UNLOCK = 0x40045431, PEER = 0x5441, SIZE = 0x5414, NOCTTY = 0400 };
	if (!(j->plan.flags & PLAN_TTY))
		return 0;
	int master = (int)SYS4(__NR_openat, AT_FDCWD, "/dev/pts/ptmx", 2 | NOCTTY | O_CLOEXEC, 0);
	if (master < 0)
		return master;
	int off = 0;
	u16 size[4] = { j->plan.rows, j->plan.cols, 0, 0 };
	long r = SYS3(__NR_ioctl, master, UNLOCK, &off);
	if (r >= 0)
		r = SYS3(__NR_ioctl, master, SIZE, size);
	if (r >= 0)
		r = j->terminal = (int)SYS3(__NR_ioctl, master, PEER, 2 | NOCTTY | O_CLOEXEC);
	if (r >= 0)
		r = SYS3(__NR_fchown, j->terminal, j->prepare.uid, j->prepare.uid);
	j->master = master; /* sent to the supervisor, see stub.c */
	return r < 0 ? (int)r : 0;
}

const struct step place_steps[] = {
	{ "tmp-size", "the sizes that this job requested", sizes },
	{ "worktrees", "directories in place of other worktrees, which git would take for removed; before the repository, so that none is made in it", worktrees },
	{ "common", "the git directory that the repository is a worktree of; mounted before the repository, which may lie in it", common },
	{ "repo", "the repository, with its owner mapped to this job's user; by descriptor, never by a path that a job could swap", repo },
	{ "protect", "paths that were sensitive when the job started stay unchanged; each is looked up once and mounted over itself", keep },
	{ "layer", "the layer that the session's jobs wrote to, for the helper that examines it; read-only unless that applies changes", layer },
	{ "terminal", "the job's own terminal; the host's is never passed in", terminal },
};
const int place_count = sizeof place_steps / sizeof *place_steps;
