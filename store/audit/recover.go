package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A checkpoint is a position with the jobs open at it. It avoids reading the whole audit log at each start.
type checkpoint struct {
	position
	open map[uint64]Who // by seq of the decided record
}

// note updates the open jobs with a record.
func (c *checkpoint) note(f fixed) {
	switch {
	case f.event == Decided:
		c.open[f.seq] = Who{Instance: f.instance, Job: f.job}
	case f.event.closes():
		delete(c.open, f.of)
	}
}

// scanning calls f while no other process writes the checkpoint or removes files. It waits at most patience for the
// lock.
func (l *Log) scanning(patience time.Duration, f func() error) error {
	until := time.Now().Add(patience)
	l.scanMu.Lock()
	defer l.scanMu.Unlock()
	if err := flock(l.scans, unix.LOCK_EX, until); err != nil {
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
		c := l.readCheckpoint()
		before := c.position
		if err := l.openJobs(&c); err != nil {
			return err
		}
		if c.file != before.file || c.size-before.size > chunk {
			if err := l.writeCheckpoint(c); err != nil {
				l.o.Log.Warn("audit: cannot write the checkpoint", "error", err)
			}
		}
		for _, seq := range slices.Sorted(maps.Keys(c.open)) {
			who := c.open[seq]
			if alive(who.Instance) {
				continue
			}
			e, err := who.begin(Lost, seq)
			if err != nil {
				return err
			}
			if _, err := l.append(Lost, seq, e.b); err != nil {
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
	all, err := list(l.root)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if _, err := l.follow(&c.position, all, false, c.note); err != nil {
		return err
	}
	return l.locked(func() error {
		if err := l.catchUp(); err != nil {
			return err
		}
		if _, err := l.follow(&c.position, all, false, c.note); err != nil {
			return err
		}
		if int64(len(c.open)) != l.at.open { // it was counted from a head that was lost
			l.at.open = int64(len(c.open))
			l.writeHead()
		}
		return nil
	})
}

const checkpointFile = "checkpoint"

// A checkpoint's file consists of lines of numbers and names; the first and the last line show that it is complete.
const checkpointMagic = "corral audit checkpoint 1"

func (c *checkpoint) encode() []byte {
	b := fmt.Appendf(nil, checkpointMagic+"\nat %d %d %d %x\n", c.seq, c.file, c.size, c.hash)
	for _, seq := range slices.Sorted(maps.Keys(c.open)) {
		b = fmt.Appendf(b, "open %d %s %s\n", seq, c.open[seq].Instance, c.open[seq].Job)
	}
	return fmt.Appendf(b, "end %d\n", len(c.open))
}

// readCheckpoint returns the checkpoint, or the beginning of the audit log if there is no valid one.
func (l *Log) readCheckpoint() checkpoint {
	none := checkpoint{position{file: 1}, map[uint64]Who{}}
	if all, err := list(l.root); err == nil && len(all) > 0 {
		none.position = l.beginning(all[0])
	}
	b, err := l.root.ReadFile(checkpointFile)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.o.Log.Warn("audit: cannot read the checkpoint", "error", err)
		}
		return none
	}
	c, ok := parseCheckpoint(b)
	if !ok || !l.hasRecordAt(c.position) {
		l.o.Log.Warn("audit: the checkpoint is invalid: reading the whole audit log")
		return none
	}
	return c
}

// parseCheckpoint accepts exactly the texts that encode returns.
func parseCheckpoint(b []byte) (checkpoint, bool) {
	c := checkpoint{open: map[uint64]Who{}}
	rows := bytes.Split(b, []byte("\n"))
	if len(rows) < 4 {
		return c, false
	}
	numbers := bytes.Fields(rows[1])
	if len(numbers) != 5 {
		return c, false
	}
	s := scanner{b: numbers[4]}
	s.hash(&c.hash)
	c.seq, c.file, c.size = number(numbers[1]), number(numbers[2]), int64(number(numbers[3]))
	for _, row := range rows[2 : len(rows)-2] {
		if f := bytes.Fields(row); len(f) == 4 && isName(string(f[2])) && isName(string(f[3])) {
			c.open[number(f[1])] = Who{Instance: string(f[2]), Job: string(f[3])}
		}
	}
	return c, !s.bad && c.file > 0 && bytes.Equal(c.encode(), b)
}

func number(b []byte) uint64 {
	n, err := strconv.ParseUint(string(b), 10, 63)
	if err != nil {
		return 0
	}
	return n
}

// writeCheckpoint replaces the checkpoint, after syncing the records that it refers to.
func (l *Log) writeCheckpoint(c checkpoint) error {
	if err := l.syncFile(); err != nil {
		return err
	}
	const temp = checkpointFile + ".new"
	f, err := l.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(c.encode())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return l.root.Rename(temp, checkpointFile)
}
