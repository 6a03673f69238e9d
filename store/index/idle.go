package index

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// idleCheckInterval is how often idle bases are looked for: when an index is opened, and when it is used after that time.
const idleCheckInterval = 24 * time.Hour

// checkIdle removes, in the background, bases that have not been written to for longer than TTL, since they may never be
// opened and swept again. The caller holds x.mu.
func (x *Index) checkIdle() {
	now := x.now()
	if since := now.Sub(x.lastIdleCheck); !x.lastIdleCheck.IsZero() && since < idleCheckInterval {
		return
	}
	x.lastIdleCheck = now
	x.work.Go(func() {
		err := x.removeIdle(x.ctx, now.Add(-x.ttl))
		if err != nil && x.ctx.Err() == nil {
			x.log.Warn("removing idle knowledge bases failed", slog.String("error", err.Error()))
		}
	})
}

// removeIdle removes the files of bases that were not written to since then and that no process has open.
func (x *Index) removeIdle(ctx context.Context, then time.Time) error {
	dir, err := x.lockedDir(ctx)
	if errors.Is(err, errNone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closeFD(dir)
	names, err := namesIn(dir)
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
		st, err := stat(dir, name)
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
	fd, err := openat(dir, name, lockFlags)
	if err != nil {
		return false
	}
	defer closeFD(fd)
	return lockRange(fd, unix.F_WRLCK, 0)
}
