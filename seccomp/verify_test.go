package seccomp

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestVerifyFindsFaults checks that verify detects a change of any instruction: a branch with swapped targets,
// another action, another word loaded.
func TestVerifyFindsFaults(t *testing.T) {
	for _, profile := range append(Profiles(), Scanner) {
		for _, a := range arches {
			program := compile(t, profile, a.name)
			for i := 0; i < len(program); i += instructionSize {
				faulty := append([]byte(nil), program...)
				fault(faulty[i : i+instructionSize])
				if err := verify(load(faulty), profile, a); err == nil {
					t.Errorf("%s/%s: verify accepts a fault in instruction %d (%x)",
						profile, a.name, i/instructionSize, program[i:i+instructionSize])
				}
			}
		}
	}
}

// fault changes an instruction.
func fault(in []byte) {
	switch uint16(in[0]) {
	case codeLoad:
		in[4] ^= 4
	case codeJump: // one that is too far for a branch
		in[4] ^= 1
	case codeReturn:
		in[6] ^= 0x40
	case codeAnd:
		in[0], in[1] = byte(codeReturn&0xff), 0
	default:
		in[2], in[3] = in[3], in[2]
	}
}

// TestVerifyRefusesOtherPrograms checks that verify rejects programs of another profile or architecture, a truncated
// one, and one that allows everything.
func TestVerifyRefusesOtherPrograms(t *testing.T) {
	amd64 := mustArch(t, "amd64")
	good := compile(t, defaultProfile, "amd64")
	var everything assembler
	everything.ret(unix.SECCOMP_RET_ALLOW)
	for name, program := range map[string][]byte{
		"strict":       compile(t, strictProfile, "amd64"),
		"scanner":      compile(t, Scanner, "amd64"),
		"arm64":        compile(t, defaultProfile, "arm64"),
		"cut short":    good[:len(good)-instructionSize],
		"empty":        nil,
		"allowing all": everything.bytes(),
	} {
		if err := verify(load(program), defaultProfile, amd64); err == nil {
			t.Errorf("verify accepts %s for default/amd64", name)
		}
	}
	if err := verify(load(good), defaultProfile, amd64); err != nil {
		t.Error(err)
	}
}
