package seccomp

import (
	"testing"

	scmp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// These tests demonstrate two of the reasons why libseccomp does not compile the program. They describe libseccomp,
// not this package: if a newer version behaves better, they log that and pass.

// libraryProgram compiles rules with libseccomp alone, for amd64.
func libraryProgram(t *testing.T, rules func(f *scmp.ScmpFilter)) *machine {
	t.Helper()
	eperm := scmp.ActErrno.SetReturnCode(int16(unix.EPERM))
	return compileByLibrary(t, mustArch(t, "amd64"), eperm, func(f *scmp.ScmpFilter) error {
		rules(f)
		return nil
	})
}

func amd64Call(t *testing.T, name string) scmp.ScmpSyscall {
	t.Helper()
	nr, err := scmp.GetSyscallFromName(name)
	if err != nil {
		t.Fatal(err)
	}
	return nr
}

func argumentIs(t testing.TB, arg uint, op scmp.ScmpCompareOp, values ...uint64) []scmp.ScmpCondition {
	t.Helper()
	c, err := scmp.MakeCondition(arg, op, values...)
	if err != nil {
		t.Fatal(err)
	}
	return []scmp.ScmpCondition{c}
}

// TestLibraryDropsDenials: libseccomp loses a rule that refuses an argument beside one that allows the call, in
// either order, though adding both succeeds.
func TestLibraryDropsDenials(t *testing.T) {
	const tiocsti = 0x5412
	deny := scmp.ActErrno.SetReturnCode(int16(unix.EIO))
	ioctl := amd64Call(t, "ioctl")
	for _, order := range []string{"deny first", "allow first"} {
		m := libraryProgram(t, func(f *scmp.ScmpFilter) {
			refuse := func() error {
				return f.AddRuleConditional(ioctl, deny, argumentIs(t, 1, scmp.CompareEqual, tiocsti))
			}
			allow := func() error { return f.AddRule(ioctl, scmp.ActAllow) }
			steps := []func() error{refuse, allow}
			if order == "allow first" {
				steps = []func() error{allow, refuse}
			}
			for _, step := range steps {
				if err := step(); err != nil {
					t.Logf("%s: this libseccomp rejects such rules: %v", order, err)
				}
			}
		})
		got, err := m.run(seccompData{nr: 16, arch: auditAMD64, args: [6]uint64{0, tiocsti}})
		if err != nil {
			t.Fatal(err)
		}
		if got != wantAllow {
			t.Logf("%s: this libseccomp keeps the denial (%#x)", order, got)
		}
		checkOwn(t, seccompData{nr: 16, arch: auditAMD64, args: [6]uint64{0, tiocsti}}, wantEPERM)
	}
}

// TestLibraryComparesUpperHalf: libseccomp compares 64 bits, so an address family with bit 32 set is "not AF_VSOCK"
// to it, and AF_VSOCK to the kernel.
func TestLibraryComparesUpperHalf(t *testing.T) {
	const vsock = 40
	m := libraryProgram(t, func(f *scmp.ScmpFilter) {
		rule := argumentIs(t, 0, scmp.CompareNotEqual, vsock)
		if err := f.AddRuleConditional(amd64Call(t, "socket"), scmp.ActAllow, rule); err != nil {
			t.Fatal(err)
		}
	})
	high := seccompData{nr: 41, arch: auditAMD64, args: [6]uint64{1<<32 | vsock, 1}}
	got, err := m.run(high)
	if err != nil {
		t.Fatal(err)
	}
	if got != wantAllow {
		t.Logf("this libseccomp does not allow the call (%#x)", got)
	}
	checkOwn(t, high, wantEAFNOSUPPORT)
}

// checkOwn checks that the program of this package refuses the call with this action in every profile.
func checkOwn(t *testing.T, d seccompData, want uint32) {
	t.Helper()
	for _, profile := range Profiles() {
		if got, err := load(compile(t, profile, "amd64")).run(d); err != nil || got != want {
			t.Errorf("%s: action %#x (%v), want %s", profile, got, err, actionNames[want])
		}
	}
}
