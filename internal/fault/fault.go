// Package fault decides what a panic in the supervisor ends.
//
// A goroutine that serves one job, request, connection, session, jail or user does its work in [Contain]: a panic there ends that one
// alone, as an error, with its stack in the log. All other goroutines have no recover: a panic in them ends the process, and with it all
// jobs, because nobody knows what they have left half done.
//
// State that several of the former share is guarded by a [Mutex], and written to the audit log by functions that defer [End]. A panic
// while such a lock is held, or in such a function, ends the process wherever it is raised: otherwise a Contain further out would go on
// with a table that is half changed. A panic between Lock and an Unlock that is not deferred would leave the lock held for good; a test
// requires of every lock in these packages that the next statement defers its Unlock.
package fault

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// ErrInternal is in the error of work that panicked. Its text is for clients, which learn nothing else.
var ErrInternal = errors.New("internal error of the supervisor")

// contained counts panics. It is the process's: its log has the stack of each.
var contained atomic.Int64

// Contained returns how many panics were contained since the process started.
func Contained() int64 { return contained.Load() }

// Contain calls f, and returns an error of ErrInternal if f panics. log gets the panic with its stack, as an error of what, and args as
// they are given to [slog.Logger.Error]. Functions that f has deferred have run by then, so f must undo by them what others see of its
// work.
func Contain(log *slog.Logger, what string, f func() error, args ...any) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		contained.Add(1)
		err = fmt.Errorf("%s: %w", what, ErrInternal)
		log.Error("internal error", append([]any{"in", what, "panic", fmt.Sprint(v), "stack", string(debug.Stack())}, args...)...)
	}()
	return f()
}

// Do is Contain for a function without an error. It reports whether f has panicked.
func Do(log *slog.Logger, what string, f func(), args ...any) (panicked bool) {
	return Contain(log, what, func() error { f(); return nil }, args...) != nil
}

// AfterFunc is [time.AfterFunc] for a function that serves one job, session or jail.
func AfterFunc(log *slog.Logger, what string, d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() { Do(log, what, f) })
}

// A Mutex is a sync.Mutex that guards what several jobs, connections or sessions share. The caller of Lock must defer Unlock at once, or
// use With or Get.
type Mutex struct{ mu sync.Mutex }

// Lock locks m.
func (m *Mutex) Lock() { m.mu.Lock() }

// TryLock locks m unless it is locked, and reports whether it did.
func (m *Mutex) TryLock() bool { return m.mu.TryLock() }

// Unlock unlocks m. If a panic has called it, it ends the process.
func (m *Mutex) Unlock() {
	if v := recover(); v != nil { // only a deferred Unlock gets it
		end(v)
	}
	m.mu.Unlock()
}

// With calls f with l locked.
func With(l sync.Locker, f func()) {
	l.Lock()
	defer l.Unlock()
	f()
}

// Get returns what f returns with l locked.
func Get[T any](l sync.Locker, f func() T) T {
	l.Lock()
	defer l.Unlock()
	return f()
}

// End ends the process if the function that deferred it panics.
func End() {
	if v := recover(); v != nil {
		end(v)
	}
}

// end ends the process as the runtime does for a panic.
func end(v any) {
	_, _ = fmt.Fprintf(os.Stderr, "panic: %v\n\nin shared state, so the process ends\n\n%s", v, debug.Stack())
	os.Exit(2)
}
