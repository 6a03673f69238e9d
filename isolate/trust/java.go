package trust

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"software.sslmate.com/src/go-pkcs12"

	"corral/internal/fault"
)

// A Maker makes the files for jails, and keeps what takes long to make. The zero Maker is ready for use, also concurrently.
type Maker struct {
	mu   fault.Mutex
	java map[[sha256.Size]byte][]byte // guarded by mu: the stores, by the digest of the bundle that each is made from
}

// maxJava is how many stores a Maker keeps. Each user has one, of some 200 KiB, and another one after a rotation, or if the host's
// authorities change.
const maxJava = 32

// javaStore returns a bundle as a trust store for Java, which the caller must not change.
func (m *Maker) javaStore(bundle []byte) ([]byte, error) {
	of := sha256.Sum256(bundle)
	m.mu.Lock()
	defer m.mu.Unlock()
	if store := m.java[of]; store != nil {
		return store, nil
	}
	var entries []pkcs12.TrustStoreEntry
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" { // not parsed: whatever the host trusts is kept
			name := fmt.Sprintf("authority-%d", len(entries)) // different ones: Java keeps one entry of a name
			entries = append(entries, pkcs12.TrustStoreEntry{Cert: &x509.Certificate{Raw: block.Bytes}, FriendlyName: name})
		}
	}
	// Without a password, because a JVM that is not given one passes over what is encrypted.
	store, err := pkcs12.Passwordless.EncodeTrustStoreEntries(entries, "")
	if err != nil {
		return nil, fmt.Errorf("the trust store for Java: %w", err)
	}
	if m.java == nil || len(m.java) >= maxJava {
		m.java = map[[sha256.Size]byte][]byte{}
	}
	m.java[of] = store
	return store, nil
}
