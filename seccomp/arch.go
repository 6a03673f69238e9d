package seccomp

import (
	"errors"
	"fmt"

	scmp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// ErrArch means that the architecture is neither "amd64" nor "arm64". Errors of Compile wrap it.
var ErrArch = errors.New("no seccomp profile for this architecture")

// An arch is a supported architecture.
type arch struct {
	name    string // as GOARCH
	audit   uint32 // AUDIT_ARCH_*, as in struct seccomp_data
	library scmp.ScmpArch
}

var arches = []arch{
	{"amd64", unix.AUDIT_ARCH_X86_64, scmp.ArchAMD64},
	{"arm64", unix.AUDIT_ARCH_AARCH64, scmp.ArchARM64},
}

func findArch(name string) (arch, error) {
	for _, a := range arches {
		if a.name == name {
			return a, nil
		}
	}
	return arch{}, fmt.Errorf("%w: %q", ErrArch, name)
}
