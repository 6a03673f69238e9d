/* The network of a job: a loopback interface and, if the job may reach hosts outside, a door. */
#include "stub.h"

#include <linux/mount.h>

enum { INET = 2, STREAM = 1, DATAGRAM = 2, CLOEXEC = 02000000 }; /* AF_INET, SOCK_* of socket(2) */

/* struct ifreq of <net/if.h>: a name, and flags or an address, a struct sockaddr_in. */
struct interface {
	char name[16];
	u16 flags; /* the address family, in a request about addresses */
	u16 port;
	u8 address[4];
	char rest[16];
};
_Static_assert(sizeof(struct interface) == 40, "struct ifreq");

static int up(int fd)
{
	enum { GET = 0x8913, SET = 0x8914, UP = 1 }; /* SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP */
	struct interface lo = { .name = "lo" };
	long r = SYS3(__NR_ioctl, fd, GET, &lo);
	if (r < 0)
		return (int)r;
	lo.flags |= UP;
	return (int)SYS3(__NR_ioctl, fd, SET, &lo);
}

/* multicast sends packets for groups to the loopback interface: without a route, programs that join a group without naming an interface
 * fail (ENODEV). Nothing else needs it: a failure is ignored. */
static void multicast(void)
{
	enum {
		NETLINK = 16, RAW = 3, ROUTE = 0, NEWROUTE = 24, REQUEST = 1, CREATE = 0x400, INET6 = 10, MAIN = 254, LOCAL = 255, KERNEL = 2,
		LINK = 253, UNICAST = 1, MULTICAST = 5, OUT = 4, DESTINATION = 1, LOOPBACK = 1,
	};
	struct {
		u32 size; /* struct nlmsghdr */
		u16 type, flags;
		u32 sequence, port;
		u8 family, bits, source_bits, tos, table, protocol, scope, kind; /* struct rtmsg */
		u32 more;
		u16 out_length, out; /* struct rtattr */
		u32 index;
		u16 length, destination; /* struct rtattr */
		u8 address[16];
	} m[] = {
		{ 44, NEWROUTE, REQUEST | CREATE, .family = INET, .bits = 4, .table = MAIN, .protocol = KERNEL, .scope = LINK, .kind = UNICAST,
		  .out_length = 8, .out = OUT, .index = LOOPBACK, .length = 8, .destination = DESTINATION, .address = { 224 } },
		{ 56, NEWROUTE, REQUEST | CREATE, .family = INET6, .bits = 8, .table = LOCAL, .protocol = KERNEL, .kind = MULTICAST,
		  .out_length = 8, .out = OUT, .index = LOOPBACK, .length = 20, .destination = DESTINATION, .address = { 0xff } },
	};
	_Static_assert(sizeof *m == 56, "messages of rtnetlink(7)");
	int fd = (int)SYS3(__NR_socket, NETLINK, RAW | CLOEXEC, ROUTE);
	if (fd < 0)
		return;
	for (unsigned i = 0; i < sizeof m / sizeof *m; i++)
		SYS3(__NR_write, fd, m + i, m[i].size);
	SYS1(__NR_close, fd);
}

int loopback(struct job *j)
{
	(void)j;
	int fd = (int)SYS3(__NR_socket, INET, DATAGRAM | CLOEXEC, 0);
	if (fd < 0)
		return fd;
	int r = up(fd);
	SYS1(__NR_close, fd);
	multicast();
	return r;
}

/* stand_in gives the loopback interface the network 198.18.0.0/15 (RFC 2544: for benchmarks, routed nowhere) by a second
 * address. The kernel takes every address of a network on this interface for its own, so a connection to one of them
 * reaches a listener that is bound to it, or is refused; no packet leaves the namespace. */
static int stand_in(int fd)
{
	enum { ADDRESS = 0x8916, MASK = 0x891c }; /* SIOCSIFADDR, SIOCSIFNETMASK */
	struct interface lo = { .name = "lo:1", .flags = INET, .address = { 198, 18, 0, 1 } };
	struct interface mask = { .name = "lo:1", .flags = INET, .address = { 255, 254, 0, 0 } };
	long r = SYS3(__NR_ioctl, fd, ADDRESS, &lo);
	return r < 0 ? (int)r : (int)SYS3(__NR_ioctl, fd, MASK, &mask);
}

int set(const char *path, const char *value, u64 size)
{
	int fd = (int)SYS4(__NR_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	long r = SYS3(__NR_write, fd, value, size);
	SYS1(__NR_close, fd);
	return r < 0 ? (int)r : 0;
}

/* settings permits everybody in the namespace to bind ports below 1024: who answers for other hosts has no capability
 * there. Connections have the congestion control that every kernel has: the host's can be one that sends at a pace (bbr),
 * which it takes too low for what is passed on, and nothing of this network can be congested. */
static int settings(void)
{
	int r = set("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0", 1);
	return r < 0 ? r : set("/proc/sys/net/ipv4/tcp_congestion_control", "reno", 4);
}

/* large_packets lets the loopback interface carry what is written as packets of up to LARGE bytes, the most there is, in
 * place of 64 KiB (IFLA_GSO_IPV4_MAX_SIZE, since Linux 6.3; older kernels ignore it). What passes a door crosses two
 * connections, and this takes a third off what the one inside costs. Without it a door is only slower: a failure is ignored. */
static void large_packets(void)
{
	enum { NETLINK = 16, RAW = 3, ROUTE = 0, SETLINK = 19, REQUEST = 1, GSO_IPV4_MAX_SIZE = 63, LOOPBACK = 1, LARGE = 8 * 65535 };
	struct {
		u32 size; /* struct nlmsghdr */
		u16 type, flags;
		u32 sequence, port;
		u8 family, pad; /* struct ifinfomsg */
		u16 device;
		u32 index, state, change;
		u16 length, attribute; /* struct nlattr */
		u32 value;
	} m = { sizeof m, SETLINK, REQUEST, .index = LOOPBACK, .length = 8, .attribute = GSO_IPV4_MAX_SIZE, .value = LARGE };
	_Static_assert(sizeof m == 40, "messages of rtnetlink(7)");
	int fd = (int)SYS3(__NR_socket, NETLINK, RAW | CLOEXEC, ROUTE);
	if (fd < 0)
		return;
	SYS3(__NR_write, fd, &m, sizeof m);
	SYS1(__NR_close, fd);
}

/* name_server binds a socket to the address of the name server in the job's resolv.conf. */
static int name_server(int fd)
{
	struct {
		u16 family, port;
		u8 address[4];
		char rest[8];
	} at = { .family = INET, .port = 53 << 8, .address = { 127, 0, 0, 1 } }; /* the port in network order */
	return (int)SYS3(__NR_bind, fd, &at, sizeof at);
}

/* resolver makes the job ask a name server: elsewhere jobs have none, and names that /etc/hosts lacks do not exist. */
static int resolver(void)
{
	int r = mount_at("/var/door/resolv.conf", "/etc/resolv.conf", 0, MS_BIND, 0);
	return r < 0 ? r : mount_at("/var/door/nsswitch.conf", "/etc/nsswitch.conf", 0, MS_BIND, 0);
}

/* open_door passes the supervisor four sockets of this namespace: two that receive the job's queries for names, by UDP and
 * by TCP, and two without an address, from which corral-egress makes all others. Only they outlive this step, outside of the
 * jail. */
static int open_door(void)
{
	enum { UDP, TCP, SOCKETS = 4, BACKLOG = 16 };
	struct report out = { .version = PLAN_VERSION, .kind = REPORT_DOOR };
	int fds[SOCKETS], n = 0;
	long r = 0;
	for (; n < SOCKETS; n++) {
		r = SYS3(__NR_socket, INET, (n == UDP ? DATAGRAM : STREAM) | CLOEXEC, 0);
		if (r < 0)
			break;
		fds[n] = (int)r;
	}
	if (r >= 0)
		r = stand_in(fds[UDP]);
	if (r >= 0)
		r = settings();
	if (r >= 0)
		r = name_server(fds[UDP]);
	if (r >= 0)
		r = name_server(fds[TCP]);
	if (r >= 0)
		r = SYS2(__NR_listen, fds[TCP], BACKLOG);
	large_packets();
	if (r >= 0)
		r = pass(FD_CONTROL, &out, sizeof out, fds, n);
	while (n > 0)
		SYS1(__NR_close, fds[--n]);
	return r < 0 ? (int)r : 0;
}

int door(struct job *j)
{
	int r = 0;
	if (j->prepare.door)
		r = resolver();
	return r < 0 || j->prepare.door != DOOR_OPEN ? r : open_door();
}
