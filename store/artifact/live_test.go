package artifact

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// begun returns a feed that listens.
func begunFeed(t *testing.T) (f *Feed, handle string) {
	t.Helper()
	handle = fmt.Sprint(t.Name(), rand.Uint64())
	f = startFeed(handle, 0)
	t.Cleanup(f.End)
	sandboxtest.Eventually(t, 10*time.Second, "the feed listens", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.listener != nil
	})
	return f, handle
}

func thisUser() uint32 { return uint32(unix.Geteuid()) }

// TestNext: whatever is written in which pieces, a follower gets the last bytes in order.
func TestNext(t *testing.T) {
	for range 200 {
		f := &Feed{ring: ring{size: LiveSize}, news: make(chan struct{})}
		var all []byte
		for range rand.IntN(12) {
			p := make([]byte, rand.IntN([]int{10, 1000, LiveSize, 3 * LiveSize}[rand.IntN(4)]))
			for i := range p {
				p[i] = byte(rand.IntN(256))
			}
			f.Write(p)
			all = append(all, p...)
		}
		var got []byte
		at := int64(0)
		for {
			p := make([]byte, 1+rand.IntN(LiveSize))
			from, n, _, _ := f.next(at, p)
			if n == 0 {
				break
			}
			if len(got) > 0 && from != at {
				t.Fatal("output is lost between two reads")
			}
			got, at = append(got, p[:n]...), from+int64(n)
		}
		if want := all[max(0, len(all)-LiveSize):]; !bytes.Equal(got, want) {
			t.Fatalf("%d bytes of %d, want %d", len(got), len(all), len(want))
		}
	}
}

// TestFollow: a follower gets what there is, then what comes, and ends with the job. Without more, it ends at once.
func TestFollow(t *testing.T) {
	f, handle := begunFeed(t)
	f.Write([]byte("before\n"))
	var now bytes.Buffer
	if err := Follow(t.Context(), handle, thisUser(), false, &now, func(int64) {}); err != nil || now.String() != "before\n" {
		t.Fatalf("%q, %v", now.String(), err)
	}
	var out sandboxtest.Output
	done := make(chan error, 1)
	go func() { done <- Follow(t.Context(), handle, thisUser(), true, &out, func(int64) {}) }()
	sandboxtest.Eventually(t, 10*time.Second, "what there is", func() bool { return out.String() == "before\n" })
	f.Write([]byte("after\n"))
	sandboxtest.Eventually(t, 10*time.Second, "what comes", func() bool { return out.String() == "before\nafter\n" })
	f.Write([]byte("last"))
	f.End()
	if err := <-done; err != nil || out.String() != "before\nafter\nlast" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := Follow(t.Context(), handle, thisUser(), true, &out, func(int64) {}); !errors.Is(err, ErrNotLive) {
		t.Errorf("after the end: %v", err)
	}
}

// TestSlowFollower: a job that writes much does not wait for a follower that does not read, which learns how much it has lost.
func TestSlowFollower(t *testing.T) {
	f, handle := begunFeed(t)
	c, err := net.DialUnix("unix", nil, liveAddress(handle))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sandboxtest.Eventually(t, 10*time.Second, "the follower is admitted", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.followers) == 1
	})
	const total = 64 << 20
	for range total / LiveSize {
		f.Write(make([]byte, LiveSize))
	}
	f.End()
	var got bytes.Buffer
	if _, err := got.ReadFrom(c); err != nil {
		t.Fatal(err)
	}
	if got.Len() > total/2 || !strings.Contains(got.String(), "bytes left out") {
		t.Errorf("%d bytes", got.Len())
	}
}

// TestFollowers: one job has few followers, and the others are told.
func TestFollowers(t *testing.T) {
	f, handle := begunFeed(t)
	f.Write([]byte("x"))
	var all sync.WaitGroup
	var admitted [maxFollowers]sandboxtest.Output
	for n := range admitted {
		all.Go(func() {
			if err := Follow(t.Context(), handle, thisUser(), true, &admitted[n], func(int64) {}); err != nil {
				t.Error(err)
			}
		})
		sandboxtest.Eventually(t, 10*time.Second, "a follower", func() bool { return admitted[n].String() == "x" })
	}
	if err := Follow(t.Context(), handle, thisUser(), true, &bytes.Buffer{}, func(int64) {}); err == nil || !strings.Contains(err.Error(), "followers at most") {
		t.Errorf("one too many: %v", err)
	}
	f.End()
	all.Wait()
}

// TestFollowerGone: a follower that has disconnected makes room for another, also while the job writes nothing.
func TestFollowerGone(t *testing.T) {
	f, handle := begunFeed(t)
	for range 3 * maxFollowers {
		c, err := net.DialUnix("unix", nil, liveAddress(handle))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, feedHeader)); err != nil {
			t.Fatalf("not admitted: %v", err)
		}
		c.Close()
		sandboxtest.Eventually(t, 10*time.Second, "the follower is forgotten", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.followers) == 0
		})
	}
}

// TestUsers: another user cannot follow, and output of another user than the job's is not shown.
func TestUsers(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	f, handle := begunFeed(t)
	f.Write([]byte("secret"))
	if err := Follow(t.Context(), handle, thisUser()+1, true, &bytes.Buffer{}, func(int64) {}); err == nil || !strings.Contains(err.Error(), "is offered by user 0") {
		t.Errorf("a feed of another user: %v", err)
	}
	var out bytes.Buffer
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine: it has another user
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 61234, 61234, 61234); errno != 0 {
			failed <- errno
			return
		}
		failed <- Follow(t.Context(), handle, thisUser(), true, &out, func(int64) {})
	}()
	if err := <-failed; err == nil || out.Len() > 0 {
		t.Errorf("another user: %q, %v", out.String(), err)
	}
}
