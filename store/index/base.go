package index

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A base is an open knowledge base.
type base struct {
	id   Base
	dir  int    // descriptor of the directory; files are opened relative to it
	name string // of the database
	ino  uint64 // of the database
	lock int    // descriptor of the lock file: byte 0 is locked by users of the base, byte 1+n by the process adding source n

	write   *sql.DB       // one connection
	read    *sql.DB       // some
	writing chan struct{} // one token, of the transaction that writes

	mu     sync.Mutex
	adding map[int64]bool // sources that this process is adding; guarded by mu

	// Guarded by the mu of the Index:
	refs     int
	used     uint64
	removing bool // a background goroutine is removing sources
	gone     bool // no longer in Index.open; closed when refs is 0
}

// maxOpen is how many unused bases stay open. Each takes some MiB of memory.
const maxOpen = 4

// acquire returns a base, and opens it if necessary. If it has no file, acquire creates it if create is set, and
// otherwise returns errNone. The caller must release the base.
func (x *Index) acquire(ctx context.Context, id Base, create bool) (*base, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case x.opening <- struct{}{}:
		defer func() { <-x.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if b := x.opened(id); b != nil {
		return b, nil
	}
	b, err := x.openBase(ctx, id, create)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.open[id] = b
	b.refs++
	x.mu.Unlock()
	x.trim()
	return b, nil
}

// opened returns a base that is open and has not been purged since, or nil.
func (x *Index) opened(id Base) *base {
	x.mu.Lock()
	b := x.open[id]
	if b != nil && b.exists() {
		defer x.mu.Unlock()
		b.refs++
		x.clock++
		b.used = x.clock
		return b
	}
	x.mu.Unlock()
	if b != nil {
		x.drop(b)
	}
	return nil
}

// exists reports whether the base has not been purged since it was opened.
func (b *base) exists() bool {
	st, err := stat(b.dir, b.name)
	return err == nil && st.Ino == b.ino
}

// release returns a base that was acquired.
func (x *Index) release(b *base) {
	x.mu.Lock()
	b.refs--
	last := b.gone && b.refs == 0
	x.mu.Unlock()
	if last {
		x.closeBase(b)
	}
}

// drop makes the next acquire open the base again. The base is closed once it is released.
func (x *Index) drop(b *base) {
	x.mu.Lock()
	if b.gone {
		x.mu.Unlock()
		return
	}
	b.gone = true
	if x.open[b.id] == b {
		delete(x.open, b.id)
	}
	last := b.refs == 0
	x.mu.Unlock()
	if last {
		x.closeBase(b)
	}
}

// trim closes the least recently used of the unused bases.
func (x *Index) trim() {
	for {
		x.mu.Lock()
		var oldest *base
		idle := 0
		for _, b := range x.open {
			if b.refs > 0 {
				continue
			}
			idle++
			if oldest == nil || b.used < oldest.used {
				oldest = b
			}
		}
		x.mu.Unlock()
		if idle <= maxOpen {
			return
		}
		x.drop(oldest)
	}
}

func (x *Index) closeBase(b *base) {
	if err := b.close(); err != nil {
		x.log.Warn("closing a knowledge base failed", slog.String("error", err.Error()))
	}
}

func (b *base) close() error {
	err := b.disconnect()
	closeFD(b.dir)
	return err
}

// disconnect closes everything except the directory.
func (b *base) disconnect() error {
	var errs []error
	for _, db := range []*sql.DB{b.read, b.write} { // the writer last: closing it checkpoints the WAL
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	closeFD(b.lock)
	b.read, b.write, b.lock = nil, nil, -1
	return errors.Join(errs...)
}

// openBase opens the database of a base, and recreates it if it is damaged.
func (x *Index) openBase(ctx context.Context, id Base, create bool) (*base, error) {
	dir, err := x.openDir(create)
	if err != nil {
		return nil, err
	}
	b := &base{id: id, dir: dir, lock: -1, writing: make(chan struct{}, 1), adding: map[int64]bool{}}
	if err = lockDir(ctx, dir); err == nil {
		err = b.open(ctx, create)
		if damaged(err) {
			err = x.recreate(ctx, b, create, err)
		}
		unlockDir(dir)
	}
	if err != nil {
		_ = b.close()
		return nil, err
	}
	return b, nil
}

// recreate removes a damaged database, and creates a new one if create is set. The caller holds the lock on the directory.
func (x *Index) recreate(ctx context.Context, b *base, create bool, why error) error {
	x.log.Warn("knowledge base is damaged and will be recreated", slog.String("file", b.name), slog.String("error", why.Error()))
	_ = b.disconnect()
	if err := removeBase(b.dir, b.id); err != nil {
		return err
	}
	x.startRebuild(b.id)
	if !create {
		return errNone
	}
	return b.open(ctx, true)
}

// open opens the files of a base. The caller holds the lock on the directory, and closes b even after an error.
func (b *base) open(ctx context.Context, create bool) error {
	names, err := files(b.dir, b.id)
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
		gen = newGeneration(b.id, names)
	}
	b.name = gen + dbSuffix
	if err := b.openFiles(gen); err != nil {
		return err
	}
	alone := lockRange(b.lock, unix.F_WRLCK, 0)
	wal, err := stat(b.dir, b.name+"-wal")
	killed := alone && err == nil && wal.Size > 0
	if err := b.connect(ctx, isNew, killed); err != nil {
		return err
	}
	if !lockRange(b.lock, unix.F_RDLCK, 0) {
		return fmt.Errorf("%s%s is locked by another program", gen, lockSuffix)
	}
	return nil
}

// openFiles creates missing files, and checks existing ones.
func (b *base) openFiles(gen string) error {
	for _, suffix := range []string{lockSuffix, dbSuffix} {
		fd, err := openat(b.dir, gen+suffix, makeFlags)
		switch {
		case err == nil:
			closeFD(fd)
		case !errors.Is(err, unix.EEXIST):
			return err
		}
	}
	for _, suffix := range suffixes {
		st, err := stat(b.dir, gen+suffix)
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
	b.lock, err = openat(b.dir, gen+lockSuffix, lockFlags)
	return err
}

// connect opens the connections and checks the database.
func (b *base) connect(ctx context.Context, isNew, killed bool) (err error) {
	if b.write, err = connect(b.dir, b.name, 1, writerPragmas); err != nil {
		return err
	}
	if b.read, err = connect(b.dir, b.name, readers, readerPragmas); err != nil {
		return err
	}
	if killed {
		if err := check(ctx, b.write); err != nil {
			return err
		}
	}
	if isNew {
		return fill(ctx, b.write)
	}
	return probe(ctx, b.write)
}

// beginWriting waits until this process may write. The caller must call done.
func (b *base) beginWriting(ctx context.Context) (done func(), err error) {
	select {
	case b.writing <- struct{}{}:
		done = func() { <-b.writing }
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !b.exists() {
		done()
		return nil, ErrPurged
	}
	return done, nil
}

// transact runs f in a transaction that writes, which is committed if f returns nil, and otherwise rolled back.
func (b *base) transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	done, err := b.beginWriting(ctx)
	if err != nil {
		return err
	}
	defer done()
	tx, err := b.write.BeginTx(ctx, nil)
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

// undoTimeout bounds undoing the effects of a canceled operation.
const undoTimeout = 30 * time.Second
