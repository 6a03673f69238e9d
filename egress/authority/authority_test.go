package authority

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"testing"
	"time"
)

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// trusts reports whether a client that trusts an authority accepts the certificate of a leaf for a name.
func trusts(t *testing.T, a *Authority, leaf *x509.Certificate, name string, at time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.PEM()) {
		t.Fatalf("no certificate in %s", a.PEM())
	}
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: at})
	return err
}

// TestLeaf: a leaf is for one name, of one authority, for a time, and cannot issue others.
func TestLeaf(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	cert, err := a.Leaf("example.org")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := trusts(t, a, cert.Leaf, "example.org", now); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"another name":      trusts(t, a, cert.Leaf, "www.example.org", now),
		"another authority": trusts(t, other, cert.Leaf, "example.org", now),
		"a later time":      trusts(t, a, cert.Leaf, "example.org", now.Add(leafValidity+time.Hour)),
	} {
		if err == nil {
			t.Errorf("a leaf is trusted for %s", what)
		}
	}
	if cert.Leaf.IsCA || cert.Leaf.KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Error("a leaf can issue certificates")
	}
	if a.certificate.Subject.String() == other.certificate.Subject.String() || a.key.Equal(other.key) {
		t.Error("two authorities have the same name or key")
	}
}

// TestRenewal: a leaf is kept until it is about to expire, and their number is bounded.
func TestRenewal(t *testing.T) {
	a := newAuthority(t)
	now := time.Now()
	a.now = func() time.Time { return now }
	leaf := func(name string) []byte {
		cert, err := a.Leaf(name)
		if err != nil {
			t.Fatal(err)
		}
		return cert.Certificate[0]
	}
	first := leaf("example.org")
	if !bytes.Equal(first, leaf("example.org")) {
		t.Error("a second certificate for a name")
	}
	now = now.Add(leafValidity - leafRenewal)
	if bytes.Equal(first, leaf("example.org")) {
		t.Error("no new certificate for one that is about to expire")
	}
	for n := range maxLeaves + 1 {
		leaf(fmt.Sprintf("n%d.example.org", n))
	}
	if len(a.leaves) > maxLeaves {
		t.Errorf("%d certificates are kept", len(a.leaves))
	}
	if a.Expired() {
		t.Error("a new authority has expired")
	}
	if now = now.Add(validity - leafValidity); !a.Expired() {
		t.Error("an authority at its end has not expired")
	}
}

// TestParse: an authority survives its encoding, and nothing else is one.
func TestParse(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	certificate, key, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := again.Leaf("example.org")
	if err != nil {
		t.Fatal(err)
	}
	if err := trusts(t, a, cert.Leaf, "example.org", time.Now()); err != nil {
		t.Error(err)
	}
	_, otherKey, _ := other.Encode()
	for name, bad := range map[string][2][]byte{
		"another key": {certificate, otherKey}, "a leaf": {cert.Certificate[0], key}, "no certificate": {nil, key}, "no key": {certificate, nil},
	} {
		if _, err := Parse(bad[0], bad[1]); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
