package store

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ReadEntries reads the entries of a store: the last one of each key. Lines that are no entries are skipped: one that was written when
// the machine crashed, and whatever a program wrote that was taken over.
func ReadEntries(from io.Reader) map[string]*Entry {
	entries := map[string]*Entry{}
	lines := bufio.NewReaderSize(io.LimitReader(from, MaxJournal), MaxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return entries // a last line without an end was not written as a whole
		}
		e := new(Entry)
		if err != nil || json.Unmarshal(line, e) != nil {
			continue
		}
		switch {
		case e.SHA256 == "":
			delete(entries, e.Key)
		case IsContent(e.SHA256) && e.Size >= 0 && (len(entries) < MaxEntries || entries[e.Key] != nil):
			entries[e.Key] = e
		}
	}
}

func encode(e *Entry) []byte {
	b, err := json.Marshal(e)
	if err != nil {
		return nil
	}
	return append(b, '\n')
}

func lengthOf(e *Entry) int64 { return int64(len(encode(e))) }

// load reads the directory, removes what is not of use, and replaces the journal. The caller holds s.mu.
func (s *Store) load() error {
	of := map[string][]*Entry{} // by content
	for _, e := range s.readJournal() {
		of[e.SHA256] = append(of[e.SHA256], e)
	}
	var kept []found
	for {
		names, err := s.root.Readdirnames(1000)
		for _, name := range names {
			if f, ok := s.find(name, of); ok {
				kept = append(kept, f)
			} else if name != Journal {
				_ = unix.Unlinkat(s.dir, name, 0) // not a directory, which nobody can make
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	slices.SortFunc(kept, func(a, b found) int { return a.used.Compare(b.used) })
	for _, f := range kept {
		for _, e := range f.entries {
			s.add(e, f.used)
		}
	}
	return s.rewrite()
}

// A found is a content in the directory, with its entries.
type found struct {
	used    time.Time
	entries []*Entry
}

// find returns the content with a name, false if it is not one that an entry has.
func (s *Store) find(name string, of map[string][]*Entry) (found, bool) {
	if len(of[name]) == 0 {
		return found{}, false
	}
	// Not by fstatat(2), which says of every file of the host how large it is and whose: the program may not call it.
	fd, err := unix.Openat(s.dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return found{}, false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return found{}, false
	}
	list := slices.DeleteFunc(of[name], func(e *Entry) bool { return e.Size != st.Size })
	return found{time.Unix(st.Mtim.Unix()), list}, len(list) > 0
}

// readJournal returns the entries of the former process.
func (s *Store) readJournal() map[string]*Entry {
	fd, err := unix.Openat(s.dir, Journal, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), Journal)
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	return ReadEntries(f)
}

// rewrite replaces the journal by one with the present entries. The caller holds s.mu.
func (s *Store) rewrite() error {
	name := newPrefix + strings.ToLower(Journal)
	_ = unix.Unlinkat(s.dir, name, 0)
	fd, err := unix.Openat(s.dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), Journal)
	var all bytes.Buffer
	for _, e := range s.entries {
		all.Write(encode(e))
	}
	if _, err = f.Write(all.Bytes()); err == nil {
		err = unix.Renameat2(s.dir, name, s.dir, Journal, 0)
	}
	if err != nil {
		f.Close()
		return err
	}
	if s.journal != nil {
		s.journal.Close()
	}
	s.journal, s.written = f, int64(all.Len())
	return nil
}

// write appends an entry to the journal. One that cannot be written is known to this process alone. The caller holds s.mu.
func (s *Store) write(e *Entry) {
	line := encode(e)
	if s.journal == nil {
		return
	}
	if s.written+int64(len(line)) > max(2*s.lines, 1<<20) && s.rewrite() == nil {
		return // with e
	}
	if s.written+int64(len(line)) > MaxJournal {
		return
	}
	n, err := s.journal.Write(line)
	s.written += int64(n)
	if err != nil && n > 0 {
		_, _ = s.journal.WriteString("\n") // the next line begins on its own
		s.written++
	}
}
