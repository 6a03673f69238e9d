package seccomp

import (
	"errors"
	"slices"
	"testing"
)

// split returns both programs of a profile as a stack, and the first one alone.
func split(t *testing.T, profile, arch string) (both stack, ahead *machine) {
	t.Helper()
	first, last, err := Split(profile, arch)
	if err != nil {
		t.Fatal(err)
	}
	ahead = load(first)
	return stack{load(last), ahead}, ahead
}

// TestSplit checks that both programs together act as Compile's, and that the first one alone only adds openat2.
func TestSplit(t *testing.T) {
	for _, profile := range append(Profiles(), Scanner) {
		for _, a := range arches {
			both, ahead := split(t, profile, a.name)
			whole, rules := load(compile(t, profile, a.name)), rulesByNumber(profile, a)
			for nr := range uint32(lastCall + 2) {
				for _, args := range probes(profile, rules[nr]) {
					d := seccompData{nr: nr, arch: a.audit, args: args}
					want, err := whole.run(d)
					if err != nil {
						t.Fatal(err)
					}
					if got, err := both.run(d); err != nil || got != want {
						t.Errorf("%s/%s: call %d, %#x: %#x, %v, want %#x", profile, a.name, nr, args, got, err, want)
					}
					if rules[nr].Name == "openat2" {
						want = actionAllow
					}
					if got, err := ahead.run(d); err != nil || got != want {
						t.Errorf("%s/%s, ahead: call %d, %#x: %#x, %v, want %#x", profile, a.name, nr, args, got, err, want)
					}
				}
			}
		}
	}
}

// TestSplitLastLength limits the length of the last program, whose loading delays each job.
func TestSplitLastLength(t *testing.T) {
	for profile, want := range map[string]int{defaultProfile: 4, strictProfile: 4, Scanner: 0} {
		_, last, err := Split(profile, "amd64")
		if n := len(last) / instructionSize; err != nil || n != want {
			t.Errorf("%s: %d instructions, %v, want %d", profile, n, err, want)
		}
	}
}

// TestVerifyFindsFaultsOfLast checks that verify detects a change of any instruction of the last program.
func TestVerifyFindsFaultsOfLast(t *testing.T) {
	for _, a := range arches {
		ahead, last, err := Split(defaultProfile, a.name)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(last); i += instructionSize {
			faulty := slices.Clone(last)
			fault(faulty[i : i+instructionSize])
			if verify(stack{load(faulty), load(ahead)}, defaultProfile, a) == nil {
				t.Errorf("%s: verify accepts a fault in instruction %d (%x)", a.name, i/instructionSize, last[i:i+instructionSize])
			}
		}
		if verify(stack{load(ahead)}, defaultProfile, a) == nil || verify(stack{load(last)}, defaultProfile, a) == nil {
			t.Errorf("%s: verify accepts one of the two programs alone", a.name)
		}
	}
}

// TestStackStrictest checks that the stricter action of two programs applies.
func TestStackStrictest(t *testing.T) {
	always := func(action uint32) *machine {
		var p assembler
		p.ret(action)
		return load(p.bytes())
	}
	for _, tt := range []struct{ newer, older, want uint32 }{
		{actionAllow, actionAllow, actionAllow},
		{actionAllow, actionEPERM, actionEPERM},
		{actionENOSYS, actionAllow, actionENOSYS},
		{actionENOSYS, actionEPERM, actionENOSYS},
		{actionEPERM, actionENOSYS, actionEPERM},
		{actionENOSYS, actionKill, actionKill},
		{actionKill, actionAllow, actionKill},
	} {
		if got, err := (stack{always(tt.newer), always(tt.older)}).run(seccompData{}); err != nil || got != tt.want {
			t.Errorf("%#x over %#x: %#x, %v, want %#x", tt.newer, tt.older, got, err, tt.want)
		}
	}
}

func TestSplitErrors(t *testing.T) {
	if _, _, err := Split("default"+starting, "amd64"); !errors.Is(err, ErrProfile) {
		t.Errorf("Split of the internal profile: %v, want %v", err, ErrProfile)
	}
	if _, _, err := Split("default", "sparc"); !errors.Is(err, ErrArch) {
		t.Errorf("sparc: %v, want %v", err, ErrArch)
	}
	if Table("default"+starting) != nil {
		t.Error("Table returns the internal profile")
	}
}
