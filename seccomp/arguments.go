package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

const (
	setID = unix.S_ISUID | unix.S_ISGID

	// makesFile are the open(2) flags with which the kernel reads the mode: O_CREAT, and the bit of O_TMPFILE that is
	// not O_DIRECTORY (O_DIRECTORY differs per architecture; this bit does not).
	makesFile = unix.O_CREAT | 0o20000000

	// newNamespace is every CLONE_NEW* flag. CLONE_NEWTIME overlaps the exit signal in clone(2), where no valid
	// signal has that bit.
	newNamespace = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

	// Options of sockets: linux/tcp.h, linux/in6.h.
	tcpULP, tcpMD5Sig, tcpMD5SigExt, tcpAOAddKey = 31, 14, 32, 38
	ipv6OldOptions, ipv6FlowLabels               = 6, 32
)

// personalities are those that change no behavior that a privileged program could rely on: PER_LINUX, PER_LINUX32,
// each with UNAME26; and ADDR_NO_RANDOMIZE.
var personalities = []uint32{0x0, 0x8, 0x20000, 0x20008, 0x40000, queryPersonality}

const queryPersonality = 0xffffffff // changes nothing, returns the current one

// ioctls are the allowed requests outside the range of terminal requests. Programs use them on the files of a job: C
// libraries on terminals, cp and Node.js to clone, chattr and lsattr, JVM and libuv to list interfaces. All other
// requests reach code of drivers and file systems.
var ioctls = []uint32{
	0x802c542a, 0x402c542b, 0x402c542c, 0x402c542d, // TCGETS2, TCSETS2, TCSETSW2, TCSETSF2
	unix.TIOCGPTN, unix.TIOCSPTLCK, unix.TIOCGPTLCK, unix.TIOCGPKT, unix.TIOCGEXCL, unix.TIOCGDEV, unix.TIOCSIG,
	0x8901, 0x8902, 0x8903, 0x8904, 0x8905, // FIOSETOWN, SIOCSPGRP, FIOGETOWN, SIOCGPGRP, SIOCATMARK
	unix.SIOCGIFNAME, unix.SIOCGIFCONF, unix.SIOCGIFFLAGS, unix.SIOCGIFADDR, unix.SIOCGIFDSTADDR, unix.SIOCGIFBRDADDR,
	unix.SIOCGIFNETMASK, unix.SIOCGIFMETRIC, unix.SIOCGIFMTU, unix.SIOCGIFHWADDR, unix.SIOCGIFINDEX, unix.SIOCGIFTXQLEN,
	0x2,                                                    // FIGETBSZ
	unix.FS_IOC_GETFLAGS, unix.FS_IOC_SETFLAGS, 0x80087601, // FS_IOC_GETVERSION
	0xc020660b, 0x801c581f, 0x401c5820, // FS_IOC_FIEMAP, FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR
	unix.FICLONE, unix.FICLONERANGE,
	0x80045200, // RNDGETENTCNT
	0xc0686611, // PROCMAP_QUERY
	unix.NS_GET_USERNS, unix.NS_GET_PARENT, unix.NS_GET_NSTYPE, unix.NS_GET_OWNER_UID,
}

// pidfdGetInfo is PIDFD_GET_INFO without the size of its structure, which grows with the kernel.
const pidfdGetInfo, withoutSize = 0xc000ff0b, 0xc000ffff

const (
	noSetID  = "refused: mode & 06000"
	fileOnly = "refused: mode & 06000; a type other than regular, FIFO or socket"
)

// node refuses a mknod mode argument except for a regular file, FIFO or socket without set-id bits.
func node(mode int) []clause {
	types := isNot(mode, 0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK)
	return []clause{{has(mode, setID)}, {masked(types, unix.S_IFMT)}}
}

// Operands about the family, type and protocol of a socket. Jobs do not need the kernel code of the other families, and
// namespaces do not cover all of them (AF_VSOCK).
var (
	unixSocket  = is(0, unix.AF_UNIX)
	inetSocket  = is(0, unix.AF_INET, unix.AF_INET6)
	routeSocket = is(0, unix.AF_NETLINK)
)

func socketType(types ...uint32) operand { return masked(is(1, types...), 0xf) } // SOCK_TYPE_MASK of linux/net.h

// streamOrDatagram holds for the sockets of the Internet that jobs may have.
var streamOrDatagram = clause{inetSocket, socketType(unix.SOCK_STREAM, unix.SOCK_DGRAM), is(2, 0, unix.IPPROTO_TCP, unix.IPPROTO_UDP)}

// socketConditions returns the argument rules of a call that makes sockets. Programs that try several kinds go on with the next one on
// the errors of a kernel that lacks one.
func socketConditions(call string) []condition {
	var list []condition
	for _, p := range []struct {
		profile, families, protocols string
		more, moreProtocols          []clause
	}{
		{
			defaultProfile, "AF_UNIX, AF_INET, AF_INET6, AF_NETLINK", "; NETLINK_ROUTE",
			[]clause{{routeSocket}},
			[]clause{{routeSocket, is(2, unix.NETLINK_ROUTE)}},
		},
		// Without NETLINK_ROUTE, listing interfaces fails; resolving names and connecting still work.
		{profile: strictProfile, families: "AF_UNIX, AF_INET, AF_INET6"},
	} {
		list = append(list,
			condition{
				call: call, profile: p.profile, only: true, errno: unix.EAFNOSUPPORT, text: "only: " + p.families,
				clauses: append([]clause{{unixSocket}, {inetSocket}}, p.more...),
			},
			condition{
				call: call, profile: p.profile, text: "refused: AF_INET and AF_INET6 with SOCK_RAW or SOCK_PACKET",
				clauses: []clause{{inetSocket, socketType(unix.SOCK_RAW, unix.SOCK_PACKET)}},
			},
			condition{
				call: call, profile: p.profile, only: true, errno: unix.ESOCKTNOSUPPORT,
				text:    "only: with AF_INET and AF_INET6, SOCK_STREAM and SOCK_DGRAM",
				clauses: append([]clause{{unixSocket}, {inetSocket, socketType(unix.SOCK_STREAM, unix.SOCK_DGRAM)}}, p.more...),
			},
			condition{
				call: call, profile: p.profile, only: true, errno: unix.EPROTONOSUPPORT,
				text:    "only: with AF_INET and AF_INET6, protocol 0, TCP and UDP" + p.protocols,
				clauses: append([]clause{{unixSocket}, streamOrDatagram}, p.moreProtocols...),
			})
	}
	return list
}

// ownUser and ownGroup stand for the ids of a job in the programs that Compile and Split return: see Own. Nobody has them.
const ownUser, ownGroup = 0xffff0001, 0xffff0002

// ownerCondition is the argument rule of a call that sets the owner of a file. To an id of others a kernel answers EPERM, but inside a
// jail, where they have no mapping, EINVAL or EOVERFLOW: dpkg ignores the first alone. -1 changes nothing.
func ownerCondition(call string, user, group int) condition {
	return condition{
		call: call, only: true, text: "only: the job's own user and group, and -1",
		clauses: []clause{{is(user, ownUser, whole), is(group, ownGroup, whole)}},
	}
}

// conditions are the argument rules, for calls of allowed.
var conditions = slices.Concat(socketConditions("socket"), socketConditions("socketpair"), []condition{
	ownerCondition("chown", 1, 2),
	ownerCondition("fchown", 1, 2),
	ownerCondition("lchown", 1, 2),
	ownerCondition("fchownat", 2, 3),
	{call: "open", text: noSetID, clauses: []clause{{has(1, makesFile), has(2, setID)}}},
	{call: "openat", text: noSetID, clauses: []clause{{has(2, makesFile), has(3, setID)}}},
	{call: "creat", text: noSetID, clauses: []clause{{has(1, setID)}}},
	{call: "chmod", text: noSetID, clauses: []clause{{has(1, setID)}}},
	{call: "fchmod", text: noSetID, clauses: []clause{{has(1, setID)}}},
	{call: "fchmodat", text: noSetID, clauses: []clause{{has(2, setID)}}},
	{call: "mknod", text: fileOnly, clauses: node(1)},
	{call: "mknodat", text: fileOnly, clauses: node(2)},
	// Huge pages come from one pool of the host, which its administrator reserved for a program, and are not charged as memory. Programs
	// that want some fall back to others, as on a host without a pool. Of segments (shmget), RLIMIT_MEMLOCK bounds them.
	{call: "mmap", text: "refused: MAP_HUGETLB", errno: unix.ENOMEM, clauses: []clause{{has(3, unix.MAP_HUGETLB)}}},
	{
		call: "memfd_create", profile: defaultProfile, text: "refused: MFD_HUGETLB", errno: unix.EINVAL,
		clauses: []clause{{has(1, unix.MFD_HUGETLB)}},
	},
	// RENAME_WHITEOUT leaves a character device in place of the file, which mknod may not create: overlayfs takes it
	// for a deleted file.
	{call: "renameat2", text: "refused: RENAME_WHITEOUT", errno: unix.EINVAL, clauses: []clause{{has(4, unix.RENAME_WHITEOUT)}}},
	{
		// TIOCSTI and TIOCLINUX put input into a terminal that other processes read (CVE-2017-5226, CVE-2023-28100),
		// TIOCCONS redirects the console's output, TIOCSETD loads line disciplines (CVE-2017-2636, CVE-2023-6546).
		call: "ioctl", text: "refused: TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD",
		clauses: []clause{{is(1, unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCCONS, unix.TIOCSETD)}},
	},
	{
		call: "ioctl", only: true, errno: unix.ENOTTY,
		text: "only: 0x5400 to 0x54ff (terminals, FIONREAD, FIONBIO, FIOCLEX), newer terminal requests; reading interface addresses; " +
			"file attributes, extents and clones; reading facts about namespaces, processes and their memory, and the kernel's entropy",
		clauses: []clause{
			{masked(is(1, 0x5400), 0xffffff00)},
			{is(1, ioctls...)},
			{masked(is(1, pidfdGetInfo), withoutSize)},
		},
	},
	{
		// The kernel charges locks to no cgroup. The supervisor counts the locks on files that a process has open,
		// but locks of an open file description persist while it is queued in a socket, where they cannot be found.
		// F_OFD_GETLK is refused too, so programs fall back as on a kernel without these locks.
		call: "fcntl", text: "refused: F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW", errno: unix.EINVAL,
		clauses: []clause{{is(1, unix.F_OFD_GETLK, unix.F_OFD_SETLK, unix.F_OFD_SETLKW)}},
	},
	// Core scheduling belongs to the host: with it, a job could keep all others off the sibling threads of its cores.
	{call: "prctl", text: "refused: PR_SCHED_CORE", errno: unix.EINVAL, clauses: []clause{{is(0, unix.PR_SCHED_CORE)}}},
	{
		// TCP_ULP sets upper layer protocols: kernel TLS, espintcp, SMC. No kernel lacks it, only protocols, so the error is EPERM.
		call: "setsockopt", text: "refused: TCP_ULP", clauses: []clause{{is(1, unix.IPPROTO_TCP), is(2, tcpULP)}},
	},
	{
		// UDP_ENCAP leads to IPsec and L2TP code for UDP. Compiled socket filters use kernel memory that is not charged to the job, under a
		// single limit for the host (net.core.bpf_jit_limit). Neither are the timestamps of sent data, which wait in the socket until they
		// are read, nor is what other options leave in a socket: IPv6 packet headers (64 KiB for each socket and for each of the host's
		// 4,096 flow labels) and TCP keys (128 KiB). Programs with only a loopback interface do not need these options. The supervisor
		// counts memberships of multicast groups.
		call: "setsockopt", errno: unix.ENOPROTOOPT,
		text: "refused: TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY, UDP_ENCAP, SO_TIMESTAMPING, SO_ATTACH_FILTER, SO_ATTACH_BPF, " +
			"SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF, IPV6_2292PKTOPTIONS, IPV6_RTHDR, IPV6_FLOWLABEL_MGR",
		clauses: []clause{
			{
				is(1, unix.SOL_SOCKET),
				is(2, unix.SO_ATTACH_FILTER, unix.SO_ATTACH_BPF, unix.SO_ATTACH_REUSEPORT_CBPF, unix.SO_ATTACH_REUSEPORT_EBPF,
					unix.SO_TIMESTAMPING, unix.SO_TIMESTAMPING_NEW),
			},
			{is(1, unix.IPPROTO_TCP), is(2, tcpMD5Sig, tcpMD5SigExt, tcpAOAddKey)},
			{is(1, unix.IPPROTO_UDP), is(2, unix.UDP_ENCAP)},
			{is(1, unix.IPPROTO_IPV6), is(2, ipv6OldOptions, unix.IPV6_RTHDR, ipv6FlowLabels)},
		},
	},
	{
		// The descriptor of a listener keeps filters, most of whose memory is charged to no cgroup and whose compiled code comes
		// from a single pool of the host (net.core.bpf_jit_limit), when the process that loaded them is gone. The supervisor counts
		// the filters of processes.
		call: "seccomp", text: "refused: SECCOMP_FILTER_FLAG_NEW_LISTENER", errno: unix.EINVAL,
		clauses: []clause{{is(0, unix.SECCOMP_SET_MODE_FILTER), has(1, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)}},
	},
	{call: "clone", text: "refused: any CLONE_NEW* flag", clauses: []clause{{has(0, newNamespace)}}},
	{call: "unshare", text: "refused: any CLONE_NEW* flag", clauses: []clause{{has(0, newNamespace)}}},
	{
		call: "personality", profile: defaultProfile, only: true,
		text:    "only: Linux, Linux32, each with UNAME26, ADDR_NO_RANDOMIZE, and queries",
		clauses: []clause{{is(0, personalities...)}},
	},
	{
		call: "personality", profile: strictProfile, only: true,
		text:    "only: queries",
		clauses: []clause{{is(0, queryPersonality)}},
	},
})

// conditionsOf returns the argument rules of a call in a profile, in the order in which they apply.
func conditionsOf(profile, call string) []condition {
	list := conditions
	if isEgress(profile) {
		list = egressConditions
	}
	if profile == EgressStore {
		list = slices.Concat(list, storeConditions)
	}
	var of []condition
	for _, c := range list {
		if c.call == call && (c.profile == "" || c.profile == basedOn(profile)) {
			of = append(of, c)
		}
	}
	return of
}
