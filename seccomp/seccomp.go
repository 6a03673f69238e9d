// Package seccomp defines the system call profiles of jobs as tables, and compiles them on the host into the programs
// that the jail loads.
//
// A profile is "default" or "strict". Table returns, for each system call known to the package, its family, the
// profile's verdict and the reason; Compile turns that list into a classic BPF program for seccomp(2); Name returns
// the name of a refused call for a report.
//
// The list is derived from the default profile of moby (package github.com/moby/profiles/seccomp, as of 2025),
// without the calls that a job does not need, since it never has a capability, never changes its user and never
// creates a namespace. refused.go contains that difference, with a reason for each family; allowed.go marks what
// strict takes away in addition.
//
// The program is a search for the call's number (program.go, tree.go). A call of a foreign architecture kills the
// process; a number above the table, such as those of x32, is ENOSYS; a listed call is allowed, continues with a check of
// its arguments or is ENOSYS, so that a C library falls back; everything else is EPERM.
//
// Every job loads the program before it starts, so it is optimized for loading: the kernel checks and translates each
// instruction, and tries every call number on the program. The search minimizes the sum of both costs, and equal
// instructions are written once.
//
// libseccomp provides the numbers of calls, and in the tests it compiles the same rules as an oracle. It does not
// compile the program itself, for three reasons. It compares calls one by one, not in ranges, and needs twice the
// instructions of this program for the list of allowed calls alone. libseccomp 2.5 accepts a rule that refuses some
// arguments together with one that allows the call, returns success and compiles a plain allow. And it compares 64
// bits, while the kernel reads these arguments as 32-bit integers: socket(2) with 1<<32|40 passes a "not 40" and
// opens a vsock. Here the low 32 bits are compared, as in the kernel.
//
// Before Compile returns a program, it runs it on every number, and on arguments on either side of each rule, and
// compares the actions with the table (verify.go).
//
// The package never loads a filter, never decides which profile a job gets, and never allows a second ABI (i386 in a
// 64-bit process has calls, such as socketcall(2), whose arguments a filter cannot read).
//
// A filter sees numbers, not memory. Calls that pass their arguments in a struct (clone3, openat2) are therefore
// always ENOSYS. Other layers handle paths, signals and the objects behind descriptors.
//
// The program contains no path and no descriptor, so one program serves every job of a profile. It requires
// no_new_privs and may be loaded as the last step before execve(2) or execveat(2), both of which it allows.
package seccomp

import (
	"fmt"
	"slices"
)

// maxProgram is the kernel's maximum number of instructions of a filter (BPF_MAXINSNS in linux/bpf_common.h).
const maxProgram = 4096

// Compile returns the filter program of a profile for an architecture ("amd64" or "arm64", which need not be the
// host's). The bytes are an array of struct sock_filter of linux/filter.h, 8 bytes each, little-endian, as accepted
// by seccomp(SECCOMP_SET_MODE_FILTER) and prctl(PR_SET_SECCOMP), with the length len(result)/8. The same input gives
// the same bytes.
//
// It fails with ErrProfile or ErrArch for an unknown name, and if the program differs from the table or is longer
// than the kernel's maximum of 4096 instructions. It is safe for concurrent use and takes milliseconds: compile once,
// load often.
func Compile(profile, arch string) ([]byte, error) {
	a, err := find(profile, arch)
	if err != nil {
		return nil, err
	}
	return checked(profile, a)
}

// find returns the architecture called name, or an error if it or the profile is unknown.
func find(profile, name string) (arch, error) {
	if profile != Scanner && !isEgress(profile) && !slices.Contains(Profiles(), profile) {
		return arch{}, fmt.Errorf("%w: %q", ErrProfile, profile)
	}
	return findArch(name)
}

// checked compiles and verifies the program of an existing profile.
func checked(profile string, a arch) ([]byte, error) {
	code := program(profile, a)
	if n := len(code) / instructionSize; n > maxProgram {
		return nil, fmt.Errorf("filter of %s/%s has %d instructions, above the kernel's maximum of %d", profile, a.name, n, maxProgram)
	}
	if err := verify(load(code), profile, a); err != nil {
		return nil, fmt.Errorf("verify the filter of %s/%s: %w", profile, a.name, err)
	}
	return code, nil
}
