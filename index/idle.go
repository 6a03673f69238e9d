package index

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is how often idle bases are looked for: when an index is opened, and when it is used after that time.
const lookEvery = 24 * time.Hour

// lookForIdle removes, in the background, the bases to which nothing was written for longer than a source is kept: nobody
// may ever open them to sweep them. The caller holds x.mu.
func (x *Index) lookForIdle() {
	now := x.now()
	if since := now.Sub(x.looked); !x.looked.IsZero() && since < lookEvery {
		return
	}
	x.looked = now
	x.work.Go(func() {
		err := x.removeIdle(x.ctx, now.Add(-x.ttl))
		if err != nil && x.ctx.Err() == nil {
			x.log.Warn("idle knowledge bases", slog.String("error", err.Error()))
		}
	})
}

// removeIdle removes the files of bases of which none was written since then, and that no process has open.
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

// isIdle says whether no file of a base was written since then, and nobody has it open. With the directory locked, nobody
// opens it now.
func isIdle(dir int, names []string, then time.Time) bool {
	for _, name := range names {
		st, err := look(dir, name)
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

// unlocked says whether nobody has the base of a lock file open.
func unlocked(dir int, name string) bool {
	fd, err := openat(dir, name, lockFlags)
	if err != nil {
		return false
	}
	defer closeFD(fd)
	return lockRange(fd, unix.F_WRLCK, 0)
}
