/* Mounts that several steps make, and the directories that are private to each job. */
#include "stub.h"

#include <asm/statfs.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <linux/openat2.h>

int mount_at(const char *source, const char *target, const char *type, unsigned long flags, const char *data)
{
	return (int)SYS5(__NR_mount, source, target, type, flags, data);
}

int mount_over(int mount, const char *path)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
	int at = (int)SYS4(__NR_openat2, AT_FDCWD, path, &how, sizeof how);
	if (at < 0)
		return at;
	long r = SYS5(__NR_move_mount, mount, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	SYS1(__NR_close, at);
	return (int)r;
}

/* make_way creates path and its parent directories with mode 0755, owned by the jail's root, so that the job cannot move
 * them. It follows no link: in a session, other jobs write to directories on the way. */
int make_way(char *path)
{
	long at = SYS4(__NR_openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	for (char *name = path + 1, *end = name; at >= 0; end++) {
		char c = *end;
		if (c && c != '/')
			continue;
		*end = 0;
		long r = SYS3(__NR_mkdirat, at, name, 0755);
		long next = r < 0 && r != -EEXIST ? r : SYS4(__NR_openat, at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
		*end = c;
		SYS1(__NR_close, at);
		at = next;
		name = end + 1;
		if (!c)
			break;
	}
	if (at >= 0)
		SYS1(__NR_close, at);
	return at < 0 ? (int)at : 0;
}

/* The same rows as rootfs.Private; a test compares. */
static const struct {
	const char *path, *mode;
} private_dirs[] = {
	{ "/tmp", "1777" },
	{ "/var/tmp", "1777" },
	{ "/home", "0711" },
	{ "/dev/shm", "1777" },
};

/* private_index returns the index of the private directory with that path, or -1. */
int private_index(const char *path)
{
	for (size_t i = 0; i < sizeof private_dirs / sizeof *private_dirs; i++) {
		size_t n = length(private_dirs[i].path);
		if (n == length(path) && !memcmp(path, private_dirs[i].path, n))
			return (int)i;
	}
	return -1;
}

static char *put_size(char *at, u64 bytes, u64 inodes)
{
	at = put_number(put(at, "size="), bytes);
	return put_number(put(at, ",nr_inodes="), inodes);
}

/* first_private returns the index of the first private directory to mount. A session's own root has its own copies of all
 * but the last, /dev/shm. */
static size_t first_private(const struct job *j)
{
	return j->prepare.roots ? sizeof private_dirs / sizeof *private_dirs - 1 : 0;
}

int private_directories(struct job *j)
{
	char data[96];
	for (size_t i = first_private(j); i < sizeof private_dirs / sizeof *private_dirs; i++) {
		char *at = put(put(data, "mode="), private_dirs[i].mode);
		put_size(put(at, ","), j->prepare.tmp_bytes, j->prepare.tmp_inodes);
		int r = mount_at("tmpfs", private_dirs[i].path, "tmpfs", MS_NOSUID | MS_NODEV, data);
		if (r < 0)
			return r;
	}
	return 0;
}

/* sizes is a step of place_steps. A shared directory has its layer's size and is skipped. */
int sizes(struct job *j)
{
	char data[96];
	if (j->plan.tmp_bytes == j->prepare.tmp_bytes && j->plan.tmp_inodes == j->prepare.tmp_inodes)
		return 0;
	put_size(data, j->plan.tmp_bytes, j->plan.tmp_inodes);
	for (size_t i = first_private(j); i < sizeof private_dirs / sizeof *private_dirs; i++) {
		if (j->shared & 1u << i)
			continue;
		int r = mount_at(0, private_dirs[i].path, 0, MS_REMOUNT | MS_NOSUID | MS_NODEV, data);
		if (r < 0)
			return r;
	}
	return 0;
}

/* full_directories returns a bit for each of the job's private directories in which a write may have failed for lack of space: fewer
 * than a sixteenth, and than 32 MiB, is free, as a program often removes what it could not write to the end; or no file. */
u32 full_directories(const struct job *j)
{
	u32 full = 0;
	for (size_t i = first_private(j); i < sizeof private_dirs / sizeof *private_dirs; i++) {
		struct statfs st;
		if (j->shared & 1u << i || SYS2(__NR_statfs, private_dirs[i].path, &st) < 0 || st.f_type != TMPFS_MAGIC || !st.f_blocks)
			continue;
		u64 most = (32u << 20) / (u64)st.f_bsize, part = (u64)st.f_blocks / 16;
		if ((u64)st.f_bavail < (part < most ? part : most) || !st.f_ffree)
			full |= 1u << i;
	}
	return full;
}

/* below_private reports whether path lies in one of the private directories, which are empty at first. */
int below_private(const char *path)
{
	for (size_t i = 0; i < sizeof private_dirs / sizeof *private_dirs; i++) {
		size_t n = length(private_dirs[i].path);
		if (!memcmp(path, private_dirs[i].path, n) && path[n] == '/')
			return 1;
	}
	return 0;
}
