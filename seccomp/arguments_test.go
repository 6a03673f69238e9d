package seccomp

import (
	"math/rand/v2"
	"testing"
)

// An argumentCase is a call and its action in both profiles.
type argumentCase struct {
	call   string
	args   [6]uint64
	want   uint32 // in default
	strict uint32 // in strict; 0: as in default
}

var argumentCases = []argumentCase{
	{call: "open", args: [6]uint64{0, 0, 0o4755}, want: wantAllow}, // creates nothing: mode is not read
	{call: "open", args: [6]uint64{0, 0x241, 0o755}, want: wantAllow},
	{call: "open", args: [6]uint64{0, 0x241, 0o1777}, want: wantAllow}, // sticky
	{call: "open", args: [6]uint64{0, 0x241, 0o4755}, want: wantEPERM},
	{call: "open", args: [6]uint64{0, 0x40, 0o2755}, want: wantEPERM},
	{call: "open", args: [6]uint64{0, 0x410002, 0o4755}, want: wantEPERM},
	{call: "open", args: [6]uint64{0, 0x10000, 0o4755}, want: wantAllow}, // O_DIRECTORY without the rest of O_TMPFILE
	{call: "openat", args: [6]uint64{0, 0, 0x241, 0o755}, want: wantAllow},
	{call: "openat", args: [6]uint64{0, 0, 0x241, 0o4755}, want: wantEPERM},
	{call: "openat", args: [6]uint64{0, 0, 0x404002, 0o2755}, want: wantEPERM}, // O_TMPFILE of arm64
	{call: "openat", args: [6]uint64{0, 0, 0x80000, 0o6000}, want: wantAllow},
	{call: "openat", args: [6]uint64{0o6000, 0x40, 0, 0}, want: wantAllow},
	{call: "creat", args: [6]uint64{0, 0o644}, want: wantAllow},
	{call: "creat", args: [6]uint64{0, 0o2644}, want: wantEPERM},
	{call: "chmod", args: [6]uint64{0o6000, 0o1777}, want: wantAllow},
	{call: "chmod", args: [6]uint64{0, 0o4755}, want: wantEPERM},
	{call: "chmod", args: [6]uint64{0, 0o2755}, want: wantEPERM},
	{call: "fchmod", args: [6]uint64{3, 0o755}, want: wantAllow},
	{call: "fchmod", args: [6]uint64{3, 0o6755}, want: wantEPERM},
	{call: "fchmodat", args: [6]uint64{0, 0o6000, 0o755}, want: wantAllow},
	{call: "fchmodat", args: [6]uint64{0, 0, 0o4755}, want: wantEPERM},
	{call: "mknod", args: [6]uint64{0, 0o644}, want: wantAllow},
	{call: "mknod", args: [6]uint64{0, 0o100644}, want: wantAllow},
	{call: "mknod", args: [6]uint64{0, 0o010644}, want: wantAllow},
	{call: "mknod", args: [6]uint64{0, 0o140644}, want: wantAllow},
	{call: "mknod", args: [6]uint64{0, 0o020644}, want: wantEPERM}, // character device
	{call: "mknod", args: [6]uint64{0, 0o060644}, want: wantEPERM}, // block device
	{call: "mknod", args: [6]uint64{0, 0o110644}, want: wantEPERM}, // not a valid type
	{call: "mknod", args: [6]uint64{0, 0o104755}, want: wantEPERM},
	{call: "mknodat", args: [6]uint64{0, 0o020000, 0o010644}, want: wantAllow},
	{call: "mknodat", args: [6]uint64{0, 0, 0o020644}, want: wantEPERM},
	{call: "mknodat", args: [6]uint64{0, 0, 0o012644}, want: wantEPERM},
	{call: "chown", args: [6]uint64{0, ownUser, 0xffffffff}, want: wantAllow},
	{call: "chown", args: [6]uint64{0, ownUser, 60}, want: wantEPERM},
	{call: "chown", args: [6]uint64{0, 0, ownGroup}, want: wantEPERM},
	{call: "fchown", args: [6]uint64{0, ownUser, 0xffffffff}, want: wantAllow},
	{call: "fchown", args: [6]uint64{0, ownUser, 60}, want: wantEPERM},
	{call: "fchown", args: [6]uint64{0, 0, ownGroup}, want: wantEPERM},
	{call: "lchown", args: [6]uint64{0, ownUser, 0xffffffff}, want: wantAllow},
	{call: "lchown", args: [6]uint64{0, ownUser, 60}, want: wantEPERM},
	{call: "lchown", args: [6]uint64{0, 0, ownGroup}, want: wantEPERM},
	{call: "fchownat", args: [6]uint64{0, 0, 0xffffffff, ownGroup}, want: wantAllow},
	{call: "fchownat", args: [6]uint64{0, 0, 65534, ownGroup}, want: wantEPERM},
	{call: "renameat2", args: [6]uint64{0, 0, 0, 0, 0}, want: wantAllow},
	{call: "renameat2", args: [6]uint64{4, 4, 4, 4, 3, 4}, want: wantAllow}, // RENAME_NOREPLACE, RENAME_EXCHANGE
	{call: "renameat2", args: [6]uint64{0, 0, 0, 0, 4}, want: wantEINVAL},
	{call: "renameat2", args: [6]uint64{0, 0, 0, 0, 5}, want: wantEINVAL},
	{call: "mmap", args: [6]uint64{0, 4096, 3, 0x22}, want: wantAllow},
	{call: "mmap", args: [6]uint64{0x40000, 0x40000, 0x40000, 0x4022, 0x40000, 0x40000}, want: wantAllow},
	{call: "mmap", args: [6]uint64{0, 4096, 3, 0x40022}, want: wantENOMEM},
	{call: "mmap", args: [6]uint64{0, 4096, 3, 0x78040001}, want: wantENOMEM}, // MAP_HUGE_1GB
	{call: "memfd_create", args: [6]uint64{0, 3}, want: wantAllow, strict: wantEPERM},
	{call: "memfd_create", args: [6]uint64{0, 5}, want: wantEINVAL, strict: wantEPERM},
	{call: "fcntl", args: [6]uint64{36, 6, 37}, want: wantAllow}, // F_SETLK
	{call: "fcntl", args: [6]uint64{0, 1030}, want: wantAllow},   // F_DUPFD_CLOEXEC
	{call: "fcntl", args: [6]uint64{0, 36}, want: wantEINVAL},
	{call: "fcntl", args: [6]uint64{0, 37}, want: wantEINVAL},
	{call: "fcntl", args: [6]uint64{0, 38}, want: wantEINVAL},
	{call: "ioctl", args: [6]uint64{0x5412, 0x5401}, want: wantAllow},
	{call: "ioctl", args: [6]uint64{0, 0x5411}, want: wantAllow},
	{call: "ioctl", args: [6]uint64{0, 0x5413}, want: wantAllow}, // TIOCGWINSZ
	{call: "ioctl", args: [6]uint64{0, 0x5412}, want: wantEPERM},
	{call: "ioctl", args: [6]uint64{0, 0x541c}, want: wantEPERM},
	{call: "ioctl", args: [6]uint64{0, 0x541d}, want: wantEPERM},
	{call: "ioctl", args: [6]uint64{0, 0x5423}, want: wantEPERM},
	{call: "ioctl", args: [6]uint64{0, 0x541b}, want: wantAllow},      // FIONREAD
	{call: "ioctl", args: [6]uint64{0, 0x802c542a}, want: wantAllow},  // TCGETS2
	{call: "ioctl", args: [6]uint64{0, 0x80045430}, want: wantAllow},  // TIOCGPTN
	{call: "ioctl", args: [6]uint64{0, 0x8912}, want: wantAllow},      // SIOCGIFCONF
	{call: "ioctl", args: [6]uint64{0, 0x40049409}, want: wantAllow},  // FICLONE
	{call: "ioctl", args: [6]uint64{0, 0x80086601}, want: wantAllow},  // FS_IOC_GETFLAGS
	{call: "ioctl", args: [6]uint64{0, 0x8914}, want: wantENOTTY},     // SIOCSIFFLAGS
	{call: "ioctl", args: [6]uint64{0, 0x400454ca}, want: wantENOTTY}, // TUNSETIFF, whose type byte is that of terminals
	{call: "ioctl", args: [6]uint64{0, 0xc0506617}, want: wantENOTTY}, // FS_IOC_ADD_ENCRYPTION_KEY
	{call: "ioctl", args: [6]uint64{0, 0x40806685}, want: wantENOTTY}, // FS_IOC_ENABLE_VERITY
	{call: "ioctl", args: [6]uint64{0, 0xc0109207}, want: wantENOTTY}, // a request of Btrfs and others
	{call: "ioctl", args: [6]uint64{0, 0xae01}, want: wantENOTTY},     // KVM_CREATE_VM
	{call: "ioctl", args: [6]uint64{0, 0}, want: wantENOTTY},
	{call: "ioctl", args: [6]uint64{0, 0xc048ff0b}, want: wantAllow},  // PIDFD_GET_INFO with 72 bytes
	{call: "ioctl", args: [6]uint64{0, 0x8048ff0b}, want: wantENOTTY}, // another direction
	{call: "ioctl", args: [6]uint64{0, 0xc0686611}, want: wantAllow},  // PROCMAP_QUERY
	{call: "ioctl", args: [6]uint64{0, 0xb701}, want: wantAllow},      // NS_GET_USERNS
	{call: "ioctl", args: [6]uint64{0, 0x80045200}, want: wantAllow},  // RNDGETENTCNT
	{call: "ioctl", args: [6]uint64{0, 0x40085203}, want: wantENOTTY}, // RNDADDENTROPY
	{call: "unshare", args: [6]uint64{0x400}, want: wantAllow},        // CLONE_FILES
	{call: "unshare", args: [6]uint64{0x10000600}, want: wantEPERM},   // CLONE_NEWUSER
	{call: "unshare", args: [6]uint64{0x80}, want: wantEPERM},         // CLONE_NEWTIME
	{call: "prctl", args: [6]uint64{62, 1}, want: wantEINVAL},         // PR_SCHED_CORE
	{call: "prctl", args: [6]uint64{15, 62}, want: wantAllow},
	{call: "setsockopt", args: [6]uint64{0, 6, 31}, want: wantEPERM},
	{call: "setsockopt", args: [6]uint64{0, 17, 100}, want: wantENOPROTOOPT},
	{call: "setsockopt", args: [6]uint64{0, 6, 1}, want: wantAllow},        // TCP_NODELAY
	{call: "setsockopt", args: [6]uint64{0, 1, 26}, want: wantENOPROTOOPT}, // SO_ATTACH_FILTER
	{call: "setsockopt", args: [6]uint64{0, 1, 50}, want: wantENOPROTOOPT},
	{call: "setsockopt", args: [6]uint64{0, 1, 51}, want: wantENOPROTOOPT},
	{call: "setsockopt", args: [6]uint64{0, 1, 52}, want: wantENOPROTOOPT},
	{call: "setsockopt", args: [6]uint64{0, 1, 27}, want: wantAllow},       // SO_DETACH_FILTER
	{call: "setsockopt", args: [6]uint64{0, 1, 37}, want: wantENOPROTOOPT}, // SO_TIMESTAMPING
	{call: "setsockopt", args: [6]uint64{0, 1, 65}, want: wantENOPROTOOPT}, // SO_TIMESTAMPING_NEW
	{call: "setsockopt", args: [6]uint64{0, 1, 29}, want: wantAllow},       // SO_TIMESTAMP
	{call: "setsockopt", args: [6]uint64{0, 6, 37}, want: wantAllow},
	{call: "setsockopt", args: [6]uint64{0, 6, 14}, want: wantENOPROTOOPT},  // TCP_MD5SIG
	{call: "setsockopt", args: [6]uint64{0, 6, 32}, want: wantENOPROTOOPT},  // TCP_MD5SIG_EXT
	{call: "setsockopt", args: [6]uint64{0, 6, 38}, want: wantENOPROTOOPT},  // TCP_AO_ADD_KEY
	{call: "setsockopt", args: [6]uint64{0, 41, 6}, want: wantENOPROTOOPT},  // IPV6_2292PKTOPTIONS
	{call: "setsockopt", args: [6]uint64{0, 41, 32}, want: wantENOPROTOOPT}, // IPV6_FLOWLABEL_MGR
	{call: "setsockopt", args: [6]uint64{0, 41, 57}, want: wantENOPROTOOPT}, // IPV6_RTHDR
	{call: "setsockopt", args: [6]uint64{0, 0, 35}, want: wantAllow},        // IP_ADD_MEMBERSHIP
	{call: "setsockopt", args: [6]uint64{0, 41, 20}, want: wantAllow},       // IPV6_JOIN_GROUP
	{call: "setsockopt", args: [6]uint64{0, 41, 26}, want: wantAllow},       // IPV6_V6ONLY
	{call: "setsockopt", args: [6]uint64{0, 0, 32}, want: wantAllow},        // IP_MULTICAST_IF
	{call: "seccomp", args: [6]uint64{1, 0}, want: wantAllow},
	{call: "seccomp", args: [6]uint64{1, 1}, want: wantAllow},  // SECCOMP_FILTER_FLAG_TSYNC
	{call: "seccomp", args: [6]uint64{3, 8}, want: wantAllow},  // SECCOMP_GET_NOTIF_SIZES: the kernel refuses flags
	{call: "seccomp", args: [6]uint64{1, 8}, want: wantEINVAL}, // SECCOMP_FILTER_FLAG_NEW_LISTENER
	{call: "seccomp", args: [6]uint64{1, 0x19}, want: wantEINVAL},
	{call: "setsockopt", args: [6]uint64{0, 1, 31}, want: wantAllow},
	{call: "setsockopt", args: [6]uint64{0, 17, 31}, want: wantAllow},
	{call: "setsockopt", args: [6]uint64{0, 6, 100}, want: wantAllow},
	{call: "clone", args: [6]uint64{17}, want: wantAllow},       // fork
	{call: "clone", args: [6]uint64{0x4111}, want: wantAllow},   // vfork
	{call: "clone", args: [6]uint64{0x3d0f00}, want: wantAllow}, // pthread_create
	{call: "clone", args: [6]uint64{0x00020011}, want: wantEPERM},
	{call: "clone", args: [6]uint64{0x02000011}, want: wantEPERM},
	{call: "clone", args: [6]uint64{0x04000011}, want: wantEPERM},
	{call: "clone", args: [6]uint64{0x08000011}, want: wantEPERM},
	{call: "clone", args: [6]uint64{0x10000011}, want: wantEPERM},
	{call: "clone", args: [6]uint64{0x20000011}, want: wantEPERM},
	{call: "clone", args: [6]uint64{0x40000011}, want: wantEPERM},
	{call: "clone", args: [6]uint64{0x00000080}, want: wantEPERM},
	{call: "socket", args: [6]uint64{1, 1, 0}, want: wantAllow},
	{call: "socket", args: [6]uint64{1, 0x80805, 0}, want: wantAllow},
	{call: "socket", args: [6]uint64{2, 1, 0}, want: wantAllow},
	{call: "socket", args: [6]uint64{2, 0x80801, 6}, want: wantAllow},
	{call: "socket", args: [6]uint64{10, 0x80002, 17}, want: wantAllow},
	{call: "socket", args: [6]uint64{2, 1, 262}, want: wantEPROTONOSUPPORT}, // MPTCP
	{call: "socket", args: [6]uint64{2, 2, 1}, want: wantEPROTONOSUPPORT},   // ping
	{call: "socket", args: [6]uint64{2, 3, 0}, want: wantEPERM},             // raw
	{call: "socket", args: [6]uint64{10, 3, 6}, want: wantEPERM},
	{call: "socket", args: [6]uint64{2, 5, 0}, want: wantESOCKTNOSUPPORT}, // SCTP's type
	{call: "socket", args: [6]uint64{2, 10, 0}, want: wantEPERM},          // SOCK_PACKET, which becomes AF_PACKET
	{call: "socket", args: [6]uint64{2, 1, 132}, want: wantEPROTONOSUPPORT},
	{call: "socket", args: [6]uint64{16, 3, 0}, want: wantAllow, strict: wantEAFNOSUPPORT},
	{call: "socket", args: [6]uint64{16, 0x80002, 0}, want: wantAllow, strict: wantEAFNOSUPPORT},
	{call: "socket", args: [6]uint64{16, 3, 12}, want: wantEPROTONOSUPPORT, strict: wantEAFNOSUPPORT}, // NETLINK_NETFILTER
	{call: "socket", args: [6]uint64{16, 1, 0}, want: wantAllow, strict: wantEAFNOSUPPORT},
	{call: "socket", args: [6]uint64{0, 1, 0}, want: wantEAFNOSUPPORT},
	{call: "socket", args: [6]uint64{17, 3, 0}, want: wantEAFNOSUPPORT}, // AF_PACKET
	{call: "socket", args: [6]uint64{30, 1, 0}, want: wantEAFNOSUPPORT}, // AF_TIPC
	{call: "socket", args: [6]uint64{33, 2, 0}, want: wantEAFNOSUPPORT}, // AF_RXRPC
	{call: "socket", args: [6]uint64{38, 5, 0}, want: wantEAFNOSUPPORT}, // AF_ALG
	{call: "socket", args: [6]uint64{40, 1, 0}, want: wantEAFNOSUPPORT}, // AF_VSOCK
	{call: "socketpair", args: [6]uint64{1, 1, 0}, want: wantAllow},
	{call: "socketpair", args: [6]uint64{2, 1, 0}, want: wantAllow}, // the kernel has no such pairs
	{call: "socketpair", args: [6]uint64{2, 3, 0}, want: wantEPERM},
	{call: "socketpair", args: [6]uint64{2, 5, 0}, want: wantESOCKTNOSUPPORT},
	{call: "socketpair", args: [6]uint64{2, 2, 136}, want: wantEPROTONOSUPPORT},
	{call: "socketpair", args: [6]uint64{30, 1, 0}, want: wantEAFNOSUPPORT},
	{call: "socketpair", args: [6]uint64{0, 1, 1}, want: wantEAFNOSUPPORT},
	{call: "personality", args: [6]uint64{0}, want: wantAllow, strict: wantEPERM},
	{call: "personality", args: [6]uint64{8}, want: wantAllow, strict: wantEPERM},
	{call: "personality", args: [6]uint64{0x20000}, want: wantAllow, strict: wantEPERM},
	{call: "personality", args: [6]uint64{0x20008}, want: wantAllow, strict: wantEPERM},
	{call: "personality", args: [6]uint64{0x40000}, want: wantAllow, strict: wantEPERM},
	{call: "personality", args: [6]uint64{0xffffffff}, want: wantAllow},
	{call: "personality", args: [6]uint64{0x400000}, want: wantEPERM}, // READ_IMPLIES_EXEC
	{call: "personality", args: [6]uint64{0x40008}, want: wantEPERM},
}

// TestArguments checks calls on either side of every argument rule. Bits 32 to 63 of an argument, which the kernel
// does not read, change no action.
func TestArguments(t *testing.T) {
	everyProgram(t, func(t *testing.T, o oracle, m *machine) {
		for _, c := range argumentCases {
			nr, ok := numberOf(o, c.call)
			if !ok {
				continue // arm64 lacks open
			}
			want := c.want
			if basedOn(o.profile) == strictProfile && c.strict != 0 {
				want = c.strict
			}
			for _, d := range highBits(seccompData{nr: nr, arch: audits[o.arch], args: c.args}) {
				if got, err := m.run(d); err != nil || got != want {
					t.Errorf("%s%#x: action %s (%v), want %s", c.call, d.args, actionNames[got], err, actionNames[want])
				}
				expect(t, o, m, d)
			}
		}
	})
}

// TestArgumentsHaveRows checks that each condition has a row that is allowed and one that is refused, in its profile.
func TestArgumentsHaveRows(t *testing.T) {
	for _, c := range conditions {
		seen := map[uint32]bool{}
		for _, row := range argumentCases {
			if row.call != c.call {
				continue
			}
			if c.profile == strictProfile && row.strict != 0 {
				seen[row.strict] = true
				continue
			}
			seen[row.want] = true
		}
		if action := c.action(); !seen[wantAllow] || !seen[action] {
			t.Errorf("%s %s: rows have %v, want one allowed and one refused", c.call, c.profile, seen)
		}
	}
}

// highBits returns a call unchanged, and with bit 32, bit 63 or the whole upper half set in each argument alone and
// in all.
func highBits(d seccompData) []seccompData {
	out := []seccompData{d}
	for _, high := range []uint64{1 << 32, 1 << 63, 0xffffffff << 32} {
		all := d
		for i := range d.args {
			one := d
			one.args[i] |= high
			all.args[i] |= high
			out = append(out, one)
		}
		out = append(out, all)
	}
	return out
}

func numberOf(o oracle, name string) (uint32, bool) {
	for nr, n := range o.names {
		if n == name {
			return nr, true
		}
	}
	return 0, false
}

// words are values close to those in argument rules.
var words = []uint32{
	0, 1, 2, 3, 5, 6, 8, 10, 16, 17, 30, 31, 38, 40, 100, 0x40, 0x80, 0o2000, 0o4000, 0o1777, 0x1000, 0x2000, 0x8000,
	0xc000, 0x5412, 0x541c, 0x541d, 0x5423, 0x400000, 0x10000, 0x20000, 0x20008, 0x40000, 0x7e020000, 0xffffffff,
}

// randomArguments combines one or two words per argument with random upper halves.
func randomArguments(random *rand.Rand) (args [6]uint64) {
	for j := range args {
		args[j] = uint64(words[random.IntN(len(words))]) | random.Uint64()<<32
		if random.IntN(3) == 0 {
			args[j] |= uint64(words[random.IntN(len(words))])
		}
	}
	return args
}

// TestRandomArguments compares program and oracle on randomArguments.
func TestRandomArguments(t *testing.T) {
	everyProgram(t, func(t *testing.T, o oracle, m *machine) {
		random := rand.New(rand.NewPCG(1, 2))
		for _, c := range conditions {
			nr, ok := numberOf(o, c.call)
			for i := 0; ok && i < 3000; i++ {
				expect(t, o, m, seccompData{nr: nr, arch: audits[o.arch], args: randomArguments(random)})
			}
		}
	})
}
