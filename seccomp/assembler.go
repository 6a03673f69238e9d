package seccomp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// instructionSize is sizeof(struct sock_filter): code u16, jt u8, jf u8, k u32.
const instructionSize = 8

// Offsets in struct seccomp_data (linux/seccomp.h): int nr; u32 arch; u64 instruction_pointer; u64 args[6].
const (
	offsetNr   = 0
	offsetArch = 4
	offsetArgs = 16
)

// lowWord returns the offset of the low 32 bits of an argument. Both architectures are little-endian.
func lowWord(arg int) uint32 { return offsetArgs + 8*uint32(arg) }

// The actions that the filters use (seccomp(2)).
const (
	actionAllow  = unix.SECCOMP_RET_ALLOW
	actionKill   = unix.SECCOMP_RET_KILL_PROCESS
	actionEPERM  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	actionENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// A branch is the code of a conditional jump of classic BPF, which compares the accumulator with a constant.
type branch uint16

const (
	equal          branch = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	greater        branch = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K // used by libseccomp only
	greaterOrEqual branch = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	anyBit         branch = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
)

// Codes of the other instructions.
const (
	codeLoad   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	codeAnd    = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	codeJump   = unix.BPF_JMP | unix.BPF_JA
	codeReturn = unix.BPF_RET | unix.BPF_K
)

// maxOffset is the maximum offset of a branch, which has 8 bits for each target.
const maxOffset = 255

// A label identifies an instruction by its distance from the end of the program: 1 is the last.
type label int

// An assembler writes a program from its end to its start. Jumps of classic BPF only go forward, so their targets are
// already written, and equal code is reused. The zero value is ready for use.
type assembler struct {
	code    []unix.SockFilter // the last instruction first
	returns map[uint32]label  // the latest return instruction by action
	tests   map[string]label  // by operand and both targets
}

// put prepends an instruction to the program.
func (a *assembler) put(in unix.SockFilter) label {
	a.code = append(a.code, in)
	return label(len(a.code))
}

// load loads the 32-bit word of seccomp_data at offset into the accumulator and continues at to.
func (a *assembler) load(offset uint32, to label) label {
	a.reach(to, 0)
	return a.put(unix.SockFilter{Code: codeLoad, K: offset})
}

// and masks the accumulator and continues at to.
func (a *assembler) and(mask uint32, to label) label {
	a.reach(to, 0)
	return a.put(unix.SockFilter{Code: codeAnd, K: mask})
}

// ret ends the program with an action. It reuses an earlier instruction while that is within reach.
func (a *assembler) ret(action uint32) label {
	if p, ok := a.returns[action]; ok && a.distance(p) <= maxOffset {
		return p
	}
	if a.returns == nil {
		a.returns = map[uint32]label{}
	}
	a.returns[action] = a.put(unix.SockFilter{Code: codeReturn, K: action})
	return a.returns[action]
}

// jump continues at yes if the comparison of the accumulator with k holds, else at no.
func (a *assembler) jump(b branch, k uint32, yes, no label) label {
	// Bringing no within reach may add an instruction, which moves yes away by one.
	yes = a.reach(yes, maxOffset-1)
	no = a.reach(no, maxOffset)
	return a.put(unix.SockFilter{Code: uint16(b), Jt: byte(a.distance(yes)), Jf: byte(a.distance(no)), K: k})
}

// distance returns the jump offset from the next instruction to be written.
func (a *assembler) distance(to label) int { return len(a.code) - int(to) }

// reach returns to if an offset of at most limit leads there, else a new instruction that does the same as the one at
// to.
func (a *assembler) reach(to label, limit int) label {
	if a.distance(to) <= limit {
		return to
	}
	if target := a.code[to-1]; target.Code == codeReturn {
		return a.put(target)
	}
	return a.put(unix.SockFilter{Code: codeJump, K: uint32(a.distance(to))})
}

// test loads the argument of an operand and continues at yes if the operand holds, else at no. Equal tests are
// written once.
func (a *assembler) test(o operand, yes, no label) label {
	key := fmt.Sprint(o, yes, no)
	if p, ok := a.tests[key]; ok {
		return p
	}
	var to label
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
		a.tests = map[string]label{}
	}
	a.tests[key] = a.load(lowWord(o.arg), to)
	return a.tests[key]
}

// anyOf continues at yes if the accumulator is one of the values, else at no.
func (a *assembler) anyOf(values []uint32, yes, no label) label {
	for _, v := range slices.Backward(values) {
		no = a.jump(equal, v, yes, no)
	}
	return no
}

// bytes returns the program in execution order.
func (a *assembler) bytes() []byte {
	out := make([]byte, 0, len(a.code)*instructionSize)
	for _, in := range slices.Backward(a.code) {
		out = binary.LittleEndian.AppendUint16(out, in.Code)
		out = append(out, in.Jt, in.Jf)
		out = binary.LittleEndian.AppendUint32(out, in.K)
	}
	return out
}
