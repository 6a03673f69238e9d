package seccomp

import (
	"bytes"
	"errors"
	"math"
	"sync"
	"testing"
)

// everyProgram runs a test on each compiled profile of each architecture.
func everyProgram(t *testing.T, test func(t *testing.T, o oracle, m *machine)) {
	for _, profile := range append(Profiles(), Scanner) {
		for _, arch := range []string{"amd64", "arm64"} {
			t.Run(profile+"/"+arch, func(t *testing.T) {
				test(t, newOracle(t, profile, arch), load(compile(t, profile, arch)))
			})
		}
	}
}

func compile(t testing.TB, profile, arch string) []byte {
	t.Helper()
	program, err := Compile(profile, arch)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// expect checks that the program and the oracle agree on a call.
func expect(t testing.TB, o oracle, m *machine, d seccompData) {
	t.Helper()
	got, err := m.run(d)
	if err != nil {
		t.Fatalf("%+v: %v", d, err)
	}
	if want := o.action(d); got != want {
		t.Errorf("arch %#x, call %d (%s), arguments %#x: action %s (%#x), want %s by the table",
			d.arch, d.nr, o.names[d.nr], d.args, actionNames[got], got, actionNames[want])
	}
}

// callNumbers returns the call numbers for tests of the whole program.
func callNumbers() []uint32 {
	var out []uint32
	for nr := range uint32(lastCall + 64) {
		out = append(out, nr)
		out = append(out, x32Bit+nr) // the x32 ABI
		out = append(out, 0x80000000+nr)
	}
	return append(out, 1000, 0xffff, 0x10000, 0x3fffffff, 0x7fffffff, 0xfffffffe, 0xffffffff)
}

// TestEveryCall compares the compiled programs with the oracle for every call number, on every ABI that a process may
// use.
func TestEveryCall(t *testing.T) {
	everyProgram(t, func(t *testing.T, o oracle, m *machine) {
		for _, audit := range []uint32{auditAMD64, auditARM64, auditI386, auditARM, auditRISCV, 0, 0xffffffff} {
			for _, nr := range callNumbers() {
				expect(t, o, m, seccompData{nr: nr, arch: audit})
				expect(t, o, m, seccompData{nr: nr, arch: audit, pointer: math.MaxUint64, args: [6]uint64{
					math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64,
				}})
			}
		}
	})
}

// TestPlainCallsReadNoArguments checks that calls without an argument rule load no argument: only then can the kernel
// determine beforehand that they are always allowed.
func TestPlainCallsReadNoArguments(t *testing.T) {
	everyProgram(t, func(t *testing.T, o oracle, m *machine) {
		for nr, name := range o.names {
			m.argumentLoads = 0
			expect(t, o, m, seccompData{nr: nr, arch: audits[o.arch]})
			if ruled := o.verdicts[name] == ByArgument; ruled != (m.argumentLoads > 0) {
				t.Errorf("%s: %d loads of arguments, argument rule: %v", name, m.argumentLoads, ruled)
			}
		}
	})
}

// TestSize limits the size of programs and profiles, and logs them.
func TestSize(t *testing.T) {
	everyProgram(t, func(t *testing.T, o oracle, m *machine) {
		reachable, known := 0, 0
		for nr, name := range o.names {
			if nr > lastCall {
				continue
			}
			known++
			if v := o.verdicts[name]; v == Allow || v == ByArgument {
				reachable++
			}
		}
		m.steps = 0
		nr, _ := numberOf(o, "read")
		expect(t, o, m, seccompData{nr: nr, arch: audits[o.arch]})
		t.Logf("%d instructions, %d of %d calls reachable, read takes %d instructions",
			len(m.program), reachable, known, m.steps)
		if len(m.program) >= 320 || reachable > 280 || reachable < 150 {
			t.Errorf("%d instructions, %d calls reachable: want < 320 and 150 to 280", len(m.program), reachable)
		}
	})
}

func mustArch(t testing.TB, name string) arch {
	t.Helper()
	a, err := findArch(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestCompileIsDeterministic(t *testing.T) {
	for _, profile := range Profiles() {
		for _, a := range arches {
			want := compile(t, profile, a.name)
			var group sync.WaitGroup
			for range 4 {
				group.Go(func() {
					if got, err := Compile(profile, a.name); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%s/%s: a second run compiles a different program (%v)", profile, a.name, err)
					}
				})
			}
			group.Wait()
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for _, c := range []struct {
		profile, arch string
		want          error
	}{
		{"", "amd64", ErrProfile},
		{"Default", "amd64", ErrProfile},
		{"default", "", ErrArch},
		{"default", "386", ErrArch},
		{"strict", "riscv64", ErrArch},
	} {
		if program, err := Compile(c.profile, c.arch); program != nil || !errors.Is(err, c.want) {
			t.Errorf("Compile(%q, %q) = %d bytes, %v; want %v", c.profile, c.arch, len(program), err, c.want)
		}
	}
	if got := Table("none"); got != nil {
		t.Errorf("Table of an unknown profile has %d rules, want none", len(got))
	}
}

// FuzzProgram checks that the program's action for any call is the oracle's.
func FuzzProgram(f *testing.F) {
	type pair struct {
		oracle
		*machine
	}
	var programs []pair
	for _, profile := range Profiles() {
		for _, a := range arches {
			programs = append(programs, pair{newOracle(f, profile, a.name), load(compile(f, profile, a.name))})
		}
	}
	f.Add(uint32(41), uint32(auditAMD64), uint64(40|1<<32), uint64(1), uint64(0), uint64(0))
	f.Add(uint32(198), uint32(auditARM64), uint64(16), uint64(3), uint64(1<<32), uint64(0))
	f.Add(uint32(257), uint32(auditAMD64), uint64(0), uint64(0), uint64(0x241), uint64(0o4755))
	f.Add(uint32(0x40000000), uint32(auditAMD64), uint64(0), uint64(0), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, nr, audit uint32, a0, a1, a2, a3 uint64) {
		for _, p := range programs {
			d := seccompData{nr: nr, arch: audit, args: [6]uint64{a0, a1, a2, a3}}
			expect(t, p.oracle, p.machine, d)
			// Also with a number that the search dispatches.
			d.nr, d.arch = nr%512, audits[p.arch]
			expect(t, p.oracle, p.machine, d)
		}
	})
}
