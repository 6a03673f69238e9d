package isolate

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate/cell"
	"corral/job"
)

// passOn is a Perl program that writes 8 MiB to a memory file, and passes it on to the job that listens at the socket s.
var passOn = passOnFile(8 << 20)

func passOnFile(bytes int) string {
	return fmt.Sprintf(`use Socket; my $s; socket($s, PF_UNIX, SOCK_STREAM, 0) && connect($s, sockaddr_un("s")) or die "connect: $!";
my $fd = syscall(%d, my $name = "m", 0); $fd >= 0 or die "memfd_create: $!";
open(my $m, ">&=", $fd) or die; syswrite($m, "x" x %d) == %[2]d or die "write: $!";
my $iov = pack("PQ", my $byte = "x", 1); my $rights = pack("Qiiix4", 20, SOL_SOCKET, 1, $fd);
my $message = pack("QLx4PQPQix4", 0, 0, $iov, 1, $rights, 24, 0);
syscall(%[3]d, fileno($s), $message, 0) == 1 or die "sendmsg: $!"; print "passed"`, unix.SYS_MEMFD_CREATE, bytes, unix.SYS_SENDMSG)
}

// holder is a Perl program that listens at the socket s. Nobody accepts the connections, so descriptors stay in the kernel's queue.
const holder = `use Socket; $| = 1; socket(my $s, PF_UNIX, SOCK_STREAM, 0); bind($s, sockaddr_un("s")) or die $!;
	listen($s, 1000); print "ready\n"; <STDIN>`

// passOnSockets is a Perl program that fills 60 unix sockets with some 240 KiB each and passes them on to the job that listens at
// the socket s.
var passOnSockets = fmt.Sprintf(`use Socket; my $s; socket($s, PF_UNIX, SOCK_STREAM, 0) && connect($s, sockaddr_un("s")) or die "connect: $!";
my (@keep, @fds); for (1..60) { socketpair(my $a, my $b, PF_UNIX, SOCK_STREAM, 0) or die "socketpair: $!";
1 while send($a, "x" x (1 << 15), 64); push @keep, $a, $b; push @fds, fileno($b) }
my $iov = pack("PQ", my $byte = "x", 1); my $rights = pack("Qiii*x4", 16 + 4 * @fds, SOL_SOCKET, 1, @fds);
my $message = pack("QLx4PQPQix4", 0, 0, $iov, 1, $rights, 16 + 4 * @fds, 0);
syscall(%d, fileno($s), $message, 0) == 1 or die "sendmsg: $!"; print "passed"`, unix.SYS_SENDMSG)

// looking has the supervisor look often at memory that is left, so that tests need not wait for seconds.
func looking(c *Config) { c.switches.Look = 10 * time.Millisecond }

// TestLeftMemory: a job cannot gather memory without bound from jobs that have ended: each of these counts as a running
// one until its memory is free, beyond what the jobs of a user may leave in sockets.
func TestLeftMemory(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	const most = 6
	for _, c := range []struct {
		name, program string
		free          int // jobs that do not count
		session       bool
	}{{name: "jobs", program: passOn}, {"sockets", passOnSockets, 1, false}, {"sessions", passOn, 0, true}, {"sockets of sessions", passOnSockets, 1, true}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFront(t, looking, func(c *Config) { c.MaxPerUser = most })
			f.s.jobs.left.maxKernel, f.s.jobs.left.press = 20<<20, 0
			holding := f.Launch(f.Spec("perl", "-e", holder))
			pass := func() string {
				spec := f.Spec("perl", "-e", c.program)
				if c.session {
					ss := f.Session(job.SessionSpec{Repo: f.Repo, Disk: 32 << 20})
					defer f.CloseSession(ss, false)
					spec.Session = ss.ID
				}
				d, err := f.Try(spec)
				if err != nil {
					return err.Error()
				}
				return d.Out + d.Err + d.Limit
			}
			for n := range most - 1 + c.free {
				if said := pass(); said != "passed" {
					t.Fatal(said)
				}
				f.awaitLeft(max(0, n+1-c.free))
			}
			want := fmt.Sprintf("%d jobs are running, and the maximum per user is %[1]d; %d of them have ended", most, most-1)
			if said := pass(); !strings.Contains(said, want) {
				t.Errorf("%q, want %q", said, want)
			}
			holding.In.Close()
			if _, err := holding.End(); err != nil {
				t.Error(err)
			}
			f.awaitLeft(0)
			if said := pass(); strings.Contains(said, "running") {
				t.Error(said)
			}
		})
	}
}

// TestSmallLeft: many jobs that leave little count, too, once they have left much together; and so do the jobs of a session that ended.
func TestSmallLeft(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	const most, size = 15, 128 << 10
	pass := func(f *front, ss job.Session) string {
		spec := f.Spec("perl", "-e", passOnFile(size))
		spec.Session = ss.ID
		d, err := f.Try(spec)
		if err != nil {
			return err.Error()
		}
		return d.Out + d.Err
	}
	t.Run("jobs", func(t *testing.T) {
		f := newFront(t, looking, func(c *Config) { c.switches.Small, c.MaxPerUser = 1<<20, most })
		f.s.jobs.left.maxKernel, f.s.jobs.left.press = 0, 0
		holding := f.Launch(f.Spec("perl", "-e", holder))
		said, n := "", 0
		for ; n < 10*most && (said == "" || said == "passed"); n++ {
			said = pass(f, job.Session{})
		}
		// Several begin to count at once, so there can be more than the maximum.
		if want := fmt.Sprintf("jobs are running, and the maximum per user is %d; ", most); !strings.Contains(said, want) {
			t.Fatalf("after %d jobs that left %d bytes each: %q, want %q", n, size, said, want)
		}
		holding.In.Close()
		if _, err := holding.End(); err != nil {
			t.Error(err)
		}
		f.awaitLeft(0)
	})
	t.Run("a session that ended", func(t *testing.T) {
		f := newFront(t, looking)
		f.s.jobs.left.maxKernel, f.s.jobs.left.press = 0, 0
		holding := f.Launch(f.Spec("perl", "-e", holder))
		ss := f.Session(job.SessionSpec{Repo: f.Repo, Disk: 32 << 20})
		for range 4 {
			if said := pass(f, ss); said != "passed" {
				t.Fatal(said)
			}
		}
		f.CloseSession(ss, false)
		f.awaitLeft(1)
		holding.In.Close()
		if _, err := holding.End(); err != nil {
			t.Error(err)
		}
		f.awaitLeft(0)
	})
}

// awaitLeft waits until n ended jobs count because of their memory.
func (f *front) awaitLeft(n int) {
	f.T.Helper()
	eventually(f.T, func() string {
		f.s.jobs.mu.Lock()
		defer f.s.jobs.mu.Unlock()
		if is := f.s.jobs.left.all; is != n {
			return fmt.Sprintf("%d ended jobs count, not %d", is, n)
		}
		return ""
	})
	if f.T.Failed() {
		f.T.FailNow()
	}
}

// TestNothingLeft: no ordinary job counts after its end, whatever it made the kernel keep for a while.
func TestNothingLeft(t *testing.T) {
	var log fronttest.Output
	f := newFront(t, looking, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	f.s.jobs.left.press = 0 // have the kernel reclaim it, so that the test need not wait until it does by itself
	for n := range 2 {
		for _, script := range []string{
			":", "ls -lR /usr/share/perl >/dev/null", "sleep 0.01 & sleep 0.01 & wait", "head -c 40M /dev/zero > /tmp/file", "head -c 40M /dev/zero > file; rm file",
			fmt.Sprintf("mkdir %d && cd %[1]d && seq 600 | xargs touch && mkdir /tmp/d && cd /tmp/d && seq 600 | xargs touch", n),
			"find . -size +0", "yes | head -c 10M | cat | tail -c 1",
		} {
			if d := f.Run(f.Spec("sh", "-c", script)); d.ExitCode != 0 {
				t.Fatalf("%s: %+v", script, d)
			}
			f.s.jobs.mu.Lock()
			if n := f.s.jobs.left.all; n > 0 {
				t.Errorf("%s: %d ended jobs count", script, n)
			}
			f.s.jobs.mu.Unlock()
		}
	}
	// The kernel does not reclaim inodes that it has not written, and writes them by itself after half a minute.
	repo, err := os.Open(f.Repo)
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	if err := unix.Syncfs(int(repo.Fd())); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		f.s.jobs.mu.Lock()
		defer f.s.jobs.mu.Unlock()
		if sum := f.s.jobs.left.sums[owner]; sum.bytes[cell.LeftUnknown] > 0 || f.s.jobs.left.all > 0 {
			return fmt.Sprintf("%d count; not counted: %+v", f.s.jobs.left.all, sum)
		}
		return ""
	})
	if strings.Contains(log.String(), "still held") {
		t.Error(log.String())
	}
}

// TestCachesStay: what jobs read stays in the cache for the next one, also if the kernel keeps something else of theirs.
func TestCachesStay(t *testing.T) {
	f := newFront(t)
	path := filepath.Join(f.Repo, "data")
	if err := errors.Join(os.WriteFile(path, make([]byte, 4<<20), 0o600), os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := errors.Join(unix.Fsync(int(file.Fd())), unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		t.Fatal(err)
	}
	if n := cached(t, file); n > 0 {
		t.Fatalf("%d pages are cached before the job", n)
	}
	ss := f.Session(job.SessionSpec{Repo: f.Repo, Workspace: job.Direct})
	f.Must(ss, "cat data >/dev/null && seq 3000 | xargs touch")
	f.CloseSession(ss, false)
	eventually(t, func() string {
		f.s.jobs.mu.Lock()
		defer f.s.jobs.mu.Unlock()
		if sum := f.s.jobs.left.sums[owner]; sum.jobs == 0 {
			return fmt.Sprintf("the kernel keeps nothing else: %+v", sum)
		}
		return ""
	})
	// The kernel may drop a few pages by itself, as it does on a busy machine.
	if n, all := cached(t, file), 4<<20/os.Getpagesize(); n < all/2 {
		t.Errorf("%d of %d pages are cached after the job", n, all)
	}
}

// cached returns how many pages of a file are cached (mincore(2)).
func cached(t *testing.T, file *os.File) (n int) {
	t.Helper()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped) //nolint:errcheck // of what was mapped
	pages := make([]byte, len(mapped)/os.Getpagesize())
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mapped[0])), uintptr(len(mapped)), uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for _, p := range pages {
		n += int(p & 1)
	}
	return n
}

// TestLeftCounts: ended jobs count that left shared memory, and those beyond what a user's jobs may leave of other kinds.
func TestLeftCounts(t *testing.T) {
	const mib = 1 << 20
	left := newLeftovers()
	var all [4]leftJob
	for _, step := range []struct {
		job   int
		user  uint32
		kind  cell.LeftKind
		bytes int64
		count int // ended jobs of both users that count
	}{
		{0, 1, cell.LeftUnknown, 2 * maxUnknown, 0}, // a single one
		{1, 1, cell.LeftUnknown, mib, 1},
		{0, 1, cell.LeftUnknown, maxUnknown - mib, 1},
		{1, 1, cell.LeftUnknown, mib, 0},
		{2, 1, cell.LeftUnknown, mib, 1},
		{2, 1, cell.LeftKernel, maxKernel, 0},
		{1, 1, cell.LeftKernel, 1, 1},
		{3, 2, cell.LeftKernel, maxKernel, 1}, // another user
		{3, 2, cell.LeftKernel, maxKernel + 1, 2},
		{3, 2, cell.LeftShared, 1, 2},
		{3, 2, cell.LeftNothing, 0, 1},
		{2, 1, cell.LeftKernel, mib, 1},
		{1, 1, cell.LeftKernel, 1, 0},
		{1, 1, cell.LeftShared, 1, 1},
		{0, 1, cell.LeftNothing, 0, 1},
		{1, 1, cell.LeftNothing, 0, 0},
		{2, 1, cell.LeftNothing, 0, 0},
	} {
		left.change(step.user, &all[step.job], step.kind, step.bytes)
		if n := left.perUser[1] + left.perUser[2]; left.all != step.count || n != step.count {
			t.Fatalf("%+v: %d count in all, %d of users", step, left.all, n)
		}
	}
	if len(left.sums)+len(left.perUser) > 0 {
		t.Errorf("remain: %+v", left)
	}
	for _, step := range []struct {
		job     int
		bytes   int64
		reclaim bool
	}{{0, pressUnknown, false}, {1, mib, true}, {0, mib, false}, {1, 0, false}, {0, 0, false}} {
		kind := cell.LeftUnknown
		if step.bytes == 0 {
			kind = cell.LeftNothing
		}
		if got := left.change(1, &all[step.job], kind, step.bytes); got != step.reclaim {
			t.Errorf("%+v: %v", step, got)
		}
	}
	several := newLeftovers()
	for n := range pressAll + 1 {
		if user := uint32(n % 4); several.change(user, new(leftJob), cell.LeftUnknown, mib) != (n >= 4*pressLeaving) {
			t.Errorf("%d jobs of 4 users left a little: the kernel reclaims too early or too late", n+1)
		}
	}
	for range maxLeaving {
		left.change(1, new(leftJob), cell.LeftKernel, 1)
	}
	if left.change(1, new(leftJob), cell.LeftKernel, 1); left.all != 1 {
		t.Errorf("%d jobs that left one byte, and one more: %d count", maxLeaving, left.all)
	}
}
