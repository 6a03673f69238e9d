package packages

import (
	"crypto/sha256"
	"sync"
)

// Bounds of what is known. A fact takes about 200 bytes.
const (
	maxKnown     = 200_000
	maxDownloads = 64
	maxRead      = 1024
)

// facts are what indexes said about files, for each scope, see scopeOf: the host of an index can be another one than that of the files,
// and only the operator says, by a rule, which hosts belong together.
type facts struct {
	mu sync.Mutex
	// The fields below are guarded by mu.
	files     map[[sha256.Size]byte]Fact   // without the address
	downloads map[[sha256.Size]byte]string // where registries of cargo have their files, by config.json
	read      map[[sha256.Size]byte]bool   // indexes of packages of Debian that were read
}

func newFacts() *facts {
	return &facts{
		files: map[[sha256.Size]byte]Fact{}, downloads: map[[sha256.Size]byte]string{}, read: map[[sha256.Size]byte]bool{},
	}
}

func keyOf(scope, address string) [sha256.Size]byte {
	return sha256.Sum256([]byte(scope + "\n" + address))
}

// get returns what is known of the file at an address.
func (f *facts) get(scope, address string) (Fact, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fact, ok := f.files[keyOf(scope, address)]
	return fact, ok
}

// add adds what an index says. Of two indexes that have a file, the one that was read last applies.
func (f *facts) add(scope string, list ...Fact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fact := range list {
		key := keyOf(scope, fact.Address)
		if fact.Address == "" {
			continue
		}
		if old := f.files[key]; fact.Digest == (Digest{}) {
			fact.Digest = old.Digest // one index has the digest, another one the date
		} else if fact.Published.IsZero() {
			fact.Published = old.Published
		}
		fact.Address = ""
		put(f.files, maxKnown, key, fact)
	}
}

// put makes an entry, in place of any one if there are too many.
func put[V any](m map[[sha256.Size]byte]V, most int, key [sha256.Size]byte, value V) {
	if _, there := m[key]; !there && len(m) >= most {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[key] = value
}

func (f *facts) download(scope, config string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dl, ok := f.downloads[keyOf(scope, config)]
	return dl, ok
}

func (f *facts) setDownload(scope, config, dl string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	put(f.downloads, maxDownloads, keyOf(scope, config), dl)
}

// isNew reports whether an index of packages was not read yet. The next call says that it was.
func (f *facts) isNew(scope, address, sha256 string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := keyOf(scope, address+"\n"+sha256)
	if f.read[key] {
		return false
	}
	put(f.read, maxRead, key, true)
	return true
}
