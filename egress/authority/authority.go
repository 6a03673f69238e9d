// Package authority issues the certificates with which corral-egress ends the TLS connections of jobs, where rules are about
// requests.
//
// Each user has an authority of their own, whose key is in a file that root alone can read and in the memory of that user's
// corral-egress. Jails of the user's jobs trust its certificate; nothing else should.
package authority

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"
)

const (
	// validity is how long an authority is valid. Its key is replaced with it.
	validity = 10 * 365 * 24 * time.Hour
	// leafValidity is how long the certificate of a name is valid, and leafRenewal how long before its end another is issued.
	leafValidity = 7 * 24 * time.Hour
	leafRenewal  = 24 * time.Hour
	// skew is how far clocks of jobs may be behind.
	skew = time.Hour
	// maxLeaves is how many certificates are kept.
	maxLeaves = 1024
)

// An Authority issues certificates. Its methods may be called concurrently.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	now         func() time.Time

	mu     sync.Mutex
	own    *ecdsa.PrivateKey           // guarded by mu: the key of all leaves, which never leaves the process
	leaves map[string]*tls.Certificate // guarded by mu: by name
}

// New makes an authority with a new key.
func New(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	// The name is unique: clients look an issuer up by its name.
	name := "corral jobs " + hex.EncodeToString(serial.Bytes()[:4])
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-skew), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the authority: %w", err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return Parse(der, encoded)
}

func serialNumber() (*big.Int, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return nil, err
	}
	b[0] = b[0]&0x7f | 0x40 // positive, and of the same length always
	return new(big.Int).SetBytes(b), nil
}

// Parse returns the authority with a certificate (DER) and a key (PKCS #8).
func Parse(certificate, key []byte) (*Authority, error) {
	c, err := x509.ParseCertificate(certificate)
	if err != nil {
		return nil, fmt.Errorf("certificate of the authority: %w", err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("key of the authority: %w", err)
	}
	k, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !c.IsCA || c.KeyUsage&x509.KeyUsageCertSign == 0 || !k.PublicKey.Equal(c.PublicKey) {
		return nil, errors.New("the certificate and the key are not those of an authority")
	}
	return &Authority{certificate: c, key: k, now: time.Now, leaves: map[string]*tls.Certificate{}}, nil
}

// Encode returns what Parse accepts. The key is a secret.
func (a *Authority) Encode() (certificate, key []byte, err error) {
	key, err = x509.MarshalPKCS8PrivateKey(a.key)
	return a.certificate.Raw, key, err
}

// Is reports whether a certificate (DER) is the authority's.
func (a *Authority) Is(certificate []byte) bool { return bytes.Equal(a.certificate.Raw, certificate) }

// PEM returns the certificate as jails trust it.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// Expired reports whether the authority is about to be of no use.
func (a *Authority) Expired() bool { return a.now().Add(leafValidity).After(a.certificate.NotAfter) }

// Leaf returns a certificate for the name of a host.
func (a *Authority) Leaf(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if leaf := a.leaves[name]; leaf != nil && leaf.Leaf.NotAfter.After(now.Add(leafRenewal)) {
		return leaf, nil
	}
	if a.own == nil {
		var err error
		if a.own, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, err
		}
	}
	leaf, err := a.issue(name, now)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", name, err)
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	a.leaves[name] = leaf
	return leaf, nil
}

// issue makes a certificate. The caller holds a.mu.
func (a *Authority) issue(name string, now time.Time) (*tls.Certificate, error) {
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, DNSNames: []string{name}, NotBefore: now.Add(-skew), NotAfter: now.Add(leafValidity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &a.own.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.own, Leaf: parsed}, nil
}
