package seccomp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// instructionSize is sizeof(struct sock_filter): code u16, jt u8, jf u8, k u32.
const instructionSize = 8

// Offsets in struct seccomp_data (linux/seccomp.h): int nr; u32 arch;
// u64 instruction_pointer; u64 args[6].
const (
	offsetNr   = 0
	offsetArch = 4
	offsetArgs = 16
)

// lowWord is the offset of the low 32 bits of an argument. Both architectures
// are little endian.
func lowWord(arg int) uint32 { return offsetArgs + 8*uint32(arg) }

// The actions the filter knows (seccomp(2)).
const (
	actionAllow  = unix.SECCOMP_RET_ALLOW
	actionKill   = unix.SECCOMP_RET_KILL_PROCESS
	actionEPERM  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	actionENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// A branch is a conditional jump of classic BPF: it compares the accumulator
// with a constant.
type branch uint16

const (
	equal          branch = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	greater        branch = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K // libseccomp's
	greaterOrEqual branch = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	anyBit         branch = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
)

// Codes of the instructions that are no branch.
const (
	codeLoad   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	codeAnd    = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	codeJump   = unix.BPF_JMP | unix.BPF_JA
	codeReturn = unix.BPF_RET | unix.BPF_K
)

// maxOffset is how far a branch reaches: it has 8 bits for each way.
const maxOffset = 255

// A place is an instruction's distance from the program's end: 1 is the last.
type place int

// An assembler writes a program from its end to its start. Jumps of classic BPF
// go forward only, so what they lead to is there already, and what is there
// already is shared. Its zero is ready.
type assembler struct {
	code    []unix.SockFilter // the last instruction first
	returns map[uint32]place  // by action; the latest
	tests   map[string]place  // by operand and both ways out
}

// put writes the instruction that runs before all that is there.
func (a *assembler) put(in unix.SockFilter) place {
	a.code = append(a.code, in)
	return place(len(a.code))
}

// load puts the 32-bit word of seccomp_data at offset into the accumulator and
// goes on at to.
func (a *assembler) load(offset uint32, to place) place {
	a.reach(to, 0)
	return a.put(unix.SockFilter{Code: codeLoad, K: offset})
}

// and masks the accumulator and goes on at to.
func (a *assembler) and(mask uint32, to place) place {
	a.reach(to, 0)
	return a.put(unix.SockFilter{Code: codeAnd, K: mask})
}

// ret ends the program with an action. There is one instruction for each, as
// long as it is in reach.
func (a *assembler) ret(action uint32) place {
	if p, ok := a.returns[action]; ok && a.distance(p) <= maxOffset {
		return p
	}
	if a.returns == nil {
		a.returns = map[uint32]place{}
	}
	a.returns[action] = a.put(unix.SockFilter{Code: codeReturn, K: action})
	return a.returns[action]
}

// jump goes to yes if the comparison of accumulator and k holds, else to no.
func (a *assembler) jump(b branch, k uint32, yes, no place) place {
	// An instruction that makes no reachable pushes yes away, by one.
	yes = a.reach(yes, maxOffset-1)
	no = a.reach(no, maxOffset)
	return a.put(unix.SockFilter{Code: uint16(b), Jt: byte(a.distance(yes)), Jf: byte(a.distance(no)), K: k})
}

// distance is the offset to a place from the instruction that is written next.
func (a *assembler) distance(to place) int { return len(a.code) - int(to) }

// reach returns to, or, if an offset of limit does not lead there, a new
// instruction that does the same.
func (a *assembler) reach(to place, limit int) place {
	if a.distance(to) <= limit {
		return to
	}
	if target := a.code[to-1]; target.Code == codeReturn {
		return a.put(target)
	}
	return a.put(unix.SockFilter{Code: codeJump, K: uint32(a.distance(to))})
}

// test loads what the operand is about, and goes to yes if it holds, else to no.
// A test that is there already is not written again.
func (a *assembler) test(o operand, yes, no place) place {
	key := fmt.Sprint(o, yes, no)
	if p, ok := a.tests[key]; ok {
		return p
	}
	var to place
	switch o.op {
	case bits:
		to = a.jump(anyBit, o.values[0], yes, no)
	case in:
		to = a.anyOf(o.values, yes, no)
	case notIn:
		to = a.anyOf(o.values, no, yes)
	}
	if o.mask != whole {
		to = a.and(o.mask, to)
	}
	if a.tests == nil {
		a.tests = map[string]place{}
	}
	a.tests[key] = a.load(lowWord(o.arg), to)
	return a.tests[key]
}

// anyOf goes to yes if the accumulator is one of the values, else to no.
func (a *assembler) anyOf(values []uint32, yes, no place) place {
	for _, v := range slices.Backward(values) {
		no = a.jump(equal, v, yes, no)
	}
	return no
}

// bytes returns the program, from its start.
func (a *assembler) bytes() []byte {
	out := make([]byte, 0, len(a.code)*instructionSize)
	for _, in := range slices.Backward(a.code) {
		out = binary.LittleEndian.AppendUint16(out, in.Code)
		out = append(out, in.Jt, in.Jf)
		out = binary.LittleEndian.AppendUint32(out, in.K)
	}
	return out
}
