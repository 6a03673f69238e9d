// Package authority keeps the authority of an installation: the certificate that jails trust, and the key with which corral-egress ends
// TLS connections of jobs where rules are about requests.
//
//	DIR/authority        certificate and key, readable by root alone
//	DIR/certificate.pem  the certificate, for people and corral doctor
//
// DIR is below the supervisor's state directory, so that root alone can name a file in it.
package authority

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	issuer "corral/egress/authority"
	"corral/egress/control"
)

const (
	secretName      = "authority"
	certificateName = "certificate.pem"
	// maxFile is how large a file of the directory can be, in bytes.
	maxFile = 16 << 10
	// maxFormer is how many authorities of before a rotation are remembered for jails that trust them.
	maxFormer = 16

	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
)

// An Authority is one that jails trust. It must not be changed.
type Authority struct {
	PEM     []byte // the certificate, for jails
	Control control.Authority
}

// A Store has the authority of one directory. Its methods may be called concurrently.
type Store struct {
	dir string

	mu      sync.Mutex
	current *Authority   // guarded by mu: nil until it is needed, and after Reload
	known   []*Authority // guarded by mu: those that Current has returned, the last one at the end
}

// New returns the store with its files in dir, which need not exist. It opens nothing.
func New(dir string) *Store { return &Store{dir: dir} }

// Current returns the authority for jails that are made now. It makes one if there is none, or the one there is expires soon. The
// caller must be root.
func (s *Store) Current() (*Authority, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return s.current, nil
	}
	a, err := load(s.dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errExpired) {
		if err = write(s.dir, errors.Is(err, errExpired)); err == nil {
			a, err = load(s.dir)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("authority for rules about requests: %w", err)
	}
	s.current = a
	if s.of(a.PEM) == nil {
		s.known = append(s.known[max(0, len(s.known)+1-maxFormer):], a)
	}
	return a, nil
}

// Of returns the authority with a certificate that Current has returned, nil if it is not known any more.
func (s *Store) Of(certificate []byte) *Authority {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(certificate)
}

func (s *Store) of(certificate []byte) *Authority {
	for _, a := range s.known {
		if bytes.Equal(a.PEM, certificate) {
			return a
		}
	}
	return nil
}

// Reload has the next call of Current read the files again.
func (s *Store) Reload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
}

// Rotate replaces the authority of a directory by a new one, or makes it. Supervisors take it with their next reload.
func Rotate(dir string) error { return write(dir, true) }

// ErrNone is returned by Certificate if no authority was needed yet.
var ErrNone = fmt.Errorf("there is no authority yet: %w", fs.ErrNotExist)

// Certificate returns the certificate (PEM) of the authority of a directory. Users other than root can read it.
func Certificate(dir string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(dir, certificateName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	return b, err
}

var errExpired = errors.New("it expires soon")

// load reads the authority, and repairs the copy of its certificate.
func load(dir string) (*Authority, error) {
	d, err := openDir(dir, false)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	b, err := readFile(d, secretName, 0o077)
	if err != nil {
		return nil, err
	}
	a, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w\nhint: make another: corral network authority rotate", filepath.Join(dir, secretName), err)
	}
	public, err := readFile(d, certificateName, 0)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Equal(public, a.PEM) {
		err = replace(d, certificateName, a.PEM, 0o644)
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

func parse(b []byte) (*Authority, error) {
	var m control.Authority
	for len(b) > 0 {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		switch block.Type {
		case certificateBlock:
			m.Certificate = block.Bytes
		case keyBlock:
			m.Key = block.Bytes
		}
	}
	a, err := issuer.Parse(m.Certificate, m.Key)
	if err != nil {
		return nil, err
	}
	if a.Expired() {
		return nil, errExpired
	}
	return &Authority{PEM: a.PEM(), Control: m}, nil
}

// write makes a new authority. If another process makes one at the same time and over is not set, that one stays.
func write(dir string, over bool) error {
	a, err := issuer.New(time.Now())
	if err != nil {
		return err
	}
	certificate, key, err := a.Encode()
	if err != nil {
		return err
	}
	d, err := openDir(dir, true)
	if err != nil {
		return err
	}
	defer d.Close()
	b := append(a.PEM(), pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: key})...)
	if _, err := parse(b); err != nil {
		return err
	}
	if !over {
		if err := add(d, secretName, b, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	}
	if err := replace(d, secretName, b, 0o600); err != nil {
		return err
	}
	return replace(d, certificateName, pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: certificate}), 0o644)
}

// openDir opens the directory, and makes it if create is set. Nobody but root may be able to write to it.
func openDir(dir string, create bool) (*os.File, error) {
	if create {
		if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
			return nil, err
		}
		err := unix.Mkdir(dir, 0o755)
		if err == nil {
			err = unix.Chmod(dir, 0o755) // the umask can be stricter
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, &os.PathError{Op: "mkdir", Path: dir, Err: err}
		}
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	d := os.NewFile(uintptr(fd), dir)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0) {
		err = fmt.Errorf("%s must be a directory of root that no other user can write", dir)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// readFile reads a file of the caller's. None of the permissions in forbidden may be given to others.
func readFile(dir *os.File, name string, forbidden uint32) ([]byte, error) {
	path := filepath.Join(dir.Name(), name)
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "fstat", Path: path, Err: err}
	}
	if st.Uid != uint32(os.Geteuid()) || st.Mode&forbidden != 0 {
		return nil, fmt.Errorf("%s belongs to user %d and has mode %04o: other users than root have access\nhint: make another: corral network authority rotate",
			path, st.Uid, st.Mode&0o7777)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return b, err
}

// replace writes a file, in place of one that may be there.
func replace(dir *os.File, name string, content []byte, mode uint32) error {
	return publish(dir, name, content, mode, func(from string) error {
		return unix.Renameat(int(dir.Fd()), from, int(dir.Fd()), name)
	})
}

// add writes a file, unless there is one: then the error is fs.ErrExist.
func add(dir *os.File, name string, content []byte, mode uint32) error {
	return publish(dir, name, content, mode, func(from string) error {
		return unix.Renameat2(int(dir.Fd()), from, int(dir.Fd()), name, unix.RENAME_NOREPLACE)
	})
}

// publish writes a file under another name, and moves it with rename. So nobody reads half of it.
func publish(dir *os.File, name string, content []byte, mode uint32, rename func(from string) error) error {
	f, err := os.CreateTemp(dir.Name(), ".new-*") // a process that was killed leaves it: a few bytes, and never read
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(fs.FileMode(mode)), f.Sync())
	if err == nil {
		err = rename(filepath.Base(f.Name()))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", filepath.Join(dir.Name(), name), err), os.Remove(f.Name()))
	}
	return dir.Sync()
}
