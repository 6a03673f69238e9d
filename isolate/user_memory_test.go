package isolate

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/job"
)

// charged reads a file of the memory cgroup of a user, by its name on v1 or v2; -1: there is none.
func (s *Supervisor) charged(t *testing.T, uid int, names ...string) int64 {
	t.Helper()
	for _, dir := range traces(s.InstanceName()) {
		for _, name := range names {
			b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("user-", uid), name))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if string(b) == "max\n" {
				return math.MaxInt64
			}
			n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return -1
}

// slack is what the kernel charges beyond a limit, such as for processes that it has killed.
const slack = 1 << 20

// neighbor returns a front of another user of the same supervisor.
func (f *front) neighbor(t *testing.T) *front {
	t.Helper()
	repo := filepath.Join(t.TempDir(), "repo")
	mkdir(t, repo, owner+1)
	return frontOf(t, f.s, connect(t, f.s, host.Peer{UID: owner + 1}), repo)
}

// TestUserMemory: however many jobs a user has, they have no more memory together than the user may. The kernel ends jobs of that user, whose
// results say so, and no others.
func TestUserMemory(t *testing.T) {
	for _, c := range []struct {
		jobs, size, bound int // size of the file of each, in MiB
	}{{256, 2, 192}, {8, 40, 128}} {
		t.Run(fmt.Sprint(c.jobs), func(t *testing.T) {
			f := newFront(t, func(conf *Config) { conf.UserMemory, conf.Log = int64(c.bound)<<20, nil })
			other := f.neighbor(t)
			beside := other.Launch(other.Spec("sh", "-c", "echo ready; read -r line; echo well"))
			spec := f.Spec("sh", "-c", fmt.Sprintf("head -c %dM /dev/zero >/tmp/file && echo full && read -r line", c.size))
			var all []*live
			for range c.jobs {
				l, err := f.Start(spec)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, l)
			}
			for _, l := range all {
				select {
				case <-l.Out.Seen: // it keeps its memory
				case <-l.Out.Done:
				}
			}
			ended := map[string]int{}
			for _, l := range all {
				d, err := l.End()
				how := fmt.Sprint(d.Status, " ", d.Limit)
				var refused *job.Refusal
				if errors.As(err, &refused) {
					how = fmt.Sprint("refused ", refused)
				}
				ended[how]++
			}
			t.Logf("%v", ended)
			if ended["failure "+job.LimitUserMemory] == 0 || ended["failure "+job.LimitMemory] > 0 {
				t.Errorf("jobs ended: %v", ended)
			}
			bound := int64(c.bound) << 20
			if peak := f.s.charged(t, owner, "memory.max_usage_in_bytes", "memory.peak"); peak > bound+slack || peak < bound/2 {
				t.Errorf("the jobs had %d bytes together, and may have %d", peak, bound)
			}
			if d, err := beside.End(); err != nil || d.Status != job.Success || d.Limit != "" {
				t.Errorf("another user's job: %+v, %v", d, err)
			}
			eventually(t, func() string { // once the slots of the others are torn down
				if d, err := f.Try(f.Spec("echo", "well")); err != nil || d.Out != "well\n" {
					return fmt.Sprintf("the user's next job: %+v, %v", d, err)
				}
				return ""
			})
		})
	}
}

// passOn is a Perl program that writes a memory file, and passes it on to the process that listens at the socket s.
func passOn(bytes int) string {
	return fmt.Sprintf(`use Socket; my $s; socket($s, PF_UNIX, SOCK_STREAM, 0) && connect($s, sockaddr_un("s")) or die "connect: $!";
my $fd = syscall(%d, my $name = "m", 0); $fd >= 0 or die "memfd_create: $!";
open(my $m, ">&=", $fd) or die; my $part = "x" x 65536; for (1..%d) { syswrite($m, $part) == 65536 or die "write: $!" }
my $iov = pack("PQ", my $byte = "x", 1); my $rights = pack("Qiiix4", 20, SOL_SOCKET, 1, $fd);
my $message = pack("QLx4PQPQix4", 0, 0, $iov, 1, $rights, 24, 0);
syscall(%[3]d, fileno($s), $message, 0) == 1 or die "sendmsg: $!"; print "passed"`, unix.SYS_MEMFD_CREATE, bytes/65536, unix.SYS_SENDMSG)
}

// TestUserMemoryLeft: memory that ended jobs have left, and that others hold, counts for their user until it is free, whichever jails they
// were in, and for nobody else. So jobs in turn gather no more than the user may have.
func TestUserMemoryLeft(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	const size, bound = 24 << 20, 128 << 20
	for _, sessions := range []bool{false, true} {
		t.Run(map[bool]string{false: "jobs", true: "sessions"}[sessions], func(t *testing.T) {
			f := newFront(t, func(c *Config) { c.UserMemory, c.Log = bound, nil })
			other := f.neighbor(t)
			listen := func() (l net.Listener) { // nobody accepts the connections, so descriptors stay in the kernel's queue
				path := filepath.Join(f.Repo, "s")
				l, err := net.Listen("unix", path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Chown(path, owner, owner); err != nil {
					t.Fatal(err)
				}
				return l
			}
			pass := func() string {
				spec := f.Spec("perl", "-e", passOn(size))
				if sessions {
					ss, err := f.C.OpenSession(t.Context(), job.SessionSpec{Repo: f.Repo, Disk: 32 << 20})
					if err != nil {
						return err.Error()
					}
					defer f.CloseSession(ss, false)
					spec.Session = ss.ID
				}
				d, err := f.Try(spec)
				return fmt.Sprint(d.Out, d.Err, d.Limit, err)
			}
			now := func() int64 { return f.s.charged(t, owner, "memory.usage_in_bytes", "memory.current") }
			held := listen()
			passed := int64(0)
			said := map[string]int{}
			for range 10 {
				how := pass()
				if said[how]++; how == "passed<nil>" {
					passed += size
				}
			}
			t.Logf("%v", said)
			if passed < 3*size || passed > bound || said[job.LimitUserMemory+"<nil>"] == 0 {
				t.Errorf("jobs left %d bytes: %v", passed, said)
			}
			if n := now(); n < passed || n > bound+slack {
				t.Errorf("the user is charged for %d bytes", n)
			}
			other.Sh("head -c 8M /dev/zero >/tmp/file")
			if n := f.s.charged(t, owner+1, "memory.usage_in_bytes", "memory.current"); n < 0 || n > 3*size {
				t.Errorf("another user is charged for %d bytes", n)
			}
			held.Close()
			eventually(t, func() string {
				if n := now(); n > bound/2 {
					return fmt.Sprintf("%d bytes are still charged", n)
				}
				return ""
			})
			defer listen().Close()
			if how := pass(); how != "passed<nil>" {
				t.Error(how)
			}
		})
	}
}

// TestReloadUserMemory: a reload changes what users may have, also those that are there.
func TestReloadUserMemory(t *testing.T) {
	f, w := reloadable(t)
	f.Sh("true")
	for _, bytes := range []int64{256 << 20, 512 << 20, -1} {
		w.write(func(c *Config) { c.UserMemory = bytes })
		if notes := f.reload(); len(notes) > 0 {
			t.Errorf("notes %q", notes)
		}
		f.Sh("true")
		if n := f.s.charged(t, owner, "memory.limit_in_bytes", "memory.max"); bytes > 0 && n != bytes || bytes < 0 && n < 1<<60 {
			t.Errorf("a user may have %d bytes, want %d", n, bytes)
		}
	}
}
