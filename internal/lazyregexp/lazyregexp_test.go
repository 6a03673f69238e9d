package lazyregexp

import "testing"

// TestLazy: a program compiles nothing before the first call, and each expression once.
func TestLazy(t *testing.T) {
	panics := func(f func()) (v any) {
		defer func() { v = recover() }()
		f()
		return nil
	}
	if panics(func() { New(`a(`) }) == nil || panics(func() { List(`a`, `a(`) }) == nil {
		t.Error("the binary of a test accepts a malformed expression")
	}
	tested = false
	defer func() { tested = true }()
	if malformed := New(`a(`); panics(func() { malformed() }) == nil {
		t.Error("a malformed expression was compiled")
	}
	one, list := New(`^a{2}$`), List(`^b$`, `^c$`)
	if first := one(); !first.MatchString("aa") || first != one() {
		t.Error("not the expression, or compiled twice")
	}
	if all := list(); len(all) != 2 || !all[0].MatchString("b") || !all[1].MatchString("c") || list()[1] != all[1] {
		t.Errorf("%q: not the expressions in order, or compiled twice", all)
	}
}
