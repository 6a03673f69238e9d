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

// A base is an open Base.
type base struct {
	id   Base
	dir  int    // descriptor of the directory: files are opened through it
	name string // of the database
	ino  uint64 // of the database
	lock int    // of the lock file; byte 0 is locked by each that has the base open, byte 1+n by who adds source n

	write   *sql.DB       // one connection
	read    *sql.DB       // some
	writing chan struct{} // one for the transaction that writes now

	mu     sync.Mutex
	adding map[int64]bool // sources that this process adds; guarded by mu

	// Guarded by the mu of the Index:
	refs     int
	used     uint64
	removing bool // in the background, what is going
	gone     bool // not of Index.open any more: closed when refs is 0
}

// maxOpen is how many bases stay open that nobody uses now. Each has some MiB of memory.
const maxOpen = 4

// acquire opens a base, if it is not open. If it has no file, and none is to be made, that is errNone.
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

// opened returns a base that is open and still what others find under its name.
func (x *Index) opened(id Base) *base {
	x.mu.Lock()
	b := x.open[id]
	if b != nil && b.there() {
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

// there says whether the base was not purged since it was opened.
func (b *base) there() bool {
	st, err := look(b.dir, b.name)
	return err == nil && st.Ino == b.ino
}

// release gives a base back that was acquired.
func (x *Index) release(b *base) {
	x.mu.Lock()
	b.refs--
	last := b.gone && b.refs == 0
	x.mu.Unlock()
	if last {
		x.closeBase(b)
	}
}

// drop has a base be opened again by whoever wants it next.
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

// trim closes what has not been used for longest.
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
		x.log.Warn("knowledge base", slog.String("error", err.Error()))
	}
}

func (b *base) close() error {
	err := b.disconnect()
	closeFD(b.dir)
	return err
}

// disconnect closes all but the directory.
func (b *base) disconnect() error {
	var errs []error
	for _, db := range []*sql.DB{b.read, b.write} { // the writer last: it empties the log (WAL)
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	closeFD(b.lock)
	b.read, b.write, b.lock = nil, nil, -1
	return errors.Join(errs...)
}

// openBase opens a base's database, and begins it anew if it is damaged.
func (x *Index) openBase(ctx context.Context, id Base, create bool) (*base, error) {
	dir, err := x.openDir(create)
	if err != nil {
		return nil, err
	}
	b := &base{id: id, dir: dir, lock: -1, writing: make(chan struct{}, 1), adding: map[int64]bool{}}
	if err = lockDir(ctx, dir); err == nil {
		err = b.open(ctx, create)
		if damaged(err) {
			err = x.renew(ctx, b, create, err)
		}
		unlockDir(dir)
	}
	if err != nil {
		_ = b.close()
		return nil, err
	}
	return b, nil
}

// renew removes a database that is damaged, and makes another if create. The caller has the directory locked.
func (x *Index) renew(ctx context.Context, b *base, create bool, why error) error {
	x.log.Warn("a knowledge base is damaged and begun anew", slog.String("file", b.name), slog.String("error", why.Error()))
	_ = b.disconnect()
	if err := removeBase(b.dir, b.id); err != nil {
		return err
	}
	x.refill(b.id)
	if !create {
		return errNone
	}
	return b.open(ctx, true)
}

// open opens the files of a base. The caller has the directory locked, and closes b in any case.
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
	wal, err := look(b.dir, b.name+"-wal")
	killed := alone && err == nil && wal.Size > 0
	if err := b.connect(ctx, isNew, killed); err != nil {
		return err
	}
	if !lockRange(b.lock, unix.F_RDLCK, 0) {
		return fmt.Errorf("%s%s is locked by somebody who does not know what it is for", gen, lockSuffix)
	}
	return nil
}

// openFiles makes the files that are not there, and looks at those that are.
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
		st, err := look(b.dir, gen+suffix)
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
	// The database itself is never opened here once SQLite may have: a close would end SQLite's locks (fcntl_locking(2)).
	var err error
	b.lock, err = openat(b.dir, gen+lockSuffix, lockFlags)
	return err
}

// connect opens the connections and sees that there is something behind them.
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

// turn waits for this process's turn to write. The caller calls done.
func (b *base) turn(ctx context.Context) (done func(), err error) {
	select {
	case b.writing <- struct{}{}:
		done = func() { <-b.writing }
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !b.there() {
		done()
		return nil, ErrPurged
	}
	return done, nil
}

// transact runs f in a transaction that writes: all of it is done, or nothing.
func (b *base) transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	done, err := b.turn(ctx)
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
		return cmp.Or(ctx.Err(), err) // a transaction that is interrupted has words of its own for that
	}
	return nil
}

// undoFor is how long is tried to take back what an operation left that was cancelled.
const undoFor = 30 * time.Second
