package audit

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// rotateIfFull begins the next file if one more line makes this one too long.
func (l *Log) rotateIfFull(n int) error {
	const fixedSize = 256 // roughly
	if l.at.size == 0 || l.at.size+int64(n)+fixedSize <= l.o.MaxSize {
		return nil
	}
	if err := l.removeEmpty(); err != nil {
		return err
	}
	// The last record here is Rotated, so the next file begins with the one behind it.
	first := l.at.seq + 2
	name := fileName(first)
	next, err := l.openFile(name, os.O_CREATE|os.O_APPEND)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	got, kept, err := l.leave(next, name)
	if err != nil {
		next.Close()
		_ = l.root.Remove(name)
		return err
	}
	old := l.file
	l.file, l.fileOf, l.at.reserved = next, l.at.file, got
	l.writeHead()
	if info, err := old.Stat(); err == nil {
		_ = old.Truncate(info.Size()) // gives back what was allocated ahead
	}
	old.Close()
	l.tidying.Go(func() { l.tidy(first, kept) })
	return nil
}

// leave makes the room that was promised in the next file, and writes the last record of the present one.
func (l *Log) leave(next *os.File, name string) (got int64, kept uint64, err error) {
	if info, err := next.Stat(); err != nil || info.Size() != 0 {
		return 0, 0, fmt.Errorf("audit: %s is there already", name)
	}
	if got, err = allocate(next, 0, l.at.open*closerMax+chunk); err != nil {
		return 0, 0, err
	}
	all, err := list(l.root)
	if err != nil {
		return 0, 0, fmt.Errorf("audit: %w", err)
	}
	kept = oldestKept(all, l.o.Keep, l.young)
	e, err := Who{Instance: l.o.Instance}.begin(Rotated, 0)
	if err != nil {
		return 0, 0, err
	}
	e.word("next", name)
	e.number("kept", int64(kept))
	if err := l.put(Rotated, e.b); err != nil {
		return 0, 0, err
	}
	// Whoever syncs from now on syncs the next file alone.
	if err := dataSync(l.file); err != nil {
		l.syncer.fail(err)
	}
	if err := l.dir.Sync(); err != nil {
		l.syncer.fail(fmt.Errorf("audit: %w", err))
	}
	return got, kept, nil
}

// oldestKept is the first file that stays, of all there are: the last of them is the one to come. One that is young stays, and so
// do those after it.
func oldestKept(all []uint64, keep int, young func(first uint64) bool) uint64 {
	if keep == 0 {
		return all[0]
	}
	for len(all) > keep+1 && !young(all[0]) {
		all = all[1:]
	}
	return all[0]
}

// young says whether a file has records that are to be kept for their time.
func (l *Log) young(first uint64) bool {
	if l.o.KeepFor <= 0 {
		return false
	}
	info, err := l.root.Stat(fileName(first))
	return err != nil || time.Since(info.ModTime()) < l.o.KeepFor
}

// tidy brings the checkpoint up to the file that was begun with record last, or beyond, and removes those that are not kept.
func (l *Log) tidy(last, kept uint64) {
	err := l.scanning(lockPatience, func() error {
		all, err := list(l.root)
		if err != nil {
			return err
		}
		c := l.readCheckpoint()
		// A file that is begun at this moment is there before the last record of the one before it is: that is no flaw.
		known := slices.DeleteFunc(slices.Clone(all), func(first uint64) bool { return first > last })
		if _, err := l.follow(&c.position, known, false, c.note); err != nil {
			return err
		}
		if err := l.writeCheckpoint(c); err != nil {
			return err
		}
		for _, first := range all[:max(0, slices.Index(all, kept))] {
			if err := l.root.Remove(fileName(first)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		l.o.Log.Warn("audit: old files are not removed", "error", err)
	}
}
