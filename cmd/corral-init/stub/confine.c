/* Process 2 of a job, once the plan has arrived: it becomes the job. */
#include "stub.h"

#include <linux/filter.h>
#include <linux/mman.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>

static int stdio(struct job *j)
{
	enum { CONTROLLING = 0x540E };
	int from[3] = { j->in, j->out, j->err };
	if (j->plan.flags & PLAN_TTY) {
		long r = SYS3(__NR_ioctl, j->terminal, CONTROLLING, 0);
		if (r < 0)
			return (int)r;
		from[0] = from[1] = from[2] = j->terminal;
	}
	for (int i = from[0] < 0; i < 3; i++) { /* the sources are all above 2, and the copies are not close-on-exec */
		long r = SYS3(__NR_dup3, from[i], i, 0);
		if (r < 0)
			return (int)r;
	}
	return 0;
}

/* same_name reports whether two variables, NAME=value, have the same name. */
static int same_name(const char *a, const char *b)
{
	for (; *a && *a != '=' && *a == *b; a++)
		b++;
	return (!*a || *a == '=') && (!*b || *b == '=');
}

/* add_missing appends the plan's variables to the job's environment, which ends at slot, except those that it has. */
static void add_missing(const struct job *j, char **slot)
{
	*slot = 0;
	for (char *v = j->env; v < j->env_end; v += length(v) + 1) {
		char **e = j->envp;
		while (*e && !same_name(*e, v))
			e++;
		if (*e)
			continue;
		*e++ = v;
		*e = 0;
	}
}

/* payload maps the front-end's memfd and locates its strings. It runs as the unprivileged user: the worst that a
 * malformed payload can do is keep this job from starting. */
static int payload(struct job *j)
{
	enum { SET = 0, END = 2, PROT_RW = 3, MAX_STRINGS = 1 << 17 };
	long size = SYS3(__NR_lseek, j->payload, 0, END);
	if (size < 0)
		return (int)size;
	if (size < (long)sizeof(struct payload) + 2)
		return -EINVAL;
	char *map = (char *)SYS6(__NR_mmap, 0, size, PROT_RW, MAP_PRIVATE, j->payload, 0);
	if (is_error((long)map))
		return (int)(long)map;
	struct payload head;
	memcpy(&head, map, sizeof head);
	if (head.magic != PAYLOAD_MAGIC || !head.argc || head.argc > MAX_STRINGS || head.envc > MAX_STRINGS || map[size - 1])
		return -EINVAL;
	u64 strings = (u64)head.argc + head.envc;
	u64 most = strings + 2 + (u64)(j->env_end - j->env) / 2; /* a variable takes at least two bytes */
	char **list = (char **)SYS6(__NR_mmap, 0, most * sizeof *list, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (is_error((long)list))
		return (int)(long)list;
	char *at = map + sizeof head, *end = map + size;
	char **slot = list;
	for (u64 i = 0; i < strings; i++) {
		if (at >= end)
			return -EINVAL;
		if (i == head.argc)
			*slot++ = 0;
		*slot++ = at;
		while (*at) /* ends: the last byte is NUL */
			at++;
		at++;
	}
	if (!head.envc)
		*slot++ = 0;
	j->argv = list;
	j->envp = list + head.argc + 1;
	add_missing(j, slot);
	j->files = at;
	j->end = end;
	j->file_count = head.files;
	return at <= end ? 0 : -EINVAL;
}

/* A file of the payload. */
struct file {
	char *path, *content;
	u32 size;
};

/* next_file parses the file that starts at *at and advances *at past it. The payload's last byte is NUL, so a string that
 * starts inside the payload ends inside it. */
static int next_file(char **at, const char *end, struct file *f)
{
	char *p = *at;
	if (p >= end || *p != '/')
		return -EINVAL;
	f->path = p;
	p += length(p) + 1;
	if ((size_t)(end - p) < sizeof f->size)
		return -EINVAL;
	memcpy(&f->size, p, sizeof f->size);
	p += sizeof f->size;
	if ((size_t)(end - p) <= f->size || p[f->size])
		return -EINVAL;
	f->content = p;
	*at = p + f->size + 1;
	return 0;
}

/* make_parent creates the parent directory of path if it does not exist. */
static int make_parent(char *path)
{
	char *slash = path;
	for (char *c = path; *c; c++)
		if (*c == '/')
			slash = c;
	if (slash == path)
		return 0;
	*slash = 0;
	long r = SYS3(__NR_mkdirat, AT_FDCWD, path, 0700);
	*slash = '/';
	return r == -EEXIST ? 0 : (int)r;
}

static int write_file(struct file *f)
{
	enum { CREATE = 1 | 0100 | 0200 }; /* O_WRONLY, O_CREAT, O_EXCL: the same on both architectures */
	int r = make_parent(f->path);
	if (r < 0)
		return r;
	int fd = (int)SYS4(__NR_openat, AT_FDCWD, f->path, CREATE | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return fd;
	long n = 0;
	for (u32 done = 0; n >= 0 && done < f->size; done += (u32)n) {
		n = SYS3(__NR_write, fd, f->content + done, f->size - done);
		if (n == 0)
			n = -EIO;
	}
	SYS1(__NR_close, fd);
	return n < 0 ? (int)n : 0;
}

/* files writes the payload's files. */
static int files(struct job *j)
{
	char *at = j->files;
	for (u32 i = 0; i < j->file_count; i++) {
		struct file f;
		int r = next_file(&at, j->end, &f);
		if (r == 0)
			r = write_file(&f);
		if (r < 0)
			return r;
	}
	return at == j->end ? 0 : -EINVAL;
}

static int resource_limits(struct job *j)
{
	for (int n = 0; n < RLIMITS; n++) {
		if (!(j->plan.rlimit_mask & (1u << n)))
			continue;
		u64 limit[2] = { j->plan.soft[n], j->plan.hard[n] };
		long r = SYS4(__NR_prlimit64, 0, n, limit, 0);
		if (r < 0)
			return (int)r;
	}
	return 0;
}

/* directory enters the working directory. It is looked up below the mounted repo, by the job's own user, and so after any
 * swap that a neighboring job could make: the result lies in the repo or is an error (CVE-2024-21626, CVE-2021-30465). */
static int directory(struct job *j)
{
	enum { TRIES = 10000 };
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
	int at = -EAGAIN, from = j->repo;
	if (j->plan.flags & PLAN_ROOT_CWD) {
		how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
		from = (int)SYS4(__NR_openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
		if (from < 0)
			return from;
	}
	/* EAGAIN: something was renamed or mounted, anywhere on the machine, while a path with ".." was being resolved. */
	for (int i = 0; i < TRIES && (at == -EAGAIN || at == -EINTR); i++)
		at = (int)SYS4(__NR_openat2, from, j->cwd, &how, sizeof how);
	if (at < 0)
		return at;
	return (int)SYS1(__NR_fchdir, at);
}

/* allow grants the job the given access rights below the mount. */
static int allow(const struct job *j, int mount, u64 access)
{
	struct ll_beneath rule = { access, mount };
	return mount < 0 ? 0 : (int)SYS4(__NR_landlock_add_rule, j->rules, 1, &rule, 0);
}

static int landlock(struct job *j)
{
	u64 access = j->plan.flags & PLAN_READONLY ? j->may_read : j->may_write;
	if (j->rules == NO_LANDLOCK)
		return 0;
	int r = allow(j, j->repo, access);
	if (r >= 0)
		r = allow(j, j->common, access);
	if (r >= 0)
		r = allow(j, j->layer, access);
	return r < 0 ? r : (int)SYS2(__NR_landlock_restrict_self, j->rules, 0);
}

static int descriptors(struct job *j)
{
	enum { CLOEXEC = 4 };
	(void)j;
	return (int)SYS3(__NR_close_range, 3, ~0u, CLOEXEC);
}

int load_filter(void *program, u32 bytes)
{
	struct sock_fprog p = { .len = (u16)(bytes / sizeof(struct sock_filter)), .filter = program };
	return bytes ? (int)SYS3(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p) : 0;
}

/* modes prevents a job with protected paths from opening a directory above them to everybody: the mount of such a
 * directory is writable, and its owner may change its permissions. For chmod the permissions are in a register; the name
 * of an extended attribute is in memory, which a filter cannot read, so such a job may not set or remove any. */
static int modes(struct job *j)
{
	enum { BY_OTHERS = 02, LOAD = BPF_LD | BPF_W | BPF_ABS, EQUAL = BPF_JMP | BPF_JEQ | BPF_K };
#define NR __builtin_offsetof(struct seccomp_data, nr)
#define ARG(n) (__builtin_offsetof(struct seccomp_data, args) + (n) * 8) /* the argument's low half: little endian */
	struct sock_filter program[] = {
		BPF_STMT(LOAD, NR),
#ifdef __NR_chmod
		BPF_JUMP(EQUAL, __NR_chmod, 9, 0),
#else
		BPF_JUMP(EQUAL, __NR_fchmod, 9, 0),
#endif
		BPF_JUMP(EQUAL, __NR_fchmod, 8, 0),
		BPF_JUMP(EQUAL, __NR_fchmodat, 9, 0),
		BPF_JUMP(EQUAL, __NR_setxattr, 12, 0),
		BPF_JUMP(EQUAL, __NR_lsetxattr, 11, 0),
		BPF_JUMP(EQUAL, __NR_fsetxattr, 10, 0),
		BPF_JUMP(EQUAL, __NR_removexattr, 9, 0),
		BPF_JUMP(EQUAL, __NR_lremovexattr, 8, 0),
		BPF_JUMP(EQUAL, __NR_fremovexattr, 7, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(LOAD, ARG(1)),
		BPF_STMT(BPF_JMP | BPF_JA, 1),
		BPF_STMT(LOAD, ARG(2)),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, BY_OTHERS, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
	};
#undef NR
#undef ARG
	return j->plan.flags & PLAN_MODES ? load_filter(program, sizeof program) : 0;
}

/* last_call forbids openat2. The program that compares a layer with its repository, corral's own, follows links with it as the
 * scanner does. */
static int last_call(struct job *j)
{
	if (j->plan.flags & PLAN_LAYER)
		return 0;
	u32 last = j->prepare.last;
	return load_filter(j->filter + j->filter_bytes - last, last);
}

/* become executes the program. A name without a slash is looked up in the job's own PATH, as execvp(3) does; of several
 * errors the most specific is returned: that for a file that exists but may not be executed rather than ENOENT. */
static int become(struct job *j)
{
	const char *name = j->argv[0], *path = 0;
	char full[PATH_SIZE];
	if (j->plan.flags & PLAN_EXEC_FD)
		return (int)SYS5(__NR_execveat, j->exec, "", j->argv, j->envp, AT_EMPTY_PATH);
	if (!*name)
		return -ENOENT;
	for (const char *c = name; *c; c++)
		if (*c == '/')
			return (int)SYS3(__NR_execve, name, j->argv, j->envp);
	for (char **e = j->envp; *e; e++)
		if (!memcmp(*e, "PATH=", length(*e) < 5 ? length(*e) : 5) && length(*e) >= 5)
			path = *e + 5;
	int worst = -ENOENT;
	while (path) {
		const char *end = path;
		while (*end && *end != ':')
			end++;
		size_t n = (size_t)(end - path);
		if (n && n + length(name) + 2 < sizeof full) {
			memcpy(full, path, n);
			put(put(full + n, "/"), name);
			int r = (int)SYS3(__NR_execve, full, j->argv, j->envp);
			if (r != -ENOENT && r != -ENOTDIR)
				worst = r;
			if (r != -ENOENT && r != -ENOTDIR && r != -EACCES)
				return r;
		}
		path = *end ? end + 1 : 0;
	}
	return worst;
}

const struct step confine_steps[] = {
	{ "stdio", "the job gets the three descriptors of the request, or its own terminal", stdio },
	{ "payload", "argv and environment are parsed without privileges", payload },
	{ "files", "the files that come with the job are written without privileges", files },
	{ "rlimits", "per-process limits that cgroups do not have", resource_limits },
	{ "cwd", "the working directory lies in the repo, even if other jobs swap directories meanwhile", directory },
	{ "landlock", "a second layer of defense, should a mount be wrong", landlock },
	{ "descriptors", "the job inherits no descriptor of the supervisor's", descriptors },
	{ "modes", "directories above protected paths stay closed to others: no write permission for others, no access control lists", modes },
	{ "openat2", "the one system call that earlier steps need and the job may not make: forbidden last", last_call },
	{ "exec", "executes the job's program", become },
};
const int confine_count = sizeof confine_steps / sizeof *confine_steps;
