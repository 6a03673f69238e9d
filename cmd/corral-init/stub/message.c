/* Messages from the supervisor to process 1, and from process 1 to process 2. */
#include "stub.h"

enum { SOL_SOCKET_ = 1, SCM_RIGHTS_ = 1, NOSIGNAL = 0x4000, CMSG_CLOEXEC = 0x40000000, TRUNCATED = 0x28 };

struct vector {
	void *base;
	size_t size;
};
struct message { /* struct msghdr */
	void *name;
	u32 name_size;
	struct vector *vectors;
	size_t vector_count;
	void *control;
	size_t control_size;
	u32 flags;
};
struct control { /* struct cmsghdr and space for the descriptors */
	size_t size;
	s32 level, type;
	s32 fds[MAX_FDS + (MAX_FDS & 1)];
};

/* make_pair creates a pair of connected sockets. */
long make_pair(int *ends)
{
	enum { UNIX = 1, SEQPACKET_CLOEXEC = 5 | 02000000 };
	return SYS4(__NR_socketpair, UNIX, SEQPACKET_CLOEXEC, 0, ends);
}

/* receive waits for the next message on FD_CONTROL and returns its size, with *count descriptors in fds. If the peer has
 * closed its end, this process exits. */
long receive(void *to, size_t size, int *fds, int *count)
{
	long r = receive_from(FD_CONTROL, to, size, fds, count);
	if (r == 0)
		leave(0);
	return r;
}

/* receive_from is like receive for any socket, but returns 0 at the end of the stream. */
long receive_from(int socket, void *to, size_t size, int *fds, int *count)
{
	struct control c = { 0 };
	struct vector v = { to, size };
	struct message m = { .vectors = &v, .vector_count = 1, .control = &c, .control_size = sizeof c };
	long r;
	do
		r = SYS3(__NR_recvmsg, socket, &m, CMSG_CLOEXEC);
	while (r == -EINTR);
	if (count)
		*count = 0;
	if (r >= 0 && m.control_size >= 16 && c.level == SOL_SOCKET_ && c.type == SCM_RIGHTS_ && fds) {
		*count = (int)((c.size - 16) / sizeof(s32));
		for (int i = 0; i < *count; i++)
			fds[i] = c.fds[i];
	}
	return r > 0 && (m.flags & TRUNCATED) ? -EMSGSIZE : r;
}

/* pass sends a message with descriptors. */
long pass(int socket, const void *what, size_t size, const int *fds, int count)
{
	struct control c = { .size = 16 + (size_t)count * sizeof(s32), .level = SOL_SOCKET_, .type = SCM_RIGHTS_ };
	struct vector v = { (void *)what, size };
	struct message m = { .vectors = &v, .vector_count = 1 };
	for (int i = 0; i < count; i++)
		c.fds[i] = fds[i];
	if (count) {
		m.control = &c;
		m.control_size = 16 + ((size_t)count + 1) / 2 * 8; /* CMSG_SPACE */
	}
	return SYS3(__NR_sendmsg, socket, &m, NOSIGNAL);
}

int receive_bind(struct bind *b, int *mount)
{
	int fds[MAX_FDS], count = 0;
	long r = receive(b, sizeof *b, fds, &count);
	if (r != sizeof *b || b->version != PLAN_VERSION || (b->source[0] && (count || b->source[0] != '/')) || b->target[0] != '/' ||
	    b->source[sizeof b->source - 1] || b->target[sizeof b->target - 1] || count > 1)
		return r < 0 ? (int)r : -EINVAL;
	*mount = count ? fds[0] : -1;
	return 0;
}

/* places lists the fields of j that the plan's descriptors are stored in, in their order. Process 2 (inside) gets the
 * job's side of a terminal. */
static int places(struct job *j, int inside, int **list)
{
	u32 f = j->plan.flags;
	int n = 0;
	if (!(f & PLAN_NO_REPO))
		list[n++] = &j->repo;
	list[n++] = &j->payload;
	if (!(f & PLAN_TTY)) {
		list[n++] = &j->out;
		list[n++] = &j->err;
	} else if (inside) {
		list[n++] = &j->terminal;
	}
	if (f & PLAN_STDIN)
		list[n++] = &j->in;
	if (f & PLAN_EXEC_FD)
		list[n++] = &j->exec;
	if (f & PLAN_LAYER)
		list[n++] = &j->layer;
	if (f & PLAN_COMMON)
		list[n++] = &j->common;
	return n;
}

/* take_paths locates the plan's strings: after the paths, variables fill the rest of its bytes. */
static int take_paths(struct job *j)
{
	char **to[PATHS] = { &j->repo_path, &j->cwd, &j->common_path };
	char *at = j->plan.paths, *end = (char *)&j->plan + j->plan_bytes;
	if (end[-1])
		return -EINVAL;
	for (int i = 0; i < PATHS; i++) {
		if (at >= end)
			return -EINVAL;
		*to[i] = at;
		at += length(at) + 1; /* stays inside the plan: its last byte is NUL */
		if (at - *to[i] > PATH_SIZE)
			return -EINVAL;
	}
	j->env = at;
	j->env_end = end;
	while (at < end) { /* each has a name */
		char *name = at;
		while (*at && *at != '=')
			at++;
		if (at == name || !*at)
			return -EINVAL;
		at += length(at) + 1;
	}
	return end - j->env <= ENV_BYTES ? 0 : -EINVAL;
}

/* take_plan waits for the plan and stores its descriptors. Process 2 validates it again, as process 1 did. */
int take_plan(struct job *j, int inside)
{
	enum { HEAD = offsetof(struct plan, paths) };
	int fds[MAX_FDS], *place[MAX_FDS], count = 0;
	long r = receive(&j->plan, sizeof j->plan, fds, &count);
	if (r <= HEAD || j->plan.version != PLAN_VERSION)
		return r < 0 ? (int)r : -EINVAL;
	j->plan_bytes = (u32)r;
	u32 f = j->plan.flags;
	if (take_paths(j) < 0 || count != places(j, inside, place) || j->repo_path[0] != '/' ||
	    (f & PLAN_COMMON && j->common_path[0] != '/') ||
	    (f & PLAN_NO_REPO && (f & (PLAN_ROOT_CWD | PLAN_COMMON | PLAN_KEPT)) != PLAN_ROOT_CWD))
		return -EINVAL;
	for (int i = 0; i < count; i++)
		*place[i] = fds[i];
	return 0;
}

/* hand_over sends process 2 the plan with the descriptors it needs, and closes them all here: the other end of a pipe
 * must see the job close it. */
int hand_over(struct job *j)
{
	int fds[MAX_FDS], *place[MAX_FDS], count = places(j, 1, place);
	for (int i = 0; i < count; i++)
		fds[i] = *place[i];
	long r = pass(FD_SECOND, &j->plan, j->plan_bytes, fds, count);
	SYS3(__NR_close_range, FD_RECEIVED, ~0u, 0);
	return r < 0 ? (int)r : 0;
}

/* take_kept waits for the list that follows a plan with PLAN_KEPT. */
int take_kept(struct job *j)
{
	enum { HEAD = offsetof(struct kept, list) };
	long r = receive(&j->kept, sizeof j->kept, 0, 0);
	if (r < HEAD || j->kept.version != PLAN_VERSION || (r > HEAD && j->kept.list[r - HEAD - 1]))
		return r < 0 ? (int)r : -EINVAL;
	j->kept_bytes = (u32)r - HEAD;
	return 0;
}
