package index

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/store/at"
)

// removeFiles removes the files of a base, even if it is damaged or open: its users get ErrPurged.
func removeFiles(ctx context.Context, state int, id Base) error {
	dir, err := lockedDir(ctx, state)
	if errors.Is(err, errNone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closeFD(dir)
	return removeBase(dir, id)
}

// RemoveDamaged removes the files of a base that turned out to be damaged, unless they were replaced already. What cannot
// be removed is found damaged again when it is next opened.
func (b *database) RemoveDamaged(ctx context.Context, state int, why error, log *slog.Logger) (removed bool) {
	dir, err := lockedDir(ctx, state)
	if err != nil {
		return false
	}
	defer closeFD(dir)
	st, err := at.Stat(dir, b.name)
	if err != nil || st.Ino != b.ino {
		return false
	}
	log.Warn("knowledge base is damaged and will be recreated", slog.String("file", b.name), slog.String("error", why.Error()))
	if err := removeBase(dir, b.ID); err != nil {
		log.Warn("removing a damaged knowledge base failed", slog.String("error", err.Error()))
		return false
	}
	return true
}

// removeIdle removes the files of bases that were not written to since then and that no process has open.
func removeIdle(ctx context.Context, state int, then time.Time) error {
	dir, err := lockedDir(ctx, state)
	if errors.Is(err, errNone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closeFD(dir)
	names, err := at.Names(dir, maxNames)
	if err != nil {
		return err
	}
	bases := map[string][]string{}
	for _, name := range names {
		if i := strings.IndexByte(name, '-'); i == prefixLength {
			bases[name[:i]] = append(bases[name[:i]], name)
		}
	}
	var errs []error
	for _, own := range bases {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if isIdle(dir, own, then) {
			errs = append(errs, remove(dir, own))
		}
	}
	return errors.Join(errs...)
}

// isIdle reports whether no file of a base was written since then and no process has it open. The caller holds the lock
// on the directory, so no process can open it meanwhile.
func isIdle(dir int, names []string, then time.Time) bool {
	for _, name := range names {
		st, err := at.Stat(dir, name)
		if err != nil || !time.Unix(st.Mtim.Unix()).Before(then) {
			return false
		}
	}
	for _, name := range names {
		if strings.HasSuffix(name, lockSuffix) && !unlocked(dir, name) {
			return false
		}
	}
	return true
}

// unlocked reports whether no process has the base of a lock file open.
func unlocked(dir int, name string) bool {
	fd, err := at.Open(dir, name, lockFlags)
	if err != nil {
		return false
	}
	defer closeFD(fd)
	return lockRange(fd, unix.F_WRLCK, 0)
}
