package cell

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
)

// TestIDMapsBounded: a jail keeps only a few id maps of returned users.
func TestIDMapsBounded(t *testing.T) {
	u := newJobUsers(false, nil)
	u.free = nil
	for n := range uint32(3 * maxIDMaps) {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		u.maps[n] = f
	}
	all := len(u.maps)
	for n := range uint32(all) {
		m := u.maps[n]
		u.giveBack(n, true)
		if _, err := m.Stat(); (err != nil) != (u.maps[n] == nil) {
			t.Errorf("map %d: %v", n, err)
		}
	}
	if len(u.maps) != maxIDMaps || len(u.free) != all {
		t.Errorf("%d maps, %d free users", len(u.maps), len(u.free))
	}
	u.close()
}

// TestUnluckyUser: a user for whom no slot can be made, here because others hold all keys that it may have, is not the next one again.
func TestUnluckyUser(t *testing.T) {
	j := newTestJails(t, func(c *Config) { c.Slots = -1 }).enterNew(t)
	j.users.mu.Lock()
	next := j.users.free[len(j.users.free)-1]
	j.users.mu.Unlock()
	defer useUpKeys(t, (&Slot{jail: j, user: next}).hostUID())()
	sl, err := j.TakeSlot(false)
	var refused *job.Refusal
	if !errors.As(err, &refused) || refused.Step != "keyring" || refused.Errno != int(unix.EDQUOT) {
		if sl != nil {
			sl.Release()
		}
		t.Fatalf("without keys: %v", err)
	}
	sl, err = j.TakeSlot(false)
	if err != nil {
		t.Fatal(err)
	}
	if sl.user == next {
		t.Error("the user without keys has a slot")
	}
	sl.Release()
	j.users.mu.Lock()
	defer j.users.mu.Unlock()
	if j.users.free[0] != next {
		t.Errorf("user %d is taken next but %d", next, len(j.users.free))
	}
}

// useUpKeys makes keys of a host user until it may have no more, and returns a function that gives them back. Until then, it also takes
// those that the kernel collects meanwhile: earlier jobs of the user had them.
func useUpKeys(t *testing.T, uid uint32) (end func()) {
	t.Helper()
	made, done, over := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		runtime.LockOSThread() // the thread, its user and its keyring end with this goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0); errno != 0 {
			made <- errno
			return
		}
		first := made
		for n := 0; ; {
			_, err := unix.AddKey("user", strconv.Itoa(n), []byte("x"), unix.KEY_SPEC_THREAD_KEYRING)
			if err == nil {
				n++
				continue
			}
			select {
			case first <- err:
				first = nil
			case <-done:
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
	}()
	if err := <-made; !errors.Is(err, unix.EDQUOT) {
		close(done)
		t.Fatalf("add_key: %v", err)
	}
	return func() {
		close(done)
		<-over
	}
}
