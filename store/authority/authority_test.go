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

// testUser is the user whose authority tests have.
const testUser = 1000

func mustCurrent(t *testing.T, s *Store) *Authority {
	t.Helper()
	a, err := s.Current(testUser)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestStore: the first need makes the authority, which then stays. A rotation applies with the next reload, and jails that trust the
// former one can still have it.
func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "authority")
	if list, err := Certificates(dir); list != nil || err != nil {
		t.Errorf("%v, %v, want none", list, err)
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
		if info, err := os.Stat(filepath.Join(dir, "1000", name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v, %v, want mode %o", name, info, err, want)
		}
	}
	if n, err := Rotate(dir); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got := mustCurrent(t, s); got != first {
		t.Error("a rotation applies without a reload")
	}
	s.Reload()
	second := mustCurrent(t, s)
	if bytes.Equal(second.PEM, first.PEM) || s.Of(testUser, first.PEM) != first || s.Of(testUser, second.PEM) != second || s.Of(testUser, []byte("x")) != nil {
		t.Error("after a rotation, the store does not have both authorities")
	}
	if got, err := Certificates(dir); err != nil || len(got) != 1 || got[0].User != testUser || !bytes.Equal(got[0].PEM, second.PEM) {
		t.Errorf("%v, %v", got, err)
	}
	s.Reload()
	if got := mustCurrent(t, s); !bytes.Equal(got.PEM, second.PEM) || s.Of(testUser, second.PEM) != second {
		t.Error("a reload without a rotation has another authority")
	}
	for range 2 * maxFormer {
		if _, err := Rotate(dir); err != nil {
			t.Fatal(err)
		}
		s.Reload()
		mustCurrent(t, s)
	}
	if len(s.users[testUser].known) != maxFormer || s.Of(testUser, first.PEM) != nil {
		t.Errorf("%d authorities are kept", len(s.users[testUser].known))
	}
}

// TestUsers: each user has an authority of its own, and none gets that of another by its certificate.
func TestUsers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "authority")
	if n, err := Rotate(dir); n != 0 || err != nil {
		t.Errorf("%d authorities of nobody, %v", n, err)
	}
	s := New(dir)
	mine := mustCurrent(t, s)
	theirs, err := s.Current(0)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(mine.PEM, theirs.PEM) || bytes.Equal(mine.Control.Key, theirs.Control.Key) {
		t.Error("two users have one authority")
	}
	if s.Of(testUser, theirs.PEM) != nil || s.Of(0, mine.PEM) != nil || s.Of(1, mine.PEM) != nil || s.Of(0, theirs.PEM) != theirs {
		t.Error("a user has the authority of another")
	}
	stray := filepath.Join(dir, "stray")
	if err := os.Mkdir(stray, 0o700); err != nil {
		t.Fatal(err)
	}
	if list, err := Certificates(dir); err != nil || len(list) != 2 || list[0].User != 0 || list[1].User != testUser {
		t.Errorf("%v, %v", list, err)
	}
	if n, err := Rotate(dir); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if list, err := Certificates(dir); err != nil || bytes.Equal(list[0].PEM, theirs.PEM) || bytes.Equal(list[1].PEM, mine.PEM) {
		t.Errorf("not all were replaced: %v", err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v: users cannot read certificates", info, err)
	}
}

// TestConcurrently: supervisors that start at once have one authority.
func TestConcurrently(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "authority")
	var all [8]*Authority
	var work sync.WaitGroup
	for n := range all {
		work.Go(func() { all[n], _ = New(dir).Current(testUser) })
	}
	work.Wait()
	for _, a := range all {
		if a == nil || !bytes.Equal(a.PEM, all[0].PEM) {
			t.Fatalf("%v", all)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "1000", ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDamaged: files that are no authority are not used, and one that is about to expire is replaced.
func TestDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "authority")
	mustCurrent(t, New(dir))
	path := filepath.Join(dir, "1000", secretName)
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
		if a, err := New(dir).Current(testUser); err == nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if err := errors.Join(os.WriteFile(path, whole, 0o600), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	if a, err := New(dir).Current(testUser); err == nil || !strings.Contains(err.Error(), "mode 0640") {
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
	if a, err := New(dir).Current(testUser); err == nil {
		t.Errorf("a pipe: %+v", a)
	}
	if err := errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)); err != nil {
		t.Fatal(err)
	}
	if a, err := New(dir).Current(testUser); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link: %+v, %v", a, err)
	}
	if err := os.Chmod(filepath.Join(dir, "1000"), 0o777); err != nil {
		t.Fatal(err)
	}
	if a, err := New(dir).Current(testUser); err == nil || !strings.Contains(err.Error(), "no other user") {
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
