package trust

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"slices"

	"corral/rootfs"
)

// Files that every jail with an authority has, whatever its distribution.
const (
	AuthorityFile = rootfs.DoorDir + "/authority.pem"       // the authority alone
	BundleFile    = rootfs.DoorDir + "/ca-certificates.crt" // the host's authorities and this one
)

// A place is a path where clients look for authorities.
type place struct{ path, reason string }

// bundles are files with all authorities in PEM. The first one that the host has is what it trusts. Those that a root file
// system has are replaced; the first is made in one that has none.
var bundles = []place{
	{"/etc/ssl/certs/ca-certificates.crt", "Debian, Alpine, Arch: GnuTLS, curl, git, Go"},
	{"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "Fedora"},
	{"/etc/pki/tls/certs/ca-bundle.crt", "Fedora: the file before, by an older name"},
	{"/etc/pki/tls/cert.pem", "Fedora: OpenSSL"},
	{"/etc/ca-certificates/extracted/tls-ca-bundle.pem", "Arch"},
	{"/etc/ssl/cert.pem", "Alpine, Arch: OpenSSL, LibreSSL"},
	{"/etc/ssl/ca-bundle.pem", "openSUSE"},
}

// hashed are directories in which OpenSSL finds an authority by the hash of its name: what Python, Ruby, PHP and Perl do on
// Debian, where OpenSSL has no bundle.
var hashed = []place{
	{"/etc/ssl/certs", "Debian, Alpine, Arch"},
	{"/etc/pki/tls/certs", "Fedora"},
}

// javaStores are files that a JVM links to in place of a store of its own.
var javaStores = []place{
	{"/etc/ssl/certs/java/cacerts", "Debian"},
	{"/etc/pki/ca-trust/extracted/java/cacerts", "Fedora"},
	{"/etc/pki/java/cacerts", "Fedora: the file before, by an older name"},
	{"/opt/java/openjdk/lib/security/cacerts", "container images of Eclipse Temurin"},
}

// Files are the files by which jobs trust an authority. A nil *Files stands for none.
type Files struct {
	maker             *Maker
	authority, bundle []byte // PEM
	hash              string // of the authority's name, as OpenSSL has it
}

// ErrAuthority is returned for an authority that is not one certificate in PEM.
var ErrAuthority = errors.New("the authority that jails trust must be one certificate in PEM")

// Files returns the files for an authority, its certificate in PEM, on a host from which tree was made. Without an authority it
// returns nil.
func (m *Maker) Files(tree rootfs.Tree, authority []byte) (*Files, error) {
	if len(authority) == 0 {
		return nil, nil
	}
	block, rest := pem.Decode(authority)
	if block == nil || block.Type != "CERTIFICATE" || len(rest) > 0 {
		return nil, ErrAuthority
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAuthority, err)
	}
	f := &Files{maker: m, authority: pem.EncodeToMemory(block)}
	if f.hash, err = subjectHash(c.RawSubject); err != nil {
		return nil, err
	}
	f.bundle = slices.Concat(hostBundle(viewOf(tree)), f.authority)
	return f, nil
}

// hostBundle returns the authorities of a host, which end with a newline; nil if it has none.
func hostBundle(v view) []byte {
	for _, p := range bundles {
		at, ok := v.file(p.path)
		if !ok {
			continue
		}
		data := v[at].Data
		if n := len(data); n > 0 && data[n-1] != '\n' {
			data = append(data[:n:n], '\n')
		}
		return data
	}
	return nil
}

// A root is a root file system to which files are to be added.
type root interface {
	// file returns the path at which the content of the file p is to be replaced; false if there is none, or it is a directory.
	file(p string) (at string, ok bool)
	// dir is like file, for a directory. One that is missing is made.
	dir(p string) (at string, ok bool)
	// has reports whether there is something at a path from file or dir.
	has(p string) bool
}

// Host returns the files for a root that has the entries of a tree. They replace those of the tree with the same paths. No
// path of them leads through a link of the tree.
func (f *Files) Host(tree rootfs.Tree) (rootfs.Tree, error) {
	if f == nil {
		return rootfs.Tree{}, nil
	}
	return f.add(viewOf(tree))
}

// add returns the files for a root.
func (f *Files) add(r root) (rootfs.Tree, error) {
	s := &set{}
	s.put(AuthorityFile, f.authority)
	s.put(BundleFile, f.bundle)
	if s.replace(r, bundles, f.bundle); len(s.tree.Entries) == 2 {
		if dir, ok := r.dir(path.Dir(bundles[0].path)); ok {
			s.put(path.Join(dir, path.Base(bundles[0].path)), f.bundle)
		}
	}
	for n, p := range hashed {
		dir, ok := r.dir(p.path)
		if !ok || n > 0 && !r.has(dir) {
			continue // the directory of another distribution
		}
		if at, ok := freeName(r, dir+"/"+f.hash); ok {
			s.put(at, f.authority)
		}
	}
	if slices.ContainsFunc(javaStores, func(p place) bool { _, ok := r.file(p.path); return ok }) {
		store, err := f.maker.javaStore(f.bundle)
		if err != nil {
			return rootfs.Tree{}, err
		}
		s.replace(r, javaStores, store)
	}
	return s.tree, nil
}

// maxSame bounds the authorities with the same hash in a directory of OpenSSL. More are a mistake.
const maxSame = 16

// freeName returns base with the first free number: authorities with the same hash are told apart by it.
func freeName(r root, base string) (string, bool) {
	for n := range maxSame {
		if p := fmt.Sprintf("%s.%d", base, n); !r.has(p) {
			return p, true
		}
	}
	return "", false
}

// A set is files with different paths.
type set struct {
	tree rootfs.Tree
	seen map[string]bool
}

func (s *set) put(p string, data []byte) {
	if s.seen[p] {
		return
	}
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[p] = true
	s.tree.Entries = append(s.tree.Entries, rootfs.Entry{Path: p, Mode: 0o644, Data: data})
}

// replace puts data at those places that a root has.
func (s *set) replace(r root, places []place, data []byte) {
	for _, p := range places {
		if at, ok := r.file(p.path); ok {
			s.put(at, data)
		}
	}
}
