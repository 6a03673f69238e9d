package relay

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"corral/egress/authority"
)

func newIssuer(t *testing.T) *Issuer {
	t.Helper()
	a, err := authority.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return NewIssuer(a)
}

// trusts reports whether a client that trusts an authority accepts the certificate of a leaf for a name.
func trusts(t *testing.T, a *Issuer, leaf *x509.Certificate, name string, at time.Time) error {
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
	a, other := newIssuer(t), newIssuer(t)
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
		"a later time":      trusts(t, a, cert.Leaf, "example.org", now.Add(authority.LeafValidity+time.Hour)),
	} {
		if err == nil {
			t.Errorf("a leaf is trusted for %s", what)
		}
	}
	if cert.Leaf.IsCA || cert.Leaf.KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Error("a leaf can issue certificates")
	}
	if from, _ := other.Leaf("example.org"); from.Leaf.Issuer.String() == cert.Leaf.Issuer.String() || cert.Leaf.PublicKey.(*ecdsa.PublicKey).Equal(from.Leaf.PublicKey) {
		t.Error("two authorities have the same name or key")
	}
}

// TestRenewal: a leaf is kept until it is about to expire, and their number is bounded.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newIssuer(t)
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
		time.Sleep(authority.LeafValidity - renewal)
		if bytes.Equal(first, leaf("example.org")) {
			t.Error("no new certificate for one that is about to expire")
		}
		for n := range maxLeaves + 1 {
			leaf(fmt.Sprintf("n%d.example.org", n))
		}
		if len(a.leaves) > maxLeaves {
			t.Errorf("%d certificates are kept", len(a.leaves))
		}
	})
}
