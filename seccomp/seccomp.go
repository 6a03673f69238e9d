// Package seccomp holds the system call profiles of a job as tables and
// compiles them, on the host, into the bytes that the jail loads.
//
// A profile is "default" or "strict". Table lists, for each system call that
// the package knows, the family it belongs to, the profile's verdict and the
// reason of it; Compile turns that list into a classic BPF program for
// seccomp(2); Name gives the name of a refused call for a report.
//
// The list is derived from the default profile of moby (package
// github.com/moby/profiles/seccomp, as of 2025), less what a job, which never has
// a capability, never is another user and never makes a namespace, has no use
// for. refused.go has that difference, each family with its reason; allowed.go
// has what strict takes away besides.
//
// The program is one search for the call's number (program.go, tree.go). A
// foreign architecture or an x32 call kills the process; a number above the
// table is ENOSYS; a listed call is allowed, goes on to a check of its arguments
// or, so that a C library takes its older path, is ENOSYS; all else is EPERM.
//
// Every job loads it before it starts, so it is made to load fast: the kernel
// checks and translates each instruction, and tries each number it has on the
// program. The search is the cheapest one by the costs of both, and instructions
// that do the same are there once.
//
// libseccomp has the numbers of calls, and in the tests compiles the same rules
// as an oracle. The program is not its own, for three reasons. It compares calls
// one by one, not runs of them, which for the allow-list alone takes twice the
// instructions of this program. libseccomp 2.5 accepts a rule that refuses some
// arguments beside one that allows the call, returns success and compiles a plain
// allow. And its comparisons are 64 bits wide, while the kernel reads these
// arguments as 32-bit integers: socket(2) with 1<<32|40 passes a "not 40" and
// opens a vsock. Here the low 32 bits are compared, as the kernel does.
//
// Before Compile gives a program away, it runs it on every number, and on
// arguments on either side of each rule, and compares with the table (verify.go).
//
// What the package will never do: load a filter, decide which profile a job
// gets, or allow a second ABI (i386 in a 64-bit process has calls, such as
// socketcall(2), whose arguments a filter cannot see).
//
// A filter sees numbers, not memory. Calls that hide their arguments in a
// struct (clone3, openat2) are therefore ENOSYS as a whole. Paths, signals and
// what a descriptor stands for are the business of other layers.
//
// The program names no path and no descriptor, so one program serves every job
// of a profile. It expects no_new_privs and may be loaded as the last step
// before execve(2) or execveat(2), both of which it allows.
package seccomp

import (
	"errors"
	"fmt"
	"slices"
)

// Errors of Compile. Test for them with errors.Is.
var (
	// ErrProfile means that the profile is none of Profiles.
	ErrProfile = errors.New("unknown seccomp profile")
	// ErrArch means that the architecture is neither "amd64" nor "arm64".
	ErrArch = errors.New("no seccomp profile for this architecture")
)

// The names of the profiles.
const (
	defaultProfile = "default"
	strictProfile  = "strict"
)

// Scanner is the profile of the process of corral's own that looks through a
// repository, which no job can ask for: "strict", but with openat2(2), by which
// it stays beneath the repository. It has no place where a set-id bit, the
// reason why jobs lack that call, would outlive it.
const Scanner = "scanner"

// maxProgram is the kernel's limit on instructions of one filter (BPF_MAXINSNS
// in linux/bpf_common.h).
const maxProgram = 4096

// Profiles returns the names of the profiles a job may have, the default one
// first. The slice is the caller's.
func Profiles() []string {
	return []string{defaultProfile, strictProfile}
}

// Compile returns the filter program of a profile for an architecture ("amd64"
// or "arm64", which need not be the host's). The bytes are an array of struct
// sock_filter of linux/filter.h, 8 bytes each, little endian: what
// seccomp(SECCOMP_SET_MODE_FILTER) and prctl(PR_SET_SECCOMP) take, with
// len(result)/8 as the length. The same input gives the same bytes.
//
// It fails with ErrProfile or ErrArch for an unknown name, and when the program
// does not answer as the table says or is longer than the 4096 instructions a
// kernel takes. It is safe for concurrent use and takes milliseconds: compile
// once, load often.
func Compile(profile, arch string) ([]byte, error) {
	a, err := find(profile, arch)
	if err != nil {
		return nil, err
	}
	return checked(profile, a)
}

// find returns the architecture, if there is a profile of that name for it.
func find(profile, name string) (arch, error) {
	if profile != Scanner && !slices.Contains(Profiles(), profile) {
		return arch{}, fmt.Errorf("%w: %q", ErrProfile, profile)
	}
	return findArch(name)
}

// checked writes and checks the program of a profile that there is.
func checked(profile string, a arch) ([]byte, error) {
	code := program(profile, a)
	if n := len(code) / instructionSize; n > maxProgram {
		return nil, fmt.Errorf("filter of %s/%s has %d instructions, the kernel takes %d", profile, a.name, n, maxProgram)
	}
	if err := verify(load(code), profile, a); err != nil {
		return nil, fmt.Errorf("check the filter of %s/%s: %w", profile, a.name, err)
	}
	return code, nil
}
