package doctor

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

const (
	// authorityFile has the certificate of the authority that jails trust. Everybody may read it.
	authorityFile = "/var/lib/corral/authority/certificate.pem"
	// maxAuthority bounds its size in bytes.
	maxAuthority = 64 << 10
	// authorityNotice is how long before its end an authority should be replaced.
	authorityNotice = 30 * 24 * time.Hour
)

// readAuthority returns the certificate of the authority, in PEM.
func readAuthority() ([]byte, error) {
	f, err := os.Open(authorityFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxAuthority))
}

// judgeAuthority judges the authority with whose certificates TLS connections of jobs end.
func judgeAuthority(e *evidence) (Status, string) {
	text, err := e.host.authority, e.host.authorityErr
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return OK, "none yet: it is made for the first job that needs it"
	case err != nil:
		return Degraded, err.Error()
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return Degraded, authorityFile + " has no certificate"
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Degraded, authorityFile + ": " + err.Error()
	}
	sum := sha256.Sum256(c.Raw)
	detail := fmt.Sprintf("%s, SHA-256 %s, valid until %s", clip(c.Subject.CommonName),
		strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":"), c.NotAfter.UTC().Format(time.DateOnly))
	if left := time.Until(c.NotAfter); left < authorityNotice {
		return Degraded, detail
	}
	return OK, detail
}
