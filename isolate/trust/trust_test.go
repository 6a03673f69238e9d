package trust

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"corral/egress/authority"
	"corral/internal/test/sandboxtest"
	"corral/rootfs"
)

// newAuthority returns the certificate of a new authority, in PEM.
func newAuthority(t testing.TB) []byte {
	t.Helper()
	a, err := authority.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a.PEM()
}

// treeOf returns a tree of files and links, which begin with ->.
func treeOf(nodes map[string]string) (tree rootfs.Tree) {
	for p, text := range nodes {
		e := rootfs.Entry{Path: p, Mode: 0o644, Data: []byte(text)}
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			e = rootfs.Entry{Path: p, Mode: fs.ModeSymlink | 0o777, Link: target}
		}
		tree.Entries = append(tree.Entries, e)
	}
	return tree
}

// added returns what is added, in words: bundle is the host's bundle with the authority.
func added(t *testing.T, f *Files, tree rootfs.Tree) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, e := range tree.Entries {
		what := "?"
		switch {
		case bytes.Equal(e.Data, f.bundle):
			what = "bundle"
		case bytes.Equal(e.Data, f.authority):
			what = "authority"
		case bytes.HasPrefix(e.Data, []byte{0x30, 0x82}):
			what = "java"
		}
		if e.Mode != 0o644 || got[e.Path] != "" {
			t.Errorf("%s has mode %v, or is a duplicate", e.Path, e.Mode)
		}
		got[e.Path] = what
	}
	return got
}

// differ reports what is in only one of two maps.
func differ(t *testing.T, name string, got, want map[string]string) {
	t.Helper()
	for p, what := range got {
		if want[p] != what {
			t.Errorf("%s: %s is %s, want %q", name, p, what, want[p])
		}
	}
	for p, what := range want {
		if got[p] == "" {
			t.Errorf("%s: no %s, want %s", name, p, what)
		}
	}
}

// TestHost: the authority is added wherever a host has its authorities, to files in place of links to them.
func TestHost(t *testing.T) {
	pemFile := newAuthority(t)
	for _, tt := range []struct {
		name  string
		nodes map[string]string
		want  map[string]string // without the two files in DoorDir; # stands for the hash
	}{
		{
			"nothing",
			map[string]string{"/etc/passwd": "x"},
			map[string]string{"/etc/ssl/certs/ca-certificates.crt": "bundle", "/etc/ssl/certs/#.0": "authority"},
		},
		{
			"Debian",
			map[string]string{
				"/etc/ssl/certs/ca-certificates.crt": "host", "/etc/ssl/certs/a.pem": "-> /usr/share/ca-certificates/a.crt", "/etc/ssl/certs/java/cacerts": "java",
			},
			map[string]string{"/etc/ssl/certs/ca-certificates.crt": "bundle", "/etc/ssl/certs/#.0": "authority", "/etc/ssl/certs/java/cacerts": "java"},
		},
		{
			"Fedora",
			map[string]string{
				"/etc/ssl/certs": "-> ../pki/tls/certs", "/etc/pki/tls/certs/ca-bundle.crt": "-> /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
				"/etc/pki/tls/cert.pem": "-> certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem": "host",
				"/etc/pki/java/cacerts": "-> ../ca-trust/extracted/java/cacerts", "/etc/pki/ca-trust/extracted/java/cacerts": "java",
			},
			map[string]string{
				"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem": "bundle", "/etc/pki/tls/certs/#.0": "authority",
				"/etc/pki/ca-trust/extracted/java/cacerts": "java",
			},
		},
		{
			"Arch",
			map[string]string{
				"/etc/ssl/certs/ca-certificates.crt": "-> ../../ca-certificates/extracted/tls-ca-bundle.pem", "/etc/ssl/cert.pem": "-> ../ca-certificates/extracted/tls-ca-bundle.pem",
				"/etc/ca-certificates/extracted/tls-ca-bundle.pem": "host",
			},
			map[string]string{"/etc/ca-certificates/extracted/tls-ca-bundle.pem": "bundle", "/etc/ssl/certs/#.0": "authority"},
		},
		{
			"a directory of the host",
			map[string]string{"/etc/ssl/certs": "-> /usr/share/certs", "/etc/ssl/cert.pem": "-> cert.pem", "/etc/ssl/ca-bundle.pem": "-> /../../../etc/ssl/../x/y/z"},
			map[string]string{},
		},
		{
			"its name is taken",
			map[string]string{"/etc/ssl/certs/#.0": "another", "/etc/ssl/certs/ca-certificates.crt": "host\n"},
			map[string]string{"/etc/ssl/certs/ca-certificates.crt": "bundle", "/etc/ssl/certs/#.1": "authority"},
		},
	} {
		first, err := new(Maker).Files(rootfs.Tree{}, pemFile)
		if err != nil {
			t.Fatal(err)
		}
		named := func(m map[string]string) map[string]string {
			out := map[string]string{}
			for p, text := range m {
				out[strings.ReplaceAll(p, "#", first.hash)] = text
			}
			return out
		}
		tree := treeOf(named(tt.nodes))
		f, err := new(Maker).Files(tree, pemFile)
		if err != nil {
			t.Fatal(err)
		}
		host := "host\n"
		if !strings.Contains(strings.Join(slices.Collect(maps.Values(tt.nodes)), " "), "host") {
			host = ""
		}
		if string(f.bundle) != host+string(pemFile) {
			t.Errorf("%s: the bundle is %q", tt.name, f.bundle)
		}
		got, err := f.Host(tree)
		if err != nil {
			t.Fatal(err)
		}
		want := named(tt.want)
		want[AuthorityFile], want[BundleFile] = "authority", "bundle"
		if host == "" { // the bundle is nothing but the authority
			for p := range want {
				want[p] = "bundle"
			}
		}
		differ(t, tt.name, added(t, f, got), want)
	}
}

// TestNone: without an authority there are no files and no variables.
func TestNone(t *testing.T) {
	f, err := new(Maker).Files(treeOf(map[string]string{"/etc/ssl/certs/ca-certificates.crt": "host"}), nil)
	if f != nil || err != nil {
		t.Fatalf("%v, %v", f, err)
	}
	host, err := f.Host(rootfs.Tree{})
	image, ierr := f.Image(nil)
	if len(host.Entries)+len(image.Entries)+len(f.Env()) > 0 || err != nil || ierr != nil {
		t.Errorf("%v, %v, %q, %v, %v", host, image, f.Env(), err, ierr)
	}
}

// TestNotOneCertificate: what is not exactly one certificate is refused.
func TestNotOneCertificate(t *testing.T) {
	good := newAuthority(t)
	for name, text := range map[string][]byte{
		"text": []byte("x"), "two": slices.Concat(good, good), "a key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte{0}}),
		"broken": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{0}}),
	} {
		if f, err := new(Maker).Files(rootfs.Tree{}, text); f != nil || !errors.Is(err, ErrAuthority) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}

// TestImage: in a root file system that somebody else made, nothing is followed: no link to a directory outside, and none inside.
func TestImage(t *testing.T) {
	f, err := new(Maker).Files(treeOf(map[string]string{"/etc/ssl/certs/ca-certificates.crt": "host\n"}), newAuthority(t))
	if err != nil {
		t.Fatal(err)
	}
	hash := "/etc/ssl/certs/" + f.hash
	for _, tt := range []struct {
		name, make string
		want       map[string]string
	}{
		{"empty", "", map[string]string{"/etc/ssl/certs/ca-certificates.crt": "bundle", hash + ".0": "authority"}},
		{
			"Debian", "mkdir -p etc/ssl/certs/java; echo x >etc/ssl/certs/ca-certificates.crt; ln -s /x etc/ssl/certs/java/cacerts",
			map[string]string{"/etc/ssl/certs/ca-certificates.crt": "bundle", "/etc/ssl/certs/java/cacerts": "java", hash + ".0": "authority"},
		},
		{
			"Fedora", "mkdir -p etc/ssl etc/pki/tls/certs; ln -s ../pki/tls/certs etc/ssl/certs; ln -s /etc/none etc/pki/tls/certs/ca-bundle.crt; ln -s certs/ca-bundle.crt etc/pki/tls/cert.pem",
			map[string]string{"/etc/pki/tls/certs/ca-bundle.crt": "bundle", "/etc/pki/tls/cert.pem": "bundle", "/etc/pki/tls/certs/" + f.hash + ".0": "authority"},
		},
		{"a link inside", "mkdir -p etc/real/certs; echo x >etc/real/certs/ca-certificates.crt; ln -s real etc/ssl", map[string]string{}},
		{"links to outside", "ln -s /etc etc; mkdir opt; ln -s / opt/java", map[string]string{}},
		{"files as directories", "mkdir etc; echo x >etc/ssl", map[string]string{}},
		{"a directory as file", "mkdir -p etc/ssl/cert.pem etc/ssl/certs/" + f.hash + ".0", map[string]string{"/etc/ssl/certs/ca-certificates.crt": "bundle", hash + ".1": "authority"}},
	} {
		dir := t.TempDir()
		if out, err := exec.Command("sh", "-ec", "cd "+dir+"; "+tt.make).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", tt.name, err, out)
		}
		top, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer top.Close()
		got, err := f.Image(top)
		if err != nil {
			t.Fatal(err)
		}
		tt.want[AuthorityFile], tt.want[BundleFile] = "authority", "bundle"
		differ(t, tt.name, added(t, f, got), tt.want)
	}
}

// TestSubjectHash: authorities have the name by which OpenSSL looks for them.
func TestSubjectHash(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("openssl"))
	certificates := [][]byte{newAuthority(t)}
	if host, err := os.ReadFile(bundles[0].path); err == nil { // names of all kinds
		for block, rest := pem.Decode(host); block != nil; block, rest = pem.Decode(rest) {
			certificates = append(certificates, pem.EncodeToMemory(block))
		}
	}
	for n, text := range certificates {
		if n%8 != 0 {
			continue // a process for each takes seconds
		}
		cmd := exec.Command("openssl", "x509", "-noout", "-subject_hash")
		cmd.Stdin = bytes.NewReader(text)
		want, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		if got, err := subjectHash(c.RawSubject); err != nil || got != strings.TrimSpace(string(want)) {
			t.Errorf("%s: %s, want %s, %v", c.Subject, got, want, err)
		}
	}
}

// TestSubjectMalformed: the error says what is wrong with a subject.
func TestSubjectMalformed(t *testing.T) {
	for subject, want := range map[string]string{"\x30\x00x": "1 bytes after its end", "\x30": "asn1: syntax error"} {
		if _, err := subjectHash([]byte(subject)); !errors.Is(err, ErrAuthority) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", subject, err, want)
		}
	}
}

// TestJavaStore: the store has all authorities of the bundle, under different names, and is made once for each bundle.
func TestJavaStore(t *testing.T) {
	one, two := newAuthority(t), newAuthority(t)
	var m Maker
	store, err := m.javaStore(slices.Concat(one, two))
	if err != nil {
		t.Fatal(err)
	}
	list, err := pkcs12.DecodeTrustStore(store, "")
	if err != nil || len(list) != 2 {
		t.Fatalf("%d certificates, %v", len(list), err)
	}
	for n, text := range [][]byte{one, two} {
		if block, _ := pem.Decode(text); !bytes.Equal(block.Bytes, list[n].Raw) {
			t.Errorf("certificate %d differs", n)
		}
	}
	again, err := m.javaStore(slices.Concat(one, two))
	other, oerr := m.javaStore(one)
	if &again[0] != &store[0] || bytes.Equal(other, store) || err != nil || oerr != nil {
		t.Errorf("the store is made again, or kept for another bundle: %v, %v", err, oerr)
	}
}

// TestDocumentedVariables: docs/explanation/isolation.md has the variables. On a failure, copy the rows that this test prints.
func TestDocumentedVariables(t *testing.T) {
	page, err := os.ReadFile("../../docs/explanation/isolation.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, v := range Variables {
		fmt.Fprintf(&want, "| `%s` | `%s` | %s |\n", v.Name, v.File, v.Reason)
	}
	if !strings.Contains(string(page), "|---|---|---|\n"+want.String()+"\n") {
		t.Errorf("the page lacks\n%s", want.String())
	}
}

// TestVariables: each names a file that every jail has.
func TestVariables(t *testing.T) {
	f := &Files{}
	for n, v := range Variables {
		if v.File != AuthorityFile && v.File != BundleFile || v.Reason == "" || f.Env()[n] != v.Name+"="+v.File || !filepath.IsAbs(v.File) {
			t.Errorf("%+v", v)
		}
	}
}
