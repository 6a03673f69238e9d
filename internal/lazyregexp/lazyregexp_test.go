package lazyregexp

import "testing"

// TestLazy: nothing is compiled before the first call, and each expression once.
func TestLazy(t *testing.T) {
	malformed := New(`a(`) // would panic
	defer func() {
		if recover() == nil {
			t.Error("a malformed expression was compiled")
		}
	}()
	one, list := New(`^a{2}$`), List(`^b$`, `^c$`)
	if first := one(); !first.MatchString("aa") || first != one() {
		t.Error("not the expression, or compiled twice")
	}
	if all := list(); len(all) != 2 || !all[0].MatchString("b") || !all[1].MatchString("c") || list()[1] != all[1] {
		t.Errorf("%q: not the expressions in order, or compiled twice", all)
	}
	malformed()
}
