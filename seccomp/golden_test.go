package seccomp

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The oracle computes the expected action of a program independently: numbers come from the kernel's tables in
// testdata, not from libseccomp; arguments are judged by plain Go with literal constants, not by conditions.

// Values of seccomp_data.arch (linux/audit.h, linux/elf-em.h).
const (
	auditAMD64 = 0xc000003e
	auditARM64 = 0xc00000b7
	auditI386  = 0x40000003
	auditARM   = 0x40000028
	auditRISCV = 0xc00000f3
)

var audits = map[string]uint32{"amd64": auditAMD64, "arm64": auditARM64}

// Actions of seccomp(2).
const (
	wantAllow  = 0x7fff0000
	wantKill   = 0x80000000
	wantEPERM  = 0x00050001
	wantENOSYS = 0x00050026

	wantENOMEM          = 0x0005000c
	wantEINVAL          = 0x00050016
	wantENOTTY          = 0x00050019
	wantENOPROTOOPT     = 0x0005005c
	wantEPROTONOSUPPORT = 0x0005005d
	wantESOCKTNOSUPPORT = 0x0005005e
	wantEAFNOSUPPORT    = 0x00050061
)

var actionNames = map[uint32]string{
	wantAllow: "allow", wantKill: "kill", wantEPERM: "EPERM", wantENOSYS: "ENOSYS", wantENOMEM: "ENOMEM", wantEINVAL: "EINVAL",
	wantENOTTY: "ENOTTY", wantENOPROTOOPT: "ENOPROTOOPT", wantEPROTONOSUPPORT: "EPROTONOSUPPORT", wantESOCKTNOSUPPORT: "ESOCKTNOSUPPORT",
	wantEAFNOSUPPORT: "EAFNOSUPPORT",
}

// kernelTable reads the kernel's names and numbers of an architecture.
func kernelTable(t testing.TB, arch string) map[uint32]string {
	t.Helper()
	f, err := os.Open("testdata/syscalls_" + arch + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names := map[uint32]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		nr, name, _ := strings.Cut(lines.Text(), " ")
		if nr == "#" || strings.HasPrefix(nr, "(") {
			continue
		}
		n, err := strconv.ParseUint(nr, 10, 32)
		if err != nil {
			t.Fatalf("testdata of %s: %v", arch, err)
		}
		names[uint32(n)] = name
	}
	if len(names) < 300 {
		t.Fatalf("testdata of %s has only %d calls", arch, len(names))
	}
	return names
}

// An oracle computes the actions of one profile and architecture.
type oracle struct {
	profile  string
	arch     string
	names    map[uint32]string
	verdicts map[string]Verdict
}

func newOracle(t testing.TB, profile, arch string) oracle {
	o := oracle{profile, arch, kernelTable(t, arch), map[string]Verdict{}}
	for _, r := range Table(profile) {
		o.verdicts[r.Name] = r.Verdict
	}
	return o
}

func (o oracle) action(d seccompData) uint32 {
	switch {
	case d.arch != audits[o.arch]:
		return wantKill
	case d.nr > 450:
		return wantENOSYS
	}
	name := o.names[d.nr]
	switch o.verdicts[name] {
	case Allow:
		return wantAllow
	case Absent:
		return wantENOSYS
	case ByArgument:
		return judge(o.profile, name, d.args)
	}
	return wantEPERM
}

// judge returns the action for a call. It reads arguments as the kernel does: they are C ints, so their upper halves do not count.
func judge(profile, name string, args [6]uint64) uint32 {
	refused := func(refused bool, action uint32) uint32 {
		if refused {
			return action
		}
		return wantAllow
	}
	var a [6]uint32
	for i := range args {
		a[i] = uint32(args[i])
	}
	if isEgress(profile) {
		return refused(refusedEgress(name, a), wantEPERM)
	}
	switch name {
	case "open":
		return refused(makes(a[1]) && a[2]&0o6000 != 0, wantEPERM)
	case "openat":
		return refused(makes(a[2]) && a[3]&0o6000 != 0, wantEPERM)
	case "creat", "chmod", "fchmod":
		return refused(a[1]&0o6000 != 0, wantEPERM)
	case "fchmodat":
		return refused(a[2]&0o6000 != 0, wantEPERM)
	case "mknod":
		return refused(!harmlessNode(a[1]), wantEPERM)
	case "mknodat":
		return refused(!harmlessNode(a[2]), wantEPERM)
	case "chown", "fchown", "lchown":
		return refused(!ofJob(a[1], a[2]), wantEPERM)
	case "fchownat":
		return refused(!ofJob(a[2], a[3]), wantEPERM)
	case "renameat2":
		return refused(a[4]&4 != 0, wantEINVAL)
	case "fcntl":
		return refused(36 <= a[1] && a[1] <= 38, wantEINVAL)
	case "ioctl":
		return judgeIoctl(a[1])
	case "prctl":
		return refused(a[0] == 62, wantEINVAL)
	case "setsockopt":
		if a[1] == 6 && a[2] == 31 {
			return wantEPERM
		}
		return refused(slices.Contains(refusedOptions[a[1]], a[2]), wantENOPROTOOPT)
	case "mmap":
		return refused(a[3]&0x40000 != 0, wantENOMEM)
	case "memfd_create":
		return refused(a[1]&4 != 0, wantEINVAL)
	case "seccomp":
		return refused(a[0] == 1 && a[1]&8 != 0, wantEINVAL)
	case "clone", "unshare":
		return refused(a[0]&0x7e020080 != 0, wantEPERM)
	case "socket", "socketpair":
		return judgeSocket(profile, a[0], a[1]&15, a[2])
	case "personality":
		if profile != "default" {
			return refused(a[0] != 0xffffffff, wantEPERM)
		}
		return refused(!slices.Contains([]uint32{0, 8, 0x20000, 0x20008, 0x40000, 0xffffffff}, a[0]), wantEPERM)
	}
	panic("no oracle for the arguments of " + name)
}

// refusedOptions are the options of sockets that are refused, by level.
var refusedOptions = map[uint32][]uint32{
	1:  {26, 37, 50, 51, 52, 65},
	6:  {14, 32, 38},
	17: {100},
	41: {6, 32, 57},
}

func judgeIoctl(request uint32) uint32 {
	switch {
	case slices.Contains([]uint32{0x5412, 0x541c, 0x541d, 0x5423}, request):
		return wantEPERM
	case request >= 0x5400 && request < 0x5500, request&0xc000ffff == 0xc000ff0b:
		return wantAllow
	}
	switch request {
	case 0x802c542a, 0x402c542b, 0x402c542c, 0x402c542d, // terminal attributes
		0x80045430, 0x40045431, 0x80045439, 0x80045438, 0x80045440, 0x80045432, 0x40045436, // pseudo-terminals
		0x8901, 0x8902, 0x8903, 0x8904, 0x8905, // recipients of a socket's signals
		0x8910, 0x8912, 0x8913, 0x8915, 0x8917, 0x8919, 0x891b, 0x891d, 0x8921, 0x8927, 0x8933, 0x8942, // interfaces
		2, 0x80086601, 0x40086602, 0x80087601, 0xc020660b, 0x801c581f, 0x401c5820, 0x40049409, 0x4020940d, // files
		0x80045200, 0xc0686611, 0xb701, 0xb702, 0xb703, 0xb704: // entropy, memory, namespaces
		return wantAllow
	}
	return wantENOTTY
}

// ofJob reports whether these are the ids of the job, before Own, or change nothing.
func ofJob(user, group uint32) bool {
	return (user == 0xffff0001 || user == 0xffffffff) && (group == 0xffff0002 || group == 0xffffffff)
}

func makes(flags uint32) bool { return flags&0x40 != 0 || flags&0x400000 != 0 }

func harmlessNode(mode uint32) bool {
	switch mode & 0xf000 {
	case 0, 0x8000, 0x1000, 0xc000:
		return mode&0o6000 == 0
	}
	return false
}

func judgeSocket(profile string, family, kind, protocol uint32) uint32 {
	switch {
	case family == 1:
		return wantAllow
	case family == 16 && profile == "default":
		if protocol != 0 {
			return wantEPROTONOSUPPORT
		}
		return wantAllow
	case family != 2 && family != 10:
		return wantEAFNOSUPPORT
	case kind == 3 || kind == 10:
		return wantEPERM
	case kind != 1 && kind != 2:
		return wantESOCKTNOSUPPORT
	case protocol != 0 && protocol != 6 && protocol != 17:
		return wantEPROTONOSUPPORT
	}
	return wantAllow
}
