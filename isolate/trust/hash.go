package trust

import (
	"crypto/sha1" //nolint:gosec // OpenSSL's directories have it; it protects nothing
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"fmt"
	"strings"
)

// An attribute is part of a name, in the form that OpenSSL hashes.
type attribute struct {
	Type  asn1.ObjectIdentifier
	Value string `asn1:"utf8"`
}

// subjectHash returns the name that openssl-rehash(1) gives a certificate with a subject, in DER, without its number:
// X509_NAME_hash_ex(3) of the name with texts in UTF-8 and lower case, and one space in place of several.
func subjectHash(subject []byte) (string, error) {
	var name pkix.RDNSequence
	rest, err := asn1.Unmarshal(subject, &name)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after its end", len(rest))
	}
	if err != nil {
		return "", fmt.Errorf("%w: a subject that cannot be read: %w", ErrAuthority, err)
	}
	sum := sha1.New() //nolint:gosec // see above
	for _, rdn := range name {
		var set []attribute
		for _, a := range rdn {
			text, ok := a.Value.(string)
			if !ok {
				return "", fmt.Errorf("%w: a subject with something else than texts", ErrAuthority)
			}
			set = append(set, attribute{a.Type, strings.Map(lower, strings.Join(strings.FieldsFunc(text, isSpace), " "))})
		}
		der, err := asn1.MarshalWithParams(set, "set")
		if err != nil {
			return "", err
		}
		sum.Write(der)
	}
	return fmt.Sprintf("%08x", binary.LittleEndian.Uint32(sum.Sum(nil))), nil
}

// lower and isSpace know ASCII alone, as OpenSSL's do.
func lower(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		return r - 'A' + 'a'
	}
	return r
}

func isSpace(r rune) bool { return r == ' ' || '\t' <= r && r <= '\r' }
