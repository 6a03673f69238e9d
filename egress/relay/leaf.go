package relay

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"corral/egress/authority"
)

const (
	// renewal is how long before the end of a certificate another is issued.
	renewal = 24 * time.Hour
	// maxLeaves is how many certificates are kept.
	maxLeaves = 1024
)

// An Issuer issues the certificates with which TLS connections of jobs end here, where rules are about requests. It is not part of package
// authority, so that the supervisor, which keeps authorities, is not linked with TLS. Its methods may be called concurrently.
type Issuer struct {
	*authority.Authority

	mu     sync.Mutex
	own    *ecdsa.PrivateKey           // guarded by mu: the key of all leaves, which never leaves the process
	leaves map[string]*tls.Certificate // guarded by mu: by name
}

// NewIssuer returns an issuer without certificates.
func NewIssuer(a *authority.Authority) *Issuer {
	return &Issuer{Authority: a, leaves: map[string]*tls.Certificate{}}
}

// Leaf returns a certificate for the name of a host.
func (i *Issuer) Leaf(name string) (*tls.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	if leaf := i.leaves[name]; leaf != nil && leaf.Leaf.NotAfter.After(now.Add(renewal)) {
		return leaf, nil
	}
	if i.own == nil {
		var err error
		if i.own, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, err
		}
	}
	leaf, err := i.issue(name, now)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", name, err)
	}
	if len(i.leaves) >= maxLeaves {
		clear(i.leaves)
	}
	i.leaves[name] = leaf
	return leaf, nil
}

// issue makes a certificate. The caller holds i.mu.
func (i *Issuer) issue(name string, now time.Time) (*tls.Certificate, error) {
	serial, err := authority.NewSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, DNSNames: []string{name}, NotBefore: now.Add(-authority.Skew), NotAfter: now.Add(authority.LeafValidity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := i.Sign(template, &i.own.PublicKey)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: i.own, Leaf: parsed}, nil
}
