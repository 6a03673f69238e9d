package seccomp

import (
	"fmt"
)

// starting, after the name of a profile, is that profile until the job's
// program is executed: with the one call that its start needs and it may not
// have. By openat2(2) the working directory is found beneath the repository.
const starting = ", starting"

// Split returns two programs that together answer as Compile's for the same
// profile and architecture. The first takes nearly all of the time to load, and
// allows openat2(2) besides: it can be loaded before the job is known. The last
// refuses that, in four instructions, and is loaded right before execve(2) or
// execveat(2). It is empty where the profile has the call.
//
// Of two programs the kernel takes the stricter answer (seccomp(2)). Both are
// as Compile's, and so are the errors.
func Split(profile, arch string) (ahead, last []byte, err error) {
	a, err := find(profile, arch)
	if err != nil {
		return nil, nil, err
	}
	if ahead, err = checked(profile+starting, a); err != nil {
		return nil, nil, err
	}
	if profile != Scanner {
		last = refusal("openat2", a)
	}
	if err := verify(stack{load(last), load(ahead)}, profile, a); err != nil {
		return nil, nil, fmt.Errorf("check the two filters of %s/%s: %w", profile, arch, err)
	}
	return ahead, last, nil
}

// refusal writes a program that has a call be ENOSYS, and allows all others, of
// any architecture.
func refusal(call string, a arch) []byte {
	var p assembler
	nr, _ := number(call, a) // a wrong one does not pass verify
	p.load(offsetNr, p.jump(equal, uint32(nr), p.ret(actionENOSYS), p.ret(actionAllow)))
	return p.bytes()
}

// A stack is the programs that a process has loaded, the newest first. One
// without instructions is none.
type stack []*machine

// run returns the kernel's action for a call: of all answers the strictest, and
// of those equally strict the newest (seccomp_run_filters in kernel/seccomp.c).
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

// severity orders actions: the lower, the stricter (SECCOMP_RET_* in
// linux/seccomp.h, as signed numbers).
func severity(action uint32) int32 { return int32(action & 0xffff0000) }
