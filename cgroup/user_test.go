package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// newUserJail creates a jail of a user with a first process.
func newUserJail(t testing.TB, i *Instance, uid uint32, name string) *Jail {
	t.Helper()
	u, err := i.User(uid)
	if err != nil {
		t.Fatal(err)
	}
	j, err := u.Jail(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	return started(t, j)
}

// slack is what the kernel charges beyond a limit, such as for processes that it has killed.
const slack = 1 << 20

// usage reads a file with a number of bytes.
func usage(t testing.TB, g group, v1, v2 string) int64 {
	t.Helper()
	file := v1
	if _, err := os.Lstat(g.Path + "/memory.max"); err == nil {
		file = v2
	}
	b, err := g.Read(file)
	if errors.Is(err, os.ErrNotExist) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	return number(b)
}

func (u *User) usage(t testing.TB) int64 {
	return usage(t, u.memory(), "memory.usage_in_bytes", "memory.current")
}

// eats runs a job that exceeds every limit, and returns its events when the kernel has killed it.
func eats(t *testing.T, g *Job) Events {
	t.Helper()
	if err := g.WatchOOM(func() { _ = g.Kill() }); err != nil {
		t.Fatal(err)
	}
	r := start(t, g, "eat")
	r.line()
	r.killed()
	empty(t, g)
	_, e, err := g.Account()
	if err != nil {
		t.Error(err)
	}
	return e
}

// TestUserMemory: the jobs of one user cannot have more memory together than the user may, and the one that the kernel ends tells its own
// limit from that. Jobs of others live on.
func TestUserMemory(t *testing.T) {
	const bound = 192 << 20
	everywhere(t, func(t *testing.T, s setting) {
		i := newInstance(t, s)
		if err := i.LimitUsers(bound); err != nil {
			t.Fatal(err)
		}
		here, there := newUserJail(t, i, 1001, "here"), newUserJail(t, i, 1001, "there")
		theirs, root := newUserJail(t, i, 1002, "theirs"), newUserJail(t, i, 0, "root")
		other := newJob(t, theirs, "other", Limits{MemoryBytes: 1 << 30})
		if err := other.WatchOOM(func() { t.Error("a job of another user is ended") }); err != nil {
			t.Fatal(err)
		}
		idle := start(t, other, "idle")
		idle.line()
		for _, c := range []struct {
			jail  *Jail
			limit int64 // of the job
			user  int64 // in its events
		}{{here, 1 << 30, bound}, {there, 64 << 20, 0}, {there, 1 << 30, bound}, {here, 64 << 20, 0}} {
			g := newJob(t, c.jail, "job", Limits{MemoryBytes: c.limit, PIDs: 100})
			if e := eats(t, g); !e.OOM || e.UserLimit != c.user {
				t.Errorf("a job with a limit of %d MiB in %s: %+v, want the user's limit %d", c.limit>>20, c.jail.path, e, c.user)
			}
			if err := g.Remove(); err != nil {
				t.Error(err)
			}
		}
		if peak := usage(t, here.user.memory(), "memory.max_usage_in_bytes", "memory.peak"); peak > bound+slack || peak != -1 && peak < bound/2 {
			t.Errorf("the user's jobs had %d bytes together, and may have %d", peak, bound)
		}
		if _, e, err := other.Account(); err != nil || e.OOM {
			t.Errorf("another user's job: %+v, %v", e, err)
		}
		kill(t, other, idle)
		if n := usage(t, root.user.memory(), "memory.limit_in_bytes", "memory.max"); n > 0 && n < 1<<60 {
			t.Errorf("root's jobs may have %d bytes", n)
		}
		for _, bytes := range []int64{2 * bound, bound / 2, 0} {
			if err := i.LimitUsers(bytes); err != nil {
				t.Error(err)
			}
			is := usage(t, here.user.memory(), "memory.limit_in_bytes", "memory.max")
			if bytes == 0 && is > 0 && is < 1<<60 || bytes > 0 && is != bytes {
				t.Errorf("the limit is %d after it was changed to %d", is, bytes)
			}
		}
	})
}

// TestUserMemoryLeft: memory that jobs have left, and that others hold, is charged to the user until it is free, also when the jobs and
// their jail have been removed; so jobs in turn cannot gather more than the user may have.
func TestUserMemoryLeft(t *testing.T) {
	const bound, size = 160 << 20, 48 << 20
	everywhere(t, func(t *testing.T, s setting) {
		i := newInstance(t, s)
		if err := i.LimitUsers(bound); err != nil {
			t.Fatal(err)
		}
		var held []*os.File
		defer func() {
			for _, f := range held {
				f.Close()
			}
		}()
		// leave returns how many bytes a job left.
		leave := func(uid uint32) int64 {
			fd, err := unix.MemfdCreate("left", unix.MFD_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, os.NewFile(uintptr(fd), "memory file"))
			u, err := i.User(uid)
			if err != nil {
				t.Fatal(err)
			}
			j, err := u.Jail(fmt.Sprint("jail-", len(held)), 0) // no process: the kernel could choose it in place of the job's
			if err != nil {
				t.Fatal(err)
			}
			if err := j.WithoutContainer(); err != nil {
				t.Fatal(err)
			}
			g := newJob(t, j, "job", Limits{MemoryBytes: 1 << 30})
			if err := g.WatchOOM(func() { _ = g.Kill() }); err != nil {
				t.Fatal(err)
			}
			cmd := script(t, g, held[len(held)-1:], fmt.Sprintf("head -c %d /dev/zero >&3", size))
			_ = cmd.Wait()
			_, e, err := g.Account()
			if err != nil || e.OOM == cmd.ProcessState.Success() || e.OOM != (e.UserLimit == bound) {
				t.Errorf("job %d: %v, %+v, %v", len(held), cmd.ProcessState, e, err)
			}
			if err := errors.Join(g.Remove(), j.Remove()); err != nil {
				t.Error(err)
			}
			info, err := held[len(held)-1].Stat()
			if err != nil {
				t.Fatal(err)
			}
			return info.Size()
		}
		sum := int64(0)
		for range 6 {
			sum += leave(1001)
		}
		u, err := i.User(1001)
		if err != nil {
			t.Fatal(err)
		}
		if n := u.usage(t); sum > bound+slack || sum < 3*size || n < sum || n > bound+slack {
			t.Errorf("6 jobs left %d bytes, and the user is charged for %d of at most %d", sum, n, bound)
		}
		if n := leave(1002); n != size {
			t.Errorf("a job of another user could write %d bytes, want %d", n, size)
		}
		for _, f := range held {
			f.Close()
		}
		held = nil
		until(t, "the memory is free", func() bool { return u.usage(t) < size/4 })
		if n := leave(1001); n != size {
			t.Errorf("the next job could write %d bytes, want %d", n, size)
		}
	})
}

// TestUserFails: a user whose groups cannot be made has none, and no jail.
func TestUserFails(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		i := newInstance(t, s)
		dir := s.tree.path(s.tree.point("memory"), s.tree.top, i.name, "user-7")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if u, err := i.User(7); u != nil || !errors.Is(err, os.ErrExist) || !strings.Contains(fmt.Sprint(err), "user 7") {
			t.Errorf("%v, %v, want an error", u, err)
		}
		if left := find(t, s.tree, "user-7"); len(left) != 1 {
			t.Errorf("left over: %q, want %q", left, dir)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		u, err := i.User(7)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := i.User(7); again != u || err != nil {
			t.Errorf("the second time: %v, %v", again, err)
		}
	})
}
