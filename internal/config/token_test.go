package config

import (
	"crypto/sha256"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestNewToken(t *testing.T) {
	form := regexp.MustCompile(`^corral_[A-Za-z0-9_-]{43}$`)
	seen := map[string]bool{}
	for range 100 {
		token, hash := NewToken()
		if !form.MatchString(token) || hash != sha256.Sum256([]byte(token)) || seen[token] {
			t.Fatalf("%q, %x", token, hash)
		}
		seen[token] = true
	}
}

func TestAuthenticate(t *testing.T) {
	var all Principals
	tokens := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		token, hash := NewToken()
		all, tokens[name] = append(all, Principal{Name: name, Hash: hash}), token
	}
	for name, token := range tokens {
		if p, ok := all.Authenticate(token, time.Now()); !ok || p.Name != name {
			t.Errorf("%s: %+v, %t", name, p, ok)
		}
	}
	hash := all[0].Hash
	for name, token := range map[string]string{
		"nothing": "", "another": "corral_x", "cut": tokens["a"][:49], "longer": tokens["a"] + "x", "huge": strings.Repeat("x", 1<<20),
		"the hash": string(hash[:]), "upper case": strings.ToUpper(tokens["a"]),
	} {
		if p, ok := all.Authenticate(token, time.Now()); ok || p.Name != "" {
			t.Errorf("%s: %+v, %t", name, p, ok)
		}
	}
	if _, ok := Principals(nil).Authenticate(tokens["a"], time.Now()); ok {
		t.Error("found a principal in an empty list")
	}
}

// TestTokenExpires: a token is accepted until it expires. After a rotation the former one is accepted for the grace, but not
// longer than before, and the one before that no more.
func TestTokenExpires(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	var tokens [3]string
	var hashes [3][32]byte
	for i := range tokens {
		tokens[i], hashes[i] = NewToken()
	}
	p := Principal{Name: "ci", Hash: hashes[0], Created: 1000, Expires: 2000}
	check := func(when int64, want ...bool) {
		t.Helper()
		for i, w := range want {
			if _, ok := (Principals{{Name: "other"}, p}).Authenticate(tokens[i], at(when)); ok != w {
				t.Errorf("at %d, token %d: %t, want %t", when, i, ok, w)
			}
		}
	}
	check(1999, true, false, false)
	check(2000, false, false, false)
	rotate := func(i int, now Instant, grace, life time.Duration) {
		t.Helper()
		var err error
		if p, err = (&Rotation{Name: "ci", Hash: hashes[i], Now: now, Grace: grace, Life: life}).of(p); err != nil {
			t.Fatal(err)
		}
	}
	rotate(1, 1500, 100*time.Second, 0)
	check(1599, true, true, false)
	check(1600, false, true, false)
	check(2499, false, true, false) // it lives as long as the former one did
	check(2500, false, false, false)
	rotate(2, 1550, 24*time.Hour, time.Hour)
	check(1560, false, true, true)
	check(2500, false, false, true) // the grace ends with the former token's own life
	check(1550+3600, false, false, false)
	rotate(0, 1600, 0, 0)
	check(1600, true, false, false)
	if _, err := (&Rotation{Name: "ci", Now: 5}).of(Principal{Name: "ci", Expires: 9}); err == nil {
		t.Error("a lifetime that is unknown was kept")
	}
	if _, ok := (Principals{{Name: "a"}}).Authenticate("", at(1)); ok {
		t.Error("an empty token")
	}
}
