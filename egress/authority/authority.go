// Package authority makes and reads authorities: the certificates that jails trust where rules are about requests, with their
// keys. What an authority issues is made by package relay.
//
// Each user has an authority of their own, whose key is in a file that root alone can read and in the memory of that user's
// corral-egress. Jails of the user's jobs trust its certificate; nothing else should.
package authority

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

const (
	// validity is how long an authority is valid. Its key is replaced with it.
	validity = 10 * 365 * 24 * time.Hour
	// LeafValidity is how long the certificate of a name is valid.
	LeafValidity = 7 * 24 * time.Hour
	// Skew is how far clocks of jobs may be behind: certificates are valid from so long before they were issued.
	Skew = time.Hour
)

// An Authority signs certificates. Its methods may be called concurrently.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New makes an authority with a new key.
func New(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := NewSerial()
	if err != nil {
		return nil, err
	}
	// The name is unique: clients look an issuer up by its name.
	name := "corral jobs " + hex.EncodeToString(serial.Bytes()[:4])
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-Skew), NotAfter: now.Add(validity),
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

// NewSerial returns a serial number that no other certificate has.
func NewSerial() (*big.Int, error) {
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
	return &Authority{c, k}, nil
}

// Encode returns what Parse accepts. The key is a secret.
func (a *Authority) Encode() (certificate, key []byte, err error) {
	key, err = x509.MarshalPKCS8PrivateKey(a.key)
	return a.certificate.Raw, key, err
}

// Is reports whether a certificate (DER) is that of the authority itself.
func (a *Authority) Is(certificate []byte) bool { return bytes.Equal(a.certificate.Raw, certificate) }

// PEM returns the certificate as jails trust it.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// Expired reports whether the authority would expire before a certificate that it issues now. It must be replaced then.
func (a *Authority) Expired(now time.Time) bool {
	return now.Add(LeafValidity).After(a.certificate.NotAfter)
}

// Sign returns the certificate (DER) of a public key, as the template describes it.
func (a *Authority) Sign(template *x509.Certificate, public *ecdsa.PublicKey) ([]byte, error) {
	return x509.CreateCertificate(rand.Reader, template, a.certificate, public, a.key)
}
