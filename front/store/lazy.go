package store

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

// A lazy opens a value when it is first needed. If that fails, the next call tries again.
type lazy[T any] struct {
	open func() (T, error)

	mu     sync.Mutex
	value  T    // guarded by mu
	opened bool // guarded by mu: value is set
	closed bool // guarded by mu
}

// errClosed is returned by get after close.
var errClosed = errors.New("the server is shutting down")

// get returns the value. Callers wait while one of them opens it.
func (l *lazy[T]) get() (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var none T
	switch {
	case l.opened:
		return l.value, nil
	case l.closed:
		return none, errClosed
	}
	value, err := l.open()
	if err != nil {
		return none, err
	}
	l.value, l.opened = value, true
	return value, nil
}

// with calls use with the value.
func with[T, R any](l *lazy[T], use func(T) (R, error)) (none R, err error) {
	value, err := l.get()
	if err != nil {
		return none, err
	}
	return use(value)
}

// current returns the value if it is open. It may wait while a caller opens it.
func (l *lazy[T]) current() (value T, opened bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, l.opened
}

// close prevents further calls from getting or opening the value, and returns it if it was opened: the caller closes it.
func (l *lazy[T]) close() (value T, opened bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	value, opened = l.value, l.opened
	var none T
	l.value, l.opened, l.closed = none, false, true
	return value, opened
}

// inState calls open with the directory that state opens, and closes the directory.
func inState[T any](state func() (*os.File, error), open func(dir *os.File) (T, error)) (T, error) {
	dir, err := state()
	if err != nil {
		var none T
		return none, fmt.Errorf("state directory: %w", err)
	}
	defer func() { _ = dir.Close() }()
	return open(dir)
}
