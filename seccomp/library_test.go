package seccomp

import (
	"fmt"
	"io"
	"maps"
	mathbits "math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	scmp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// The second oracle: the same rules, compiled by libseccomp.

// compileByLibrary compiles rules with libseccomp alone; otherwise is the default action.
func compileByLibrary(t testing.TB, a arch, otherwise scmp.ScmpAction, rules func(f *scmp.ScmpFilter) error) *machine {
	t.Helper()
	filter, err := scmp.NewFilter(otherwise)
	if err != nil {
		t.Fatal(err)
	}
	defer filter.Release()
	if err := setUp(filter, a); err != nil {
		t.Fatal(err)
	}
	if err := rules(filter); err != nil {
		t.Fatal(err)
	}
	program, err := export(filter)
	if err != nil {
		t.Fatal(err)
	}
	return load(program)
}

// setUp configures an empty filter for a single architecture. libseccomp starts with that of the host, which is
// removed if it is another.
func setUp(filter *scmp.ScmpFilter, a arch) error {
	native, err := scmp.GetNativeArch()
	if err != nil {
		return fmt.Errorf("host architecture: %w", err)
	}
	if a.library != native {
		if err := filter.AddArch(a.library); err != nil {
			return fmt.Errorf("add architecture %v: %w", a.library, err)
		}
		if err := filter.RemoveArch(native); err != nil {
			return fmt.Errorf("remove architecture %v: %w", native, err)
		}
	}
	if err := filter.SetBadArchAction(scmp.ActKillProcess); err != nil {
		return fmt.Errorf("set action for other architectures: %w", err)
	}
	const binaryTree = 2 // of SCMP_FLTATR_CTL_OPTIMIZE
	return filter.SetOptimize(binaryTree)
}

// export returns the compiled program. It uses a memory file, since a pipe could fill up and ExportBPFMem needs
// libseccomp 2.6.
func export(filter *scmp.ScmpFilter) ([]byte, error) {
	fd, err := unix.MemfdCreate("seccomp", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), "seccomp")
	defer file.Close()
	if err := filter.ExportBPF(file); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("rewind the program: %w", err)
	}
	return io.ReadAll(file)
}

// A library computes actions from filters of libseccomp: one for the verdicts, and one for each condition, since libseccomp loses a rule
// that refuses arguments beside one that allows the call.
type library struct {
	verdicts   *machine
	conditions map[uint32][]*machine // by call number, in order
}

func newLibrary(t testing.TB, profile string, a arch) library {
	t.Helper()
	eperm := scmp.ActErrno.SetReturnCode(int16(unix.EPERM))
	l := library{conditions: map[uint32][]*machine{}}
	l.verdicts = compileByLibrary(t, a, eperm, func(f *scmp.ScmpFilter) error {
		for _, r := range Table(profile) {
			number, ok := number(r.Name, a)
			if !ok {
				continue
			}
			nr, err := scmp.GetSyscallFromName(r.Name)
			if err != nil {
				return err
			}
			switch r.Verdict {
			case Absent:
				err = f.AddRuleExact(nr, scmp.ActErrno.SetReturnCode(int16(unix.ENOSYS)))
			case Refuse: // libseccomp rejects a rule equal to the default
			case ByArgument:
				for _, c := range conditionsOf(profile, r.Name) {
					l.conditions[uint32(number)] = append(l.conditions[uint32(number)], conditionByLibrary(t, a, nr, c))
				}
				err = f.AddRuleExact(nr, scmp.ActAllow)
			default:
				err = f.AddRuleExact(nr, scmp.ActAllow)
			}
			if err != nil {
				return fmt.Errorf("rule for %s: %w", r.Name, err)
			}
		}
		return nil
	})
	return l
}

// conditionByLibrary compiles a condition alone, for the host's number of a call, or libseccomp's placeholder for one that the host lacks.
func conditionByLibrary(t testing.TB, a arch, nr scmp.ScmpSyscall, c condition) *machine {
	t.Helper()
	hit, miss := scmp.ActErrno.SetReturnCode(int16(c.action()&unix.SECCOMP_RET_DATA)), scmp.ActAllow
	if c.only {
		hit, miss = miss, hit
	}
	return compileByLibrary(t, a, miss, func(f *scmp.ScmpFilter) error { return addClauses(t, f, nr, hit, c) })
}

// addClauses adds a rule for each way in which one of the clauses can hold. libseccomp accepts only one comparison
// per argument, so operands on different bits of the same argument are merged into one.
func addClauses(t testing.TB, f *scmp.ScmpFilter, nr scmp.ScmpSyscall, action scmp.ScmpAction, c condition) error {
	t.Helper()
	for _, clause := range c.clauses {
		ways := []map[int]equality{{}}
		for _, o := range clause {
			var longer []map[int]equality
			for _, way := range ways {
				for _, e := range equalities(o) {
					had := way[o.arg]
					if had.mask&e.mask != 0 {
						t.Fatalf("%s: two operands compare bits %#x of argument %d", c.call, had.mask&e.mask, o.arg)
					}
					next := maps.Clone(way)
					next[o.arg] = equality{had.mask | e.mask, had.value | e.value}
					longer = append(longer, next)
				}
			}
			ways = longer
		}
		for _, way := range ways {
			var all []scmp.ScmpCondition
			for arg, e := range way {
				all = append(all, argumentIs(t, uint(arg), scmp.CompareMaskedEqual, uint64(e.mask), uint64(e.value))...)
			}
			if err := f.AddRuleConditionalExact(nr, action, all); err != nil {
				return err
			}
		}
	}
	return nil
}

type equality struct{ mask, value uint32 }

// equalities converts an operand to alternatives of the only comparison of libseccomp that ignores the upper half: a
// masked argument equals a value.
func equalities(o operand) []equality {
	var list []equality
	switch o.op {
	case in:
		for _, v := range o.values {
			list = append(list, equality{o.mask, v})
		}
	case bits:
		for rest := o.values[0]; rest != 0; rest &= rest - 1 {
			bit := rest & -rest
			list = append(list, equality{bit, bit})
		}
	case notIn:
		low := uint32(1) << mathbits.TrailingZeros32(o.mask)
		for v := uint32(0); v <= o.mask; v += low {
			if !slices.Contains(o.values, v) {
				list = append(list, equality{o.mask, v})
			}
		}
	}
	return list
}

func (l library) action(t testing.TB, d seccompData) uint32 {
	t.Helper()
	for _, m := range append([]*machine{l.verdicts}, l.conditions[d.nr]...) {
		if action, err := m.run(d); err != nil {
			t.Fatal(err)
		} else if action != wantAllow {
			return action
		}
	}
	return wantAllow
}

// TestLibraryAgrees checks that the program and libseccomp agree for every call, and for arguments close to those in
// rules. There are two intended differences: numbers above the table, which libseccomp treats like any number without
// a rule, and those of x32 among them, for which libseccomp kills.
func TestLibraryAgrees(t *testing.T) {
	everyProgram(t, func(t *testing.T, o oracle, m *machine) {
		l := newLibrary(t, o.profile, mustArch(t, o.arch))
		random := rand.New(rand.NewPCG(3, 4))
		try := func(d seccompData) {
			want := l.action(t, d)
			if d.nr > lastCall && d.arch == audits[o.arch] {
				want = wantENOSYS
			}
			if got, err := m.run(d); err != nil || got != want {
				t.Errorf("arch %#x, call %d (%s), arguments %#x: action %s (%v), libseccomp's is %s",
					d.arch, d.nr, o.names[d.nr], d.args, actionNames[got], err, actionNames[want])
			}
		}
		for _, audit := range []uint32{auditAMD64, auditARM64, auditI386, auditARM, auditRISCV, 0, 0xffffffff} {
			for _, nr := range callNumbers() {
				try(seccompData{nr: nr, arch: audit})
				try(seccompData{nr: nr, arch: audit, args: randomArguments(random)})
			}
		}
		for _, row := range argumentCases {
			if nr, ok := numberOf(o, row.call); ok {
				for _, d := range highBits(seccompData{nr: nr, arch: audits[o.arch], args: row.args}) {
					try(d)
				}
			}
		}
		for _, c := range conditions {
			nr, ok := numberOf(o, c.call)
			for i := 0; ok && i < 3000; i++ {
				try(seccompData{nr: nr, arch: audits[o.arch], args: randomArguments(random)})
			}
		}
	})
}
