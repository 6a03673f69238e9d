package forward

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"corral/front/otlp"
)

// Files are those that the configuration names. Empty names are none.
type Files struct{ CA, Certificate, Key, Headers string }

// Read reads the files, and the authorities of the system, for a receiver. Root can read them, and the forwarder itself need not.
func (f Files) Read(o *Options) error {
	if f.Headers != "" {
		var err error
		if o.Headers, err = otlp.ReadSecret(f.Headers); err != nil {
			return fmt.Errorf("headers_file: %w", err)
		}
	}
	if !strings.HasPrefix(o.To, "tls:") && !strings.HasPrefix(o.To, "https:") {
		return nil
	}
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	return errors.Join(f.authorities(o.TLS), f.identity(o.TLS))
}

func (f Files) authorities(c *tls.Config) (err error) {
	if f.CA == "" {
		if c.RootCAs, err = x509.SystemCertPool(); err != nil {
			return fmt.Errorf("certificates of authorities: %w", err)
		}
		return nil
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("ca: %s has no certificate in PEM", f.CA)
	}
	return nil
}

func (f Files) identity(c *tls.Config) error {
	if f.Certificate == "" {
		return nil
	}
	certificate, err := os.ReadFile(f.Certificate)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	key, err := otlp.ReadSecret(f.Key)
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, []byte(key))
	if err != nil {
		return fmt.Errorf("certificate and key: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return nil
}
