// Package store keeps files of registries in one directory, for the jobs of one user.
//
// A file is kept under the SHA-256 of its content, and an entry says at which key it is found. What is kept was verified before it
// got its name, and whoever reads it verifies it again, so nothing in the directory is trusted: not after a crash of the machine,
// nor after the program was taken over. At worst, something is requested again.
//
// The directory is flat. Files are named by 64 hex digits; "entries" has a line of JSON for each entry, and the last one with a
// key applies; names that begin with "new-" are of files that are being written. Open removes everything else. The time of change
// of a file is that of its last use.
//
// The size of all files never exceeds the bound, those that are being written included: what was used least recently is removed.
// The directory must not have several stores at once.
package store

import (
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a store.
const (
	MaxEntries = 50_000
	MaxLine    = 8 << 10 // bytes of an entry, as it is written
	// MaxJournal is the size of the file of entries at most, in bytes. Entries take at most half of it.
	MaxJournal = 64 << 20
	BlockSize  = 4096 // to which the size of a file is rounded up
	// usedInterval is how long a file is used before its time of change is set again.
	usedInterval = time.Hour
)

// Names in the directory.
const (
	Journal   = "entries"
	newPrefix = "new-"
)

// ErrFull is returned for a file that does not fit into the store.
var ErrFull = errors.New("it does not fit into the store")

// An Entry says what is known of a file.
type Entry struct {
	Key     string `json:"key"`
	Kind    string `json:"kind"`           // of the registry
	Host    string `json:"host"`           // where it was requested
	Name    string `json:"name"`           // for people
	SHA256  string `json:"sha256"`         // of the content, in hexadecimal; "": the entry was removed
	Size    int64  `json:"size"`           // bytes
	Digest  string `json:"digest"`         // with which it was verified; "": with none
	Type    string `json:"type,omitempty"` // Content-Type
	Tag     string `json:"tag,omitempty"`  // ETag of the registry
	Date    string `json:"date,omitempty"` // Last-Modified
	Checked int64  `json:"checked"`        // when the registry had it, in seconds since the Unix epoch
	// Published is when the version was published, in seconds since the Unix epoch; 0: unknown.
	Published int64 `json:"published,omitempty"`
	Index     bool  `json:"index,omitempty"` // it changes
}

// A Store keeps files. Its methods may be called concurrently.
type Store struct {
	dir  int
	root *os.File // dir, which is closed when nobody has root any more
	max  int64

	mu sync.Mutex
	// The fields below are guarded by mu.
	files   map[string]*file  // by SHA-256 in hexadecimal
	entries map[string]*Entry // by key
	recent  *list.List        // of *file: the most recently used first
	size    int64             // of all files, and what is being written
	lines   int64             // bytes of the entries, as they are written
	journal *os.File          // nil: it cannot be written
	written int64             // bytes of the journal
}

// A file is content that is kept.
type file struct {
	name string
	size int64
	keys map[string]bool // of its entries
	used time.Time
	at   *list.Element
}

// Open opens the store in a directory, which it takes over, with a bound in bytes.
func Open(dir *os.File, max int64) (*Store, error) {
	s := &Store{
		dir: int(dir.Fd()), root: dir, max: max, files: map[string]*file{}, entries: map[string]*Entry{}, recent: list.New(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("store of packages: %w", err)
	}
	return s, s.reserve(0)
}

// Close closes the file of entries. What is kept later is known to this process alone.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal == nil {
		return nil
	}
	err := s.journal.Close()
	s.journal = nil
	return err
}

// IsContent reports whether a name in the directory is that of a file that is kept.
func IsContent(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == sha256.Size && hex.EncodeToString(b) == name
}

// Get returns the entry with a key and its content. The caller closes the file, and must verify the content, see Check.
func (s *Store) Get(key string) (Entry, *os.File, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil {
		return Entry{}, nil, false
	}
	fd, err := unix.Openat(s.dir, e.SHA256, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		s.drop(s.files[e.SHA256]) // somebody removed it, or a former process has it for itself
		return Entry{}, nil, false
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != e.Size {
		unix.Close(fd)
		s.drop(s.files[e.SHA256])
		return Entry{}, nil, false
	}
	s.touch(s.files[e.SHA256], fd)
	return *e, os.NewFile(uintptr(fd), e.SHA256), true
}

// touch makes a file the most recently used one. The caller holds s.mu.
func (s *Store) touch(f *file, fd int) {
	s.recent.MoveToFront(f.at)
	now := time.Now()
	if now.Sub(f.used) < usedInterval {
		return
	}
	f.used = now
	_ = touchNow(fd) // for the next process; it orders files alone
}

// touchNow sets the times of an open file to the present one, as whoever may write to it can.
func touchNow(fd int) error {
	if _, _, errno := syscall.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// Drop removes a content, with all of its entries: it is not what it was.
func (s *Store) Drop(sha256 string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[sha256]; f != nil {
		s.drop(f)
	}
}

// drop removes a file. The caller holds s.mu.
func (s *Store) drop(f *file) {
	for key := range f.keys {
		s.lines -= lengthOf(s.entries[key])
		delete(s.entries, key)
		s.write(&Entry{Key: key})
	}
	s.forget(f)
}

// forget removes a file without entries. The caller holds s.mu.
func (s *Store) forget(f *file) {
	_ = unix.Unlinkat(s.dir, f.name, 0) // Open tries again
	delete(s.files, f.name)
	s.recent.Remove(f.at)
	s.size -= rounded(f.size)
}

// Renew says that the registry still has what is kept at a key.
func (s *Store) Renew(key string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e != nil {
		s.lines -= lengthOf(e)
		e.Checked = now.Unix()
		s.lines += lengthOf(e)
		s.write(e)
	}
}

func rounded(n int64) int64 { return (n + BlockSize - 1) / BlockSize * BlockSize }

// reserve makes room for n more bytes. The caller holds s.mu.
func (s *Store) reserve(n int64) error {
	if n > s.max {
		return ErrFull
	}
	for s.size+n > s.max || len(s.entries) > MaxEntries || s.lines > MaxJournal/2 {
		last := s.recent.Back()
		if last == nil {
			return ErrFull // the rest is being written
		}
		s.drop(last.Value.(*file))
	}
	s.size += n
	return nil
}

// add makes an entry, whose file exists. The caller holds s.mu.
func (s *Store) add(e *Entry, used time.Time) {
	f := s.files[e.SHA256]
	if f == nil {
		f = &file{name: e.SHA256, size: e.Size, keys: map[string]bool{}, used: used}
		f.at = s.recent.PushFront(f)
		s.files[e.SHA256] = f
		s.size += rounded(e.Size)
	}
	if old := s.entries[e.Key]; old != nil {
		s.lines -= lengthOf(old)
		before := s.files[old.SHA256]
		delete(before.keys, e.Key)
		if len(before.keys) == 0 && before != f {
			s.forget(before)
		}
	}
	f.keys[e.Key] = true
	s.entries[e.Key] = e
	s.lines += lengthOf(e)
}

// A Writer writes a file that is not in the store yet. It is not for concurrent use.
type Writer struct {
	store    *Store
	file     *os.File // nil if err is set
	name     string
	size     int64
	reserved int64
	err      error // the first one
}

// Create begins a file. The caller must call Commit or Abort.
func (s *Store) Create() *Writer {
	w := &Writer{store: s, name: newPrefix + rand.Text()}
	fd, err := unix.Openat(s.dir, w.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o666)
	if w.err = err; err == nil {
		w.file = os.NewFile(uintptr(fd), w.name)
	}
	return w
}

// step is how much a Writer reserves at once, in bytes.
const step = 1 << 20

// Write implements io.Writer. It never fails: Commit has its error, and whoever is to get the content, too, gets it in any case.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return len(p), nil
	}
	if more := w.size + int64(len(p)) - w.reserved; more > 0 {
		more = max(rounded(more), min(step, w.store.max/16))
		w.store.mu.Lock()
		w.err = w.store.reserve(more)
		w.store.mu.Unlock()
		if w.err != nil {
			w.Abort()
			return len(p), nil
		}
		w.reserved += more
	}
	n, err := w.file.Write(p)
	w.size += int64(n)
	if w.err = err; err != nil {
		w.Abort()
	}
	return len(p), nil
}

// Commit keeps the file. The caller has verified it, and e has its SHA-256 and everything else but its size.
func (w *Writer) Commit(e Entry) error {
	s := w.store
	defer w.Abort() // of what is left: it runs after s.mu is unlocked
	if w.err != nil {
		return fmt.Errorf("store of packages: %w", w.err)
	}
	e.Size = w.size
	if n := lengthOf(&e); n > MaxLine || !IsContent(e.SHA256) {
		return fmt.Errorf("store of packages: an entry of %d bytes for the file %.100q", n, e.SHA256)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[e.SHA256] == nil {
		if err := unix.Renameat2(s.dir, w.name, s.dir, e.SHA256, 0); err != nil {
			return fmt.Errorf("store of packages: %w", err)
		}
	}
	s.size -= w.reserved
	w.reserved = 0
	s.add(&e, time.Now())
	s.write(&e)
	_ = s.reserve(0)
	return nil
}

// Abort removes a file that was not kept.
func (w *Writer) Abort() {
	if w.file == nil {
		return
	}
	w.file.Close()
	w.file = nil
	w.store.mu.Lock()
	w.store.size -= w.reserved
	w.reserved = 0
	w.store.mu.Unlock()
	_ = unix.Unlinkat(w.store.dir, w.name, 0) // after Commit, it is not there; Open removes it otherwise
}
