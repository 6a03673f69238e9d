package config

import (
	"crypto/sha256"
	"regexp"
	"strings"
	"testing"
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
		if p, ok := all.Authenticate(token); !ok || p.Name != name {
			t.Errorf("%s: %+v, %t", name, p, ok)
		}
	}
	hash := all[0].Hash
	for name, token := range map[string]string{
		"nothing": "", "another": "corral_x", "cut": tokens["a"][:49], "longer": tokens["a"] + "x", "huge": strings.Repeat("x", 1<<20),
		"the hash": string(hash[:]), "upper case": strings.ToUpper(tokens["a"]),
	} {
		if p, ok := all.Authenticate(token); ok || p.Name != "" {
			t.Errorf("%s: %+v, %t", name, p, ok)
		}
	}
	if _, ok := Principals(nil).Authenticate(tokens["a"]); ok {
		t.Error("found a principal in an empty list")
	}
}
