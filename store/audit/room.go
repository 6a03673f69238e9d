package audit

import (
	"bytes"
	"fmt"
)

// reserve allocates the file's next n bytes. A record that closes a job has promised space, so it does not fail for
// it.
func (l *Log) reserve(n int64, promised bool) error {
	if l.at.Size+n <= l.at.Reserved {
		return nil
	}
	got, err := allocate(l.file, l.at.Size, n)
	if err != nil && !promised {
		return err
	}
	if err == nil {
		l.at.Reserved = l.at.Size + got
	}
	return nil
}

// truncate truncates the current file to size. That frees the space allocated beyond it, so the head is cleared
// first: the next writer relies on what it says.
func (l *Log) truncate(size int64) error {
	if head, err := l.readHead(); err == nil {
		head.Reserved = 0
		if _, err := l.head.WriteAt(head.Encode(), 0); err != nil {
			l.o.Log.Warn("audit: cannot write the head", "error", err)
		}
	}
	if err := l.file.Truncate(size); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// reallocate allocates the space promised to open jobs again, after it was freed or is not known. If that fails, no
// job is decided until there is space again: reserve ensures that.
func (l *Log) reallocate() {
	l.at.Reserved = l.at.Size
	if l.at.Open == 0 {
		return
	}
	if got, err := allocate(l.file, l.at.Size, l.at.Open*closerMax); err == nil {
		l.at.Reserved += got
	}
}

// readHead reads the head. Usually that is what this Log wrote last, and need not be parsed.
func (l *Log) readHead() (headState, error) {
	b, err := readHead(l.head)
	if err != nil {
		return headState{}, err
	}
	if l.lastHead != nil && bytes.Equal(b, l.lastHead) {
		return l.lastState, nil
	}
	return parseHead(b)
}

// writeHead writes the head. Its failure is only logged: the next writer brings a head that is behind up to date.
func (l *Log) writeHead() {
	l.lastHead, l.lastState = l.at.Encode(), l.at
	if _, err := l.head.WriteAt(l.lastHead, 0); err != nil {
		l.o.Log.Warn("audit: cannot write the head", "error", err)
	}
}
