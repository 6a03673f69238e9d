package commands

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	kept "corral/egress/store"
	"corral/store/at"
	"corral/store/volume"
)

// A packageStore is the directory of one user's packages, a volume that root opened. Another process may change it meanwhile.
type packageStore struct {
	user    uint32
	dir     *os.File
	entries *os.File // nil: there are none
	files   []keptFile
	rest    []keptFile // what else is in the directory: what is being written, or what a process left that was taken over
}

// A keptFile is a content that is kept.
type keptFile struct {
	name string
	size int64
	used time.Time
}

// maxStoreFiles bounds what is listed of a directory: names that a process wrote that could have been taken over.
const maxStoreFiles = 4 * kept.MaxEntries

// maxStoreSize bounds what is counted of a file, which can have any size, and holes: sums of maxFiles do not overflow.
const maxStoreSize = 1 << 43

// An storeOpener opens the directory of a store that has a name in a directory of root's: volume.OpenPresent.
type storeOpener func(dir *os.File, name string) (*os.File, error)

// openStores opens the stores of all users in a directory, in the order of their ids. It follows no link below that.
func openStores(path string, open storeOpener) ([]packageStore, error) {
	top, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer top.Close()
	names, err := top.Readdirnames(-1) // that root gave
	if err != nil {
		return nil, err
	}
	var stores []packageStore
	for _, name := range names {
		id, _, sized := strings.Cut(name, ".")
		user, err := strconv.ParseUint(id, 10, 32)
		if err != nil || !sized {
			continue
		}
		dir, err := open(top, name)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, volume.ErrDamaged) {
			continue // it was removed meanwhile, or is made again, empty, for the next job
		}
		var s packageStore
		if err == nil {
			s, err = openStore(dir, uint32(user))
		}
		if err != nil {
			return nil, fmt.Errorf("what is kept for user %d: %w", user, err)
		}
		stores = append(stores, s)
	}
	slices.SortFunc(stores, func(a, b packageStore) int { return cmp.Compare(a.user, b.user) })
	return stores, nil
}

// openStore looks at what is in the directory of a user, which it takes over.
func openStore(dir *os.File, user uint32) (packageStore, error) {
	s := packageStore{user: user, dir: dir}
	for len(s.files)+len(s.rest) < maxStoreFiles {
		names, err := s.dir.Readdirnames(1000)
		for _, name := range names {
			s.add(name)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return s, err
		}
	}
	if entries, _, err := at.Regular(dir, kept.Journal); err == nil {
		s.entries = entries
	}
	return s, nil
}

// add adds what is at a name. Nobody but root can make a directory there.
func (s *packageStore) add(name string) {
	var st unix.Stat_t
	if unix.Fstatat(int(s.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return // it is gone
	}
	kind := st.Mode & unix.S_IFMT
	f := keptFile{name: name, used: time.Unix(st.Mtim.Unix())}
	if kind == unix.S_IFREG {
		f.size = min(st.Size, maxStoreSize)
	}
	switch {
	case kind == unix.S_IFREG && kept.IsContent(name):
		s.files = append(s.files, f)
	case kind != unix.S_IFDIR && (name != kept.Journal || kind != unix.S_IFREG || f.size > kept.MaxJournal):
		s.rest = append(s.rest, f)
	}
}

// size returns the bytes of all files that are kept.
func (s packageStore) size() int64 { return sizeOf(s.files) }

// sizeOf returns the bytes of files.
func sizeOf(files []keptFile) (total int64) {
	for _, f := range files {
		total += f.size
	}
	return total
}

// sorted returns the files, what was used last first.
func (s packageStore) sorted() []keptFile {
	return slices.SortedFunc(slices.Values(s.files), func(a, b keptFile) int { return b.used.Compare(a.used) })
}

// remove removes a content. It succeeds for one that is gone meanwhile.
func (s packageStore) remove(name string) error {
	if err := unix.Unlinkat(int(s.dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %q of user %d: %w", name, s.user, err)
	}
	return nil
}

// rows returns the entries whose files are there, what was used last first. It must not run as root.
func (s packageStore) rows() []cacheRow {
	if s.entries == nil {
		return nil
	}
	of := map[string]keptFile{}
	for _, f := range s.files {
		of[f.name] = f
	}
	var rows []cacheRow
	for _, e := range kept.ReadEntries(s.entries) {
		f, there := of[e.SHA256]
		if !there {
			continue
		}
		rows = append(rows, cacheRow{s.user, e.Kind, e.Host, e.Name, f.size, e.SHA256, e.Digest, time.Unix(e.Checked, 0).UTC(), f.used.UTC()})
	}
	slices.SortFunc(rows, func(a, b cacheRow) int {
		return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Name, b.Name), cmp.Compare(a.SHA256, b.SHA256))
	})
	return rows
}
