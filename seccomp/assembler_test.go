package seccomp

import "testing"

// answerTo runs a program on a call number.
func answerTo(t *testing.T, a *assembler, nr uint32) uint32 {
	t.Helper()
	got, err := load(a.bytes()).run(seccompData{nr: nr})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestFarJumps checks that a branch reaches returns and other instructions at any distance, also if both targets are
// far.
func TestFarJumps(t *testing.T) {
	for _, between := range []int{0, 252, 253, 254, 255, 256, 257, 1000} {
		var a assembler
		no := a.load(offsetArch, a.ret(3))
		yes := a.ret(1)
		for range between {
			a.put(a.code[0]) // never executed
		}
		a.load(offsetNr, a.jump(equal, 7, yes, no))
		if got := answerTo(t, &a, 7); got != 1 {
			t.Errorf("%d instructions between: yes gives %d, want 1", between, got)
		}
		if got := answerTo(t, &a, 8); got != 3 {
			t.Errorf("%d instructions between: no gives %d, want 3", between, got)
		}
	}
}

// TestContinuesAtTarget checks that instructions without targets of their own continue at the given one, by a jump if
// it does not follow directly.
func TestContinuesAtTarget(t *testing.T) {
	var a assembler
	to := a.jump(equal, 4, a.ret(1), a.ret(2))
	a.ret(3)
	a.load(offsetNr, a.and(0xf, to))
	for nr, want := range map[uint32]uint32{4: 1, 0x14: 1, 5: 2} {
		if got := answerTo(t, &a, nr); got != want {
			t.Errorf("%d gives %d, want %d", nr, got, want)
		}
	}
}

// TestSharing checks that equal returns and tests are written once while they are within reach.
func TestSharing(t *testing.T) {
	var a assembler
	yes, no := a.ret(1), a.ret(2)
	first := a.test(is(0, 5), yes, no)
	if second := a.test(is(0, 5), yes, no); second != first {
		t.Errorf("an equal test was written again at %d, the first is at %d", second, first)
	}
	if other := a.test(is(1, 5), yes, no); other == first {
		t.Error("tests of different arguments share code")
	}
	if other := a.test(is(0, 5), no, yes); other == first {
		t.Error("tests with different targets share code")
	}
	if again := a.ret(1); again != yes {
		t.Errorf("a return within reach was written again at %d", again)
	}
	for range maxOffset {
		a.put(a.code[0])
	}
	if again := a.ret(1); again == yes || int(again) != len(a.code) {
		t.Errorf("a return out of reach is at %d, want %d", again, len(a.code))
	}
}
