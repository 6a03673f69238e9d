package job

import "testing"

func TestParseProtection(t *testing.T) {
	for _, p := range []Protection{ProtectNone, ProtectHooks, ProtectAll} {
		if got, err := ParseProtection(p.String()); got != p || err != nil {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	if p, err := ParseProtection(""); p != ProtectNone || err != nil {
		t.Errorf("empty: %v, %v", p, err)
	}
	for _, s := range []string{"true", "Hooks", "all ", "git"} {
		if p, err := ParseProtection(s); p != ProtectNone || err == nil {
			t.Errorf("%q: %v", s, p)
		}
	}
	if ProtectNone >= ProtectHooks || ProtectHooks >= ProtectAll {
		t.Error("the protections are not in ascending order")
	}
}
