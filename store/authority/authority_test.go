package authority

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	issuer "corral/egress/authority"
)

func mustCurrent(t *testing.T, s *Store) *Authority {
	t.Helper()
	a, err := s.Current()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestStore: the first need makes the authority, which then stays. A rotation applies with the next reload, and jails that trust the
// former one can still have it.
func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "authority")
	if _, err := Certificate(dir); !errors.Is(err, ErrNone) {
		t.Errorf("%v, want that there is none", err)
	}
	s := New(dir)
	first := mustCurrent(t, s)
	if again := mustCurrent(t, New(dir)); !bytes.Equal(again.PEM, first.PEM) || !bytes.Equal(again.Control.Key, first.Control.Key) {
		t.Error("another supervisor has another authority")
	}
	if _, err := issuer.Parse(first.Control.Certificate, first.Control.Key); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]fs.FileMode{"": 0o755, secretName: 0o600, certificateName: 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v, %v, want mode %o", name, info, err, want)
		}
	}
	if err := Rotate(dir); err != nil {
		t.Fatal(err)
	}
	if got := mustCurrent(t, s); got != first {
		t.Error("a rotation applies without a reload")
	}
	s.Reload()
	second := mustCurrent(t, s)
	if bytes.Equal(second.PEM, first.PEM) || s.Of(first.PEM) != first || s.Of(second.PEM) != second || s.Of([]byte("x")) != nil {
		t.Error("after a rotation, the store does not have both authorities")
	}
	if got, err := Certificate(dir); err != nil || !bytes.Equal(got, second.PEM) {
		t.Errorf("%s, %v", got, err)
	}
	s.Reload()
	if got := mustCurrent(t, s); !bytes.Equal(got.PEM, second.PEM) || s.Of(second.PEM) != second {
		t.Error("a reload without a rotation has another authority")
	}
	for range 2 * maxFormer {
		if err := Rotate(dir); err != nil {
			t.Fatal(err)
		}
		s.Reload()
		mustCurrent(t, s)
	}
	if len(s.known) != maxFormer || s.Of(first.PEM) != nil {
		t.Errorf("%d authorities are kept", len(s.known))
	}
}

// TestConcurrently: supervisors that start at once have one authority.
func TestConcurrently(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "authority")
	var all [8]*Authority
	var work sync.WaitGroup
	for n := range all {
		work.Go(func() { all[n], _ = New(dir).Current() })
	}
	work.Wait()
	for _, a := range all {
		if a == nil || !bytes.Equal(a.PEM, all[0].PEM) {
			t.Fatalf("%v", all)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDamaged: files that are no authority are not used, and one that is about to expire is replaced.
func TestDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "authority")
	mustCurrent(t, New(dir))
	path := filepath.Join(dir, secretName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"empty": {}, "half": whole[:len(whole)/2], "large": append(bytes.Repeat([]byte("x"), maxFile), whole...), "no certificate": whole[bytes.Index(whole, []byte("-----BEGIN PRIVATE")):],
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if a, err := New(dir).Current(); err == nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if err := errors.Join(os.WriteFile(path, whole, 0o600), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	if a, err := New(dir).Current(); err == nil || !strings.Contains(err.Error(), "mode 0640") {
		t.Errorf("a key that a group can read: %+v, %v", a, err)
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, expired(t), 0o600)); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(mustCurrent(t, New(dir)).PEM)
	if c, err := x509.ParseCertificate(block.Bytes); err != nil || c.NotAfter.Before(c.NotBefore.AddDate(9, 0, 0)) {
		t.Errorf("%v until %v, %v", c.NotBefore, c.NotAfter, err)
	}
	if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	if a, err := New(dir).Current(); err == nil {
		t.Errorf("a pipe: %+v", a)
	}
	if err := errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)); err != nil {
		t.Fatal(err)
	}
	if a, err := New(dir).Current(); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link: %+v, %v", a, err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if a, err := New(dir).Current(); err == nil || !strings.Contains(err.Error(), "no other user") {
		t.Errorf("a directory that everybody can write: %+v, %v", a, err)
	}
}

// expired returns an authority of eleven years ago.
func expired(t *testing.T) []byte {
	t.Helper()
	a, err := issuer.New(time.Now().AddDate(-11, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return append(a.PEM(), pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: key})...)
}
