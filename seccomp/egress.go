package seccomp

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Egress is the profile of corral-egress, which no job can request: what the Go runtime and connections need, and nothing else.
// The program reads what jobs and servers send, and shares the network of the host.
const Egress = "egress"

// EgressStore is the profile of corral-egress if it keeps packages: Egress, and what it needs for files in one flat directory, to which
// Landlock bounds it. It makes and removes no directory, link or device.
const EgressStore = "egress-store"

// isEgress reports whether a profile is one of corral-egress.
func isEgress(profile string) bool { return profile == Egress || profile == EgressStore }

// storeCalls are the calls that EgressStore has in addition.
var storeCalls = []family{
	{
		"store", Allow, "", "files of packages in one directory",
		`openat fstat getdents64 renameat2 unlinkat utimensat`,
	},
}

// openFlags are what openat(2) may be given: O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_NONBLOCK, O_CLOEXEC, and O_NOFOLLOW and
// O_LARGEFILE, which are each other's bit on amd64 and arm64.
const openFlags = 0x3 | 0x40 | 0x80 | 0x800 | 0x80000 | 0x20000 | 0x8000

// storeConditions are the argument rules of storeCalls.
var storeConditions = []condition{
	{
		call: "openat", only: true, text: "only: O_CREAT, O_EXCL, O_NONBLOCK, O_CLOEXEC, O_NOFOLLOW",
		clauses: []clause{{masked(is(2, 0), ^uint32(openFlags))}},
	},
	{call: "renameat2", only: true, text: "only: no flag", clauses: []clause{{is(4, 0)}}},
	{call: "unlinkat", only: true, text: "only: no flag, so no directory", clauses: []clause{{is(2, 0)}}},
}

// egressCalls are the calls of the profile. It is a list of its own: a call that jobs get is not one that this program needs.
var egressCalls = []family{
	{
		"bytes", Allow, "", "the log, eventfd of the runtime, connections",
		`read write readv writev`,
	},
	{
		"descriptors", Allow, "", "its own descriptor table",
		`close fcntl`,
	},
	{
		"pipes", Allow, "", "bytes that are passed on from socket to socket",
		`pipe2 splice`,
	},
	{
		"sockets", Allow, "", "connections; without sendmsg(2) and sendmmsg(2), which could pass descriptors on",
		`socket setsockopt getsockopt bind connect listen accept4 getsockname getpeername sendto recvfrom recvmsg shutdown`,
	},
	{
		"waiting", Allow, "", "the runtime's network poller, and a wait for one socket",
		`poll ppoll epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2`,
	},
	{
		"memory", Allow, "", "the process's own address space, without code",
		`mmap munmap mprotect madvise`,
	},
	{
		"threads", Allow, "", "threads of the runtime",
		`clone futex gettid getpid sched_yield sched_getaffinity set_robust_list rseq tgkill exit exit_group restart_syscall`,
	},
	{
		"signals", Allow, "", "the runtime preempts its threads by signals",
		`rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack`,
	},
	{
		"time", Allow, "", "clocks and sleeping, where the vDSO has none",
		`clock_gettime gettimeofday nanosleep clock_nanosleep`,
	},
	{
		"random numbers", Allow, "", "keys of TLS, ports of queries",
		`getrandom`,
	},
}

// notForEgress is the reason why the profile refuses what a job may do.
const notForEgress = "corral-egress does not need it"

// egressConditions are the argument rules of the profile.
var egressConditions = []condition{
	{
		call: "socket", only: true, text: "only: AF_INET and AF_INET6, stream or datagram, protocol 0, TCP or UDP",
		clauses: []clause{streamOrDatagram},
	},
	{
		// Threads only: a process could go on when this one is ended, and is not needed.
		call: "clone", only: true, text: "only: threads, without a new namespace",
		clauses: []clause{{has(0, unix.CLONE_THREAD), masked(is(0, 0), newNamespace)}},
	},
	{
		call: "mmap", text: "refused: PROT_EXEC, MAP_HUGETLB",
		clauses: []clause{{has(2, unix.PROT_EXEC)}, {has(3, unix.MAP_HUGETLB)}},
	},
	{call: "mprotect", text: "refused: PROT_EXEC", clauses: []clause{{has(2, unix.PROT_EXEC)}}},
	{
		call: "fcntl", only: true, text: "only: F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_SETPIPE_SZ",
		clauses: []clause{{is(1, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_SETPIPE_SZ)}},
	},
	{
		// O_DIRECT has packets, and O_EXCL makes a queue of notifications of the kernel.
		call: "pipe2", only: true, text: "only: O_CLOEXEC with O_NONBLOCK", clauses: []clause{{is(1, unix.O_CLOEXEC|unix.O_NONBLOCK)}},
	},
	{call: "splice", only: true, text: "only: SPLICE_F_NONBLOCK", clauses: []clause{{is(5, unix.SPLICE_F_NONBLOCK)}}},
	{
		// Out-of-band data of unix sockets, MSG_FASTOPEN and MSG_ZEROCOPY are code that nothing here uses.
		call: "sendto", only: true, text: "only: no flag, or MSG_NOSIGNAL",
		clauses: []clause{{is(3, 0, unix.MSG_NOSIGNAL)}},
	},
	{
		call: "setsockopt", only: true,
		text: "only: SO_REUSEADDR, SO_BROADCAST, SO_KEEPALIVE, SO_LINGER; TCP_NODELAY, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT; IPV6_V6ONLY",
		clauses: []clause{
			{is(1, unix.SOL_SOCKET), is(2, unix.SO_REUSEADDR, unix.SO_BROADCAST, unix.SO_KEEPALIVE, unix.SO_LINGER)},
			{is(1, unix.IPPROTO_TCP), is(2, unix.TCP_NODELAY, unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT)},
			{is(1, unix.IPPROTO_IPV6), is(2, unix.IPV6_V6ONLY)},
		},
	},
}

// egressRules returns the rules of a profile: what its calls do not have is refused, or absent as for jobs.
func egressRules(profile string) []Rule {
	var rules []Rule
	listed := map[string]bool{}
	calls := egressCalls
	if profile == EgressStore {
		calls = append(calls[:len(calls):len(calls)], storeCalls...)
	}
	for _, f := range calls {
		for _, r := range f.rules(profile) {
			rules = append(rules, r)
			listed[r.Name] = true
		}
	}
	for _, families := range [][]family{allowed, refused} {
		for _, f := range families {
			for name := range strings.FieldsSeq(f.calls) {
				if listed[name] {
					continue
				}
				r := Rule{Family: f.name, Name: name, Verdict: f.verdict, Reason: f.reason}
				if f.verdict == Allow {
					r.Verdict, r.Reason = Refuse, notForEgress
				}
				rules = append(rules, r)
			}
		}
	}
	return rules
}
