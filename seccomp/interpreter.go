package seccomp

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// seccompData is struct seccomp_data, the input of a filter.
type seccompData struct {
	nr      uint32
	arch    uint32
	pointer uint64
	args    [6]uint64
}

func (d seccompData) bytes() []byte {
	out := make([]byte, 0, 64)
	out = binary.LittleEndian.AppendUint32(out, d.nr)
	out = binary.LittleEndian.AppendUint32(out, d.arch)
	out = binary.LittleEndian.AppendUint64(out, d.pointer)
	for _, a := range d.args {
		out = binary.LittleEndian.AppendUint64(out, a)
	}
	return out
}

// A machine interprets classic BPF as seccomp does, limited to the instructions of the filters here: loads are 32-bit
// words of seccompData in native (here little-endian) order.
type machine struct {
	program       []unix.SockFilter
	steps         int // instructions executed by all calls of run
	argumentLoads int // loads of other words than call number and architecture
}

func load(program []byte) *machine {
	m := &machine{}
	for ; len(program) >= instructionSize; program = program[instructionSize:] {
		m.program = append(m.program, unix.SockFilter{
			Code: binary.LittleEndian.Uint16(program),
			Jt:   program[2],
			Jf:   program[3],
			K:    binary.LittleEndian.Uint32(program[4:]),
		})
	}
	return m
}

// run returns the action for a call. It returns an error for a program that the kernel would reject: one that ends
// without a return, or has an instruction or offset that seccomp does not allow. It cannot loop, since offsets are
// not negative.
func (m *machine) run(d seccompData) (uint32, error) {
	data := d.bytes()
	var acc uint32
	for pc := 0; pc < len(m.program); pc++ {
		m.steps++
		in := m.program[pc]
		switch in.Code {
		case codeLoad:
			if in.K%4 != 0 || int(in.K)+4 > len(data) {
				return 0, fmt.Errorf("instruction %d loads the invalid offset %d", pc, in.K)
			}
			acc = binary.LittleEndian.Uint32(data[in.K:])
			if in.K > offsetArch {
				m.argumentLoads++
			}
		case codeAnd:
			acc &= in.K
		case codeJump:
			pc += int(in.K)
		case uint16(equal):
			pc += choose(acc == in.K, in)
		case uint16(greaterOrEqual):
			pc += choose(acc >= in.K, in)
		case uint16(greater):
			pc += choose(acc > in.K, in)
		case uint16(anyBit):
			pc += choose(acc&in.K != 0, in)
		case codeReturn:
			return in.K, nil
		default:
			return 0, fmt.Errorf("instruction %d has the unsupported code %#x", pc, in.Code)
		}
	}
	return 0, fmt.Errorf("the program ends without a return instruction")
}

func choose(holds bool, in unix.SockFilter) int {
	if holds {
		return int(in.Jt)
	}
	return int(in.Jf)
}
