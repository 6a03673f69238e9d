// Package authority keeps the authorities of an installation, one for each user whose jobs need one: the certificate that the jails of the
// user's jobs trust, and the key with which the user's corral-egress ends their TLS connections where rules are about requests.
//
//	DIR/UID/authority        certificate and key, readable by root alone
//	DIR/UID/certificate.pem  the certificate, for people and corral doctor
//
// DIR is below the supervisor's state directory, so that root alone can name a file in it.
//
// Each user has a root of its own, because the process of the user has the key. With one root for all, also with an intermediate
// certificate for each user, what a process signs that was taken over would be valid in the jails of all users: certificates of names
// cannot be limited to a jail. As it is, its certificates are trusted only by jobs that it serves anyway.
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
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	issuer "corral/egress/authority"
	"corral/egress/control"
	"corral/internal/fault"
	"corral/store/at"
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

// A Store has the authorities of one directory. Its methods may be called concurrently.
type Store struct {
	dir string

	mu    fault.Mutex
	users map[uint32]*user // guarded by mu
}

// A user has the authorities of one user. Its fields are guarded by Store.mu.
type user struct {
	current *Authority   // nil until it is needed, and after Reload
	known   []*Authority // those that Current has returned, the last one at the end
}

// New returns the store with its files in dir, which need not exist. It opens nothing.
func New(dir string) *Store { return &Store{dir: dir, users: map[uint32]*user{}} }

// Current returns the authority for jails of a user that are made now. It makes one if there is none, or the one there is expires soon.
// The caller must be root.
func (s *Store) Current(uid uint32) (*Authority, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.users[uid]
	if u != nil && u.current != nil {
		return u.current, nil
	}
	a, err := load(s.dir, uid)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errExpired) {
		if err = write(s.dir, uid, errors.Is(err, errExpired)); err == nil {
			a, err = load(s.dir, uid)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("authority for rules about requests: %w", err)
	}
	if u == nil {
		u = new(user)
		s.users[uid] = u
	}
	u.current = a
	if u.of(a.PEM) == nil {
		u.known = append(u.known[max(0, len(u.known)+1-maxFormer):], a)
	}
	return a, nil
}

// Of returns the authority of a user with a certificate that Current has returned, nil if it is not known any more.
func (s *Store) Of(uid uint32, certificate []byte) *Authority {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.users[uid]; u != nil {
		return u.of(certificate)
	}
	return nil
}

func (u *user) of(certificate []byte) *Authority {
	for _, a := range u.known {
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
	for _, u := range s.users {
		u.current = nil
	}
}

// Rotate replaces all authorities of a directory by new ones, and returns how many there are. Supervisors take them with their next
// reload.
func Rotate(dir string) (int, error) {
	users, err := usersOf(dir)
	for n, uid := range users {
		if err := write(dir, uid, true); err != nil {
			return n, err
		}
	}
	return len(users), err
}

// usersOf returns the users who have an authority, in order; none if the directory does not exist.
func usersOf(dir string) ([]uint32, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var users []uint32
	for _, e := range entries {
		if uid, err := strconv.ParseUint(e.Name(), 10, 32); err == nil && e.IsDir() {
			users = append(users, uint32(uid))
		}
	}
	slices.Sort(users)
	return users, err
}

// A Certificate is that of the authority of a user, in PEM.
type Certificate struct {
	User uint32
	PEM  []byte
}

// Certificates returns the certificates of all authorities of a directory. Users other than root can read them.
func Certificates(dir string) ([]Certificate, error) {
	users, err := usersOf(dir)
	if err != nil {
		return nil, err
	}
	var all []Certificate
	for _, uid := range users {
		b, err := os.ReadFile(filepath.Join(directoryOf(dir, uid), certificateName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is being made
			return nil, err
		}
		if err == nil {
			all = append(all, Certificate{uid, b})
		}
	}
	return all, nil
}

func directoryOf(dir string, uid uint32) string {
	return filepath.Join(dir, strconv.FormatUint(uint64(uid), 10))
}

var errExpired = errors.New("it expires soon")

// load reads the authority of a user, and repairs the copy of its certificate.
func load(dir string, uid uint32) (*Authority, error) {
	d, err := openDir(directoryOf(dir, uid), false)
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
		return nil, fmt.Errorf("%s: %w\nhint: make another: corral network authority rotate", filepath.Join(d.Name(), secretName), err)
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
	if a.Expired(time.Now()) {
		return nil, errExpired
	}
	return &Authority{PEM: a.PEM(), Control: m}, nil
}

// write makes a new authority for a user. If another process makes one at the same time and over is not set, that one stays.
func write(dir string, uid uint32, over bool) error {
	a, err := issuer.New(time.Now())
	if err != nil {
		return err
	}
	certificate, key, err := a.Encode()
	if err != nil {
		return err
	}
	top, err := openDir(dir, true)
	if err != nil {
		return err
	}
	top.Close()
	d, err := openDir(directoryOf(dir, uid), true)
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
	f, st, err := at.Regular(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
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
