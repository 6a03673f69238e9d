package authority

import (
	"bytes"
	"crypto/x509"
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
	if !again.Is(certificate) || !bytes.Equal(again.PEM(), a.PEM()) || again.Is(other.certificate.Raw) {
		t.Error("another authority was read")
	}
	_, otherKey, _ := other.Encode()
	for name, bad := range map[string][2][]byte{
		"another key": {certificate, otherKey}, "a leaf": {leaf(t, a), key}, "no certificate": {nil, key}, "no key": {certificate, nil},
	} {
		if _, err := Parse(bad[0], bad[1]); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// leaf returns a certificate that an authority has signed.
func leaf(t *testing.T, a *Authority) []byte {
	t.Helper()
	serial, err := NewSerial()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, DNSNames: []string{"example.org"}, NotAfter: time.Now().Add(LeafValidity)}
	der, err := a.Sign(template, &a.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// TestExpired: an authority is replaced while what it issues is still valid for as long as that may be.
func TestExpired(t *testing.T) {
	a := newAuthority(t)
	now := time.Now()
	if a.Expired(now) {
		t.Error("a new authority has expired")
	}
	if !a.Expired(now.Add(validity - LeafValidity)) {
		t.Error("an authority at its end has not expired")
	}
}
