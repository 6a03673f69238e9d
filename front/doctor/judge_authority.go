package doctor

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// maxAuthority bounds the size of a certificate's file in bytes, and maxAuthorities how many are read.
	maxAuthority   = 64 << 10
	maxAuthorities = 10_000
	// authorityNotice is how long before its end an authority should be replaced.
	authorityNotice = 30 * 24 * time.Hour
)

// An authorityFile has the certificate of the authority that jobs of a user trust. Everybody may read it.
type authorityFile struct {
	path string
	text []byte
	err  error
}

// readAuthorities reads the certificates of all authorities of a supervisor with a state directory.
func readAuthorities(state string) []authorityFile {
	paths, _ := filepath.Glob(filepath.Join(state, "authority", "*", "certificate.pem"))
	var list []authorityFile
	for _, path := range paths[:min(len(paths), maxAuthorities)] {
		f := authorityFile{path: path}
		f.text, f.err = readAuthority(path)
		list = append(list, f)
	}
	return list
}

func readAuthority(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxAuthority))
}

// judgeAuthority judges the authorities with whose certificates TLS connections of jobs end. It describes the one that ends first.
func judgeAuthority(e *evidence) (Status, string) {
	var first *x509.Certificate
	for _, f := range e.host.authorities {
		c, err := f.parse()
		if err != nil {
			return Degraded, err.Error()
		}
		if first == nil || c.NotAfter.Before(first.NotAfter) {
			first = c
		}
	}
	if first == nil {
		return OK, "none yet: one is made for the first job of each user that needs it"
	}
	sum := sha256.Sum256(first.Raw)
	detail := fmt.Sprintf("%s, SHA-256 %s, valid until %s", clip(first.Subject.CommonName),
		strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":"), first.NotAfter.UTC().Format(time.DateOnly))
	if n := len(e.host.authorities); n > 1 {
		detail = fmt.Sprintf("%d authorities; the first to end: %s", n, detail)
	}
	if time.Until(first.NotAfter) < authorityNotice {
		return Degraded, detail
	}
	return OK, detail
}

func (f authorityFile) parse() (*x509.Certificate, error) {
	if f.err != nil {
		return nil, f.err
	}
	block, _ := pem.Decode(f.text)
	if block == nil {
		return nil, fmt.Errorf("%s has no certificate", f.path)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return c, nil
}
