package audit

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// scanning calls f while no other process writes the checkpoint or removes files. It waits at most patience for the
// lock.
func (l *Log) scanning(patience time.Duration, f func() error) error {
	until := time.Now().Add(patience)
	l.scanMu.Lock()
	defer l.scanMu.Unlock()
	if err := flockUntil(l.scans, unix.LOCK_EX, until); err != nil {
		return err
	}
	defer func() { _ = unix.Flock(int(l.scans.Fd()), unix.LOCK_UN) }()
	return f()
}

// Recover closes the open jobs of instances that are not alive with "lost" records, and returns their number. alive
// must return false for the caller's own instance, unless that already has jobs. An instance for which it returns
// false must not start before Recover returns.
func (l *Log) Recover(alive func(instance string) bool) (int, error) {
	count := 0
	err := l.scanning(scanPatience, func() error {
		c := l.read.ReadCheckpoint()
		before := c.Position
		if err := l.openJobs(&c); err != nil {
			return err
		}
		if c.File != before.File || c.Size-before.Size > allocateAhead {
			if err := l.writeCheckpoint(c); err != nil {
				l.o.Log.Warn("audit: cannot write the checkpoint", "error", err)
			}
		}
		for _, seq := range slices.Sorted(maps.Keys(c.Open)) {
			who := c.Open[seq]
			if alive(who.Instance) {
				continue
			}
			if err := l.lost(who, seq); err != nil {
				return err
			}
			count++
		}
		return nil
	})
	return count, err
}

// openJobs brings a checkpoint up to the end of the audit log. Most of it is read without blocking writers.
func (l *Log) openJobs(c *checkpoint) error {
	all, err := listFiles(l.root)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if _, err := l.read.Follow(&c.Position, all, false, c.Note); err != nil {
		return err
	}
	return l.locked(func() error {
		if err := l.catchUp(); err != nil {
			return err
		}
		if _, err := l.read.Follow(&c.Position, all, false, c.Note); err != nil {
			return err
		}
		if int64(len(c.Open)) != l.at.Open { // it was counted from a head that was lost
			l.at.Open = int64(len(c.Open))
			l.writeHead()
		}
		return nil
	})
}

// writeCheckpoint replaces the checkpoint, after syncing the records that it refers to.
func (l *Log) writeCheckpoint(c checkpoint) error {
	if err := l.syncFile(); err != nil {
		return err
	}
	b, err := c.Encode()
	if err != nil {
		return err
	}
	const temp = CheckpointFile + ".new"
	f, err := l.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return l.root.Rename(temp, CheckpointFile)
}
