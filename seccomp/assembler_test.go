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

// TestFarJumps: a branch goes where it is to go from any distance, to answers
// and to other instructions, also when both ways are far.
func TestFarJumps(t *testing.T) {
	for _, between := range []int{0, 252, 253, 254, 255, 256, 257, 1000} {
		var a assembler
		no := a.load(offsetArch, a.ret(3))
		yes := a.ret(1)
		for range between {
			a.put(a.code[0]) // reached by nothing
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

// TestLoadGoesOnElsewhere: what has no jump of its own gets one, unless it goes
// on with the instruction that follows.
func TestLoadGoesOnElsewhere(t *testing.T) {
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

// TestSharing: the same answer or test is written once, as long as it is in
// reach.
func TestSharing(t *testing.T) {
	var a assembler
	yes, no := a.ret(1), a.ret(2)
	first := a.test(is(0, 5), yes, no)
	if second := a.test(is(0, 5), yes, no); second != first {
		t.Errorf("a second test of the same is at %d, the first at %d", second, first)
	}
	if other := a.test(is(1, 5), yes, no); other == first {
		t.Error("tests of different arguments are one")
	}
	if other := a.test(is(0, 5), no, yes); other == first {
		t.Error("tests with different ways out are one")
	}
	if again := a.ret(1); again != yes {
		t.Errorf("an answer in reach is written again at %d", again)
	}
	for range maxOffset {
		a.put(a.code[0])
	}
	if again := a.ret(1); again == yes || int(again) != len(a.code) {
		t.Errorf("an answer out of reach is at %d, of %d instructions", again, len(a.code))
	}
}
