package index

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sys/unix"

	"corral/store/at"
)

// A database is an open knowledge base.
type database struct {
	ID    Base
	Write *sql.DB // one connection
	Read  *sql.DB // some

	dir     int           // descriptor of the directory; files are opened relative to it
	name    string        // of the database
	ino     uint64        // of the database
	lock    int           // descriptor of the lock file: byte 0 is locked by users of the base, byte 1+n by the process adding source n
	writing chan struct{} // one token, of the transaction that writes

	mu     sync.Mutex
	adding map[int64]bool // sources that this process is adding; guarded by mu
}

// openDatabase opens a base in a state directory, which must stay open meanwhile. Without create, the error is errNone if the base
// has no file. A damaged base is removed and, with create, made again; recreated reports that, whatever the error.
func openDatabase(ctx context.Context, state int, id Base, create bool, log *slog.Logger) (b *database, recreated bool, err error) {
	dir, err := openDir(state, create)
	if err != nil {
		return nil, false, err
	}
	b = &database{ID: id, dir: dir, lock: -1, writing: make(chan struct{}, 1), adding: map[int64]bool{}}
	if err = lockDir(ctx, dir); err == nil {
		err = b.open(ctx, create)
		if isDamaged(err) {
			recreated, err = b.recreate(ctx, create, err, log)
		}
		unlockDir(dir)
	}
	if err != nil {
		_ = b.Close()
		return nil, recreated, err
	}
	return b, recreated, nil
}

// recreate removes a damaged database, and creates a new one if create is set. The caller holds the lock on the directory.
func (b *database) recreate(ctx context.Context, create bool, why error, log *slog.Logger) (removed bool, err error) {
	log.Warn("knowledge base is damaged and will be recreated", slog.String("file", b.name), slog.String("error", why.Error()))
	_ = b.disconnect()
	if err := removeBase(b.dir, b.ID); err != nil {
		return false, err
	}
	if !create {
		return true, errNone
	}
	return true, b.open(ctx, true)
}

// Exists reports whether the base has not been purged since it was opened.
func (b *database) Exists() bool {
	st, err := at.Stat(b.dir, b.name)
	return err == nil && st.Ino == b.ino
}

// Close closes the base. Byte locks on its sources are released.
func (b *database) Close() error {
	err := b.disconnect()
	closeFD(b.dir)
	return err
}

// disconnect closes everything except the directory.
func (b *database) disconnect() error {
	var errs []error
	for _, db := range []*sql.DB{b.Read, b.Write} { // the writer last: closing it checkpoints the WAL
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	closeFD(b.lock)
	b.Read, b.Write, b.lock = nil, nil, -1
	return errors.Join(errs...)
}

// open opens the files of a base. The caller holds the lock on the directory, and closes b even after an error.
func (b *database) open(ctx context.Context, create bool) error {
	names, err := files(b.dir, b.ID)
	if err != nil {
		return err
	}
	gen := generation(names)
	if err := removeOther(b.dir, names, gen); err != nil {
		return err
	}
	isNew := gen == ""
	if isNew {
		if !create {
			return errNone
		}
		gen = newGeneration(b.ID, names)
	}
	b.name = gen + dbSuffix
	if err := b.openFiles(gen); err != nil {
		return err
	}
	if err := b.connect(ctx, isNew); err != nil {
		return err
	}
	if !lockRange(b.lock, unix.F_RDLCK, 0) {
		return fmt.Errorf("%s%s is locked by another program", gen, lockSuffix)
	}
	return nil
}

// openFiles creates missing files, and checks existing ones.
func (b *database) openFiles(gen string) error {
	for _, suffix := range []string{lockSuffix, dbSuffix} {
		fd, err := at.Open(b.dir, gen+suffix, makeFlags)
		switch {
		case err == nil:
			closeFD(fd)
		case !errors.Is(err, unix.EEXIST):
			return err
		}
	}
	for _, suffix := range suffixes {
		st, err := at.Stat(b.dir, gen+suffix)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			err = private(gen+suffix, &st, unix.S_IFREG)
		}
		if err != nil {
			return err
		}
		if suffix == dbSuffix {
			b.ino = st.Ino
		}
	}
	// The database itself is not opened here once SQLite may have it open: closing it would release SQLite's locks
	// (fcntl_locking(2)).
	var err error
	b.lock, err = at.Open(b.dir, gen+lockSuffix, lockFlags)
	return err
}

// connect opens the connections and checks the database.
func (b *database) connect(ctx context.Context, isNew bool) (err error) {
	if b.Write, err = connect(b.dir, b.name, 1, writerPragmas); err != nil {
		return err
	}
	if b.Read, err = connect(b.dir, b.name, readers, readerPragmas); err != nil {
		return err
	}
	if isNew {
		return fill(ctx, b.Write)
	}
	return probe(ctx, b.Write)
}

// BeginWriting waits until this process may write. The caller must call done.
func (b *database) BeginWriting(ctx context.Context) (done func(), err error) {
	select {
	case b.writing <- struct{}{}:
		done = func() { <-b.writing }
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !b.Exists() {
		done()
		return nil, ErrPurged
	}
	return done, nil
}

// Transact runs f in a transaction that writes, which is committed if f returns nil, and otherwise rolled back.
func (b *database) Transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	done, err := b.BeginWriting(ctx)
	if err != nil {
		return err
	}
	defer done()
	tx, err := b.Write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err = f(tx); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		_ = tx.Rollback()
		return cmp.Or(ctx.Err(), err) // prefer the context's error to the one of an interrupted statement
	}
	return nil
}

// LockSource marks a source as being added, until UnlockSource or the end of this process. It returns false if another
// process adds a source with that id.
func (b *database) LockSource(id int64) bool {
	b.mu.Lock()
	b.adding[id] = true
	b.mu.Unlock()
	return lockRange(b.lock, unix.F_WRLCK, 1+id)
}

// UnlockSource reverses LockSource, even if that returned false.
func (b *database) UnlockSource(id int64) {
	b.mu.Lock()
	delete(b.adding, id)
	b.mu.Unlock()
	lockRange(b.lock, unix.F_UNLCK, 1+id)
}

// IfOrphan calls f if no process is adding the source.
func (b *database) IfOrphan(id int64, f func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.adding[id] || !lockRange(b.lock, unix.F_WRLCK, 1+id) {
		return nil
	}
	defer lockRange(b.lock, unix.F_UNLCK, 1+id)
	return f()
}

// Disk returns the total size of the files of a base in bytes.
func (b *database) Disk() int64 {
	var n int64
	names, err := files(b.dir, b.ID)
	if err != nil {
		return 0
	}
	for _, name := range names {
		if st, err := at.Stat(b.dir, name); err == nil {
			n += st.Size
		}
	}
	return n
}
