package audit

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// rotateIfFull starts the next file if one more line makes this one too long.
func (l *Log) rotateIfFull(n int) error {
	const fixedSize = 256 // approximately
	if l.at.Size == 0 || l.at.Size+int64(n)+fixedSize <= l.o.MaxSize {
		return nil
	}
	if err := l.removeEmpty(); err != nil {
		return err
	}
	// The last record of this file is Rotated, so the next file begins with the record after it.
	first := l.at.Seq + 2
	name := FileName(first)
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
	l.file, l.fileOf, l.at.Reserved = next, l.at.File, got
	l.writeHead()
	if info, err := old.Stat(); err == nil {
		_ = old.Truncate(info.Size()) // frees space allocated in advance
	}
	old.Close()
	l.tidying.Go(func() { l.tidy(first, kept) })
	return nil
}

// leave allocates the promised space in the next file, and writes the last record of the current one.
func (l *Log) leave(next *os.File, name string) (got int64, kept uint64, err error) {
	if info, err := next.Stat(); err != nil || info.Size() != 0 {
		return 0, 0, fmt.Errorf("audit: %s already exists and is not empty", name)
	}
	if got, err = allocate(next, 0, l.at.Open*closerMax+allocateAhead); err != nil {
		return 0, 0, err
	}
	all, err := listFiles(l.root)
	if err != nil {
		return 0, 0, fmt.Errorf("audit: %w", err)
	}
	kept = oldestKept(all, l.o.Keep, l.young)
	body, err := Who{Instance: l.o.Instance}.body(Rotated, 0, func(e *encoder) {
		e.word("next", name)
		e.number("kept", int64(kept)) // the seq that names the first file that is kept
	})
	if err != nil {
		return 0, 0, err
	}
	if err := l.put(Rotated, body); err != nil {
		return 0, 0, err
	}
	// From now on only the next file is synced.
	if err := dataSync(l.file); err != nil {
		l.syncer.Fail(err)
	}
	if err := l.dir.Sync(); err != nil {
		l.syncer.Fail(fmt.Errorf("audit: %w", err))
	}
	return got, kept, nil
}

// oldestKept returns the first file to keep; the last of all is the next file. A file for which young returns true is
// kept, and so are those after it.
func oldestKept(all []uint64, keep int, young func(first uint64) bool) uint64 {
	if keep == 0 {
		return all[0]
	}
	for len(all) > keep+1 && !young(all[0]) {
		all = all[1:]
	}
	return all[0]
}

// young reports whether a file has records that KeepFor protects.
func (l *Log) young(first uint64) bool {
	if l.o.KeepFor <= 0 {
		return false
	}
	info, err := l.root.Stat(FileName(first))
	return err != nil || time.Since(info.ModTime()) < l.o.KeepFor
}

// tidy brings the checkpoint up to the file that begins with record last, or beyond it, and removes the files before
// kept.
func (l *Log) tidy(last, kept uint64) {
	err := l.scanning(lockPatience, func() error {
		all, err := listFiles(l.root)
		if err != nil {
			return err
		}
		c := l.read.ReadCheckpoint()
		// A file that is being started now exists before the last record of its predecessor: that is not a flaw.
		known := slices.DeleteFunc(slices.Clone(all), func(first uint64) bool { return first > last })
		if _, err := l.read.Follow(&c.Position, known, false, c.Note); err != nil {
			return err
		}
		if err := l.writeCheckpoint(c); err != nil {
			return err
		}
		removed := max(0, slices.Index(all, kept))
		for _, first := range all[:removed] {
			if err := l.root.Remove(FileName(first)); err != nil {
				return err
			}
		}
		if name := l.expire(all[removed:]); name != "" {
			l.o.Log.Warn("audit: the oldest file is removed when the current one is full, or audit.keep_for later",
				"file", name, "keep", l.o.Keep, "hint", "copy it, or raise audit.keep")
		}
		return nil
	})
	if err != nil {
		l.o.Log.Warn("audit: cannot remove old files", "error", err)
	}
}

// expire notes which of all files is removed when the current one, the last, is full, and returns its name, "" if none is.
func (l *Log) expire(all []uint64) (name string) {
	if l.o.Keep > 0 && len(all) > l.o.Keep {
		name = FileName(all[0])
	}
	l.expiring.Store(name)
	return name
}

// Expiring returns the name of the file that is removed when the current one is full, or when Options.KeepFor no longer protects it; ""
// if there is none.
func (l *Log) Expiring() string {
	name, _ := l.expiring.Load().(string)
	return name
}
