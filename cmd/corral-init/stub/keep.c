/* Protection of the paths that a job must not change, in its repository and in the git directory that this is a worktree
 * of. */
#include "stub.h"

#include <linux/mount.h>
#include <linux/openat2.h>

enum { READ_ONLY = 'r', PINNED = 'p', WRITABLE = 'o', HIDDEN = 'h', WORKTREE = 'w', OF_COMMON = 'a' - 'A' };

/* cover mounts what is at a path on the file at, which a job then does not see: it cannot open the device, as it is on a mount without
 * devices. */
static long cover(int at, const char *with, struct mount_attr *attr)
{
	long r = SYS3(__NR_open_tree, AT_FDCWD, with, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (r < 0)
		return -EIO; /* not ENOENT, which is about the path to hide */
	int copy = (int)r;
	r = SYS5(__NR_mount_setattr, copy, "", AT_EMPTY_PATH, attr, sizeof *attr);
	if (r >= 0)
		r = SYS5(__NR_move_mount, copy, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	SYS1(__NR_close, copy);
	return r;
}

/* hold mounts the file at path, below the mount root, over itself: nothing in its mount namespace can then move or remove
 * it. The path is looked up once, and the file found is the one that is mounted, or hidden. "." is the repository itself, which becomes
 * read-only except what has been mounted in it. */
static int hold(int root, const char *path, int what)
{
	struct open_how how = {
		.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	u64 read_only = what == READ_ONLY || what == HIDDEN ? MOUNT_ATTR_RDONLY : 0;
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | read_only };
	if (read_only && path[0] == '.' && !path[1])
		return (int)SYS5(__NR_mount_setattr, root, "", AT_EMPTY_PATH, &attr, sizeof attr);
	int at = (int)SYS4(__NR_openat2, root, path, &how, sizeof how);
	if (at < 0)
		return at;
	long r;
	if (what == HIDDEN) {
		r = cover(at, "/var/empty", &attr);
		if (r == -EINVAL) /* move_mount(2) for a file in place of a directory */
			r = cover(at, "/dev/null", &attr);
		SYS1(__NR_close, at);
		return r == -ENOENT ? -EIO : (int)r;
	}
	/* What a pinned directory already has mounted in it stays: paths that are open. In a read-only one nothing stays writable. */
	int whole = what == PINNED ? AT_RECURSIVE : 0;
	r = SYS3(__NR_open_tree, at, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | whole);
	if (r >= 0) {
		int copy = (int)r;
		r = SYS5(__NR_mount_setattr, copy, "", AT_EMPTY_PATH, &attr, sizeof attr);
		if (r >= 0)
			r = SYS5(__NR_move_mount, copy, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
		SYS1(__NR_close, copy);
	}
	SYS1(__NR_close, at);
	return (int)r;
}

/* keep applies hold to each path of the list, in which parent directories come first. A path that has disappeared
 * meanwhile is skipped. */
int keep(struct job *j)
{
	const char *at = j->kept.list, *end = at + j->kept_bytes;
	for (u32 i = 0; i < j->kept.count; i++) {
		if (end - at < 3)
			return -EINVAL;
		int what = *at, root = j->repo;
		if (what == WORKTREE) {
			at += 1 + length(at + 1) + 1;
			continue;
		}
		if (what == READ_ONLY - OF_COMMON || what == PINNED - OF_COMMON) {
			what += OF_COMMON;
			root = j->common;
		}
		if (root < 0 || (what != READ_ONLY && what != PINNED && what != WRITABLE && what != HIDDEN))
			return -EINVAL;
		int r = hold(root, at + 1, what);
		if (r < 0 && r != -ENOENT && r != -ENOTDIR)
			return r;
		at += 1 + length(at + 1) + 1; /* stays inside the list: its last byte is NUL */
	}
	return at == end ? 0 : -EINVAL;
}

/* worktrees makes the directories that stand for other worktrees of the repository, which the job does not see: git would take them for
 * removed. They are not readable, as nobody should take them for empty ones. One that cannot be made is left out. The jail's own root is
 * read-only, and the repository is not mounted yet. */
int worktrees(struct job *j)
{
	char *at = j->kept.list, *end = at + j->kept_bytes;
	if (!j->kept_bytes)
		return 0;
	SYS1(__NR_umask, 066);
	for (; at < end; at += length(at) + 1)
		if (*at == WORKTREE)
			make_way(at + 1);
	SYS1(__NR_umask, 022);
	return 0;
}
