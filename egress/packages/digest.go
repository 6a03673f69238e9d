package packages

import (
	"crypto/sha1" //nolint:gosec // old packages of npm have no other digest, and npm accepts it
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"strings"

	"golang.org/x/crypto/blake2b"
)

// A Digest is what a file must hash to. The zero Digest is unknown.
type Digest struct {
	Algorithm string // sha512, sha384, sha256, blake2b_256 or sha1
	Sum       string // bytes
}

var algorithms = map[string]func() hash.Hash{
	"sha512": sha512.New, "sha384": sha512.New384, "sha256": sha256.New, "sha1": sha1.New,
	"blake2b_256": func() hash.Hash { h, _ := blake2b.New256(nil); return h }, // fails with a key alone
}

// New returns the hash with which a file is verified. The digest must not be zero.
func (d Digest) New() hash.Hash { return algorithms[d.Algorithm]() }

// String returns ALGORITHM:HEX, "" for the zero Digest.
func (d Digest) String() string {
	if d == (Digest{}) {
		return ""
	}
	return d.Algorithm + ":" + hex.EncodeToString([]byte(d.Sum))
}

// ParseDigest reads ALGORITHM:HEX. What it cannot read is unknown.
func ParseDigest(s string) Digest {
	algorithm, sum, _ := strings.Cut(s, ":")
	return digestOf(algorithm, sum)
}

// digestOf returns the digest with a sum in hexadecimal, zero if it is none.
func digestOf(algorithm, sum string) Digest {
	if len(sum) > 2*sha512.Size {
		return Digest{}
	}
	b, err := hex.DecodeString(sum)
	if err != nil {
		return Digest{}
	}
	return checked(algorithm, b)
}

// checked returns the digest, zero if its size is not the algorithm's.
func checked(algorithm string, sum []byte) Digest {
	n, known := algorithms[algorithm]
	if !known || n().Size() != len(sum) {
		return Digest{}
	}
	return Digest{strings.Clone(algorithm), string(sum)} // it can be a part of a long text, which a fact would keep
}

// parseIntegrity reads Subresource Integrity, as npm has it: it returns the strongest digest.
func parseIntegrity(s string) Digest {
	for _, algorithm := range []string{"sha512", "sha384", "sha256", "sha1"} {
		for field := range strings.FieldsSeq(s) {
			encoded, ok := strings.CutPrefix(field, algorithm+"-")
			encoded, _, _ = strings.Cut(encoded, "?")
			if b, err := base64.StdEncoding.DecodeString(encoded); ok && err == nil {
				if d := checked(algorithm, b); d != (Digest{}) {
					return d
				}
			}
		}
	}
	return Digest{}
}
