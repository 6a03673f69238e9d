package seccomp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Split returns two programs that together act as Compile's for the same profile and architecture. ahead takes almost
// all of the loading time and also allows openat2(2): it can be loaded before the job is known. last refuses openat2
// in four instructions and is loaded directly before execve(2) or execveat(2). It is empty if the profile has that
// call.
//
// The kernel applies the stricter action of two programs (seccomp(2)). Format and errors are those of Compile.
func Split(profile, arch string) (ahead, last []byte, err error) {
	a, err := find(profile, arch)
	if err != nil {
		return nil, nil, err
	}
	if isEgress(profile) {
		return nil, nil, fmt.Errorf("%w: %q is loaded as a whole, by the program itself", ErrProfile, profile)
	}
	if ahead, err = checked(profile+starting, a); err != nil {
		return nil, nil, err
	}
	if profile != Scanner {
		last = refusal("openat2", a)
	}
	if err := verify(stack{load(last), load(ahead)}, profile, a); err != nil {
		return nil, nil, fmt.Errorf("verify the two filters of %s/%s: %w", profile, arch, err)
	}
	return ahead, last, nil
}

// Own returns a copy of a program that Compile or Split returned, for a job whose user and group have these numbers. The job may give its
// files no other owner. In the program itself they are numbers that nobody has.
func Own(program []byte, user, group uint32) []byte {
	const value = 4 // offset of k in struct sock_filter
	own := slices.Clone(program)
	for in := range slices.Chunk(own, instructionSize) {
		if binary.LittleEndian.Uint16(in) != unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K {
			continue
		}
		switch k := in[value:]; binary.LittleEndian.Uint32(k) {
		case ownUser:
			binary.LittleEndian.PutUint32(k, user)
		case ownGroup:
			binary.LittleEndian.PutUint32(k, group)
		}
	}
	return own
}

// refusal assembles a program that answers one call with ENOSYS and allows all others, of any architecture.
func refusal(call string, a arch) []byte {
	var p assembler
	nr, _ := number(call, a) // verify fails if the number is wrong
	p.load(offsetNr, p.jump(equal, uint32(nr), p.ret(actionENOSYS), p.ret(actionAllow)))
	return p.bytes()
}

// A stack is the programs that a process has loaded, the newest first. Empty programs count as not loaded.
type stack []*machine

// run returns the kernel's action for a call: the strictest action of all programs, and of equally strict ones the
// newest (seccomp_run_filters in kernel/seccomp.c).
func (s stack) run(d seccompData) (uint32, error) {
	strictest := uint32(actionAllow)
	for _, m := range s {
		if len(m.program) == 0 {
			continue
		}
		got, err := m.run(d)
		if err != nil {
			return 0, err
		}
		if severity(got) < severity(strictest) {
			strictest = got
		}
	}
	return strictest, nil
}

// severity orders actions: a lower value is stricter (SECCOMP_RET_* in linux/seccomp.h, as signed numbers).
func severity(action uint32) int32 { return int32(action & 0xffff0000) }
