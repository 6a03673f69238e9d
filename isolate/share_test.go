package isolate

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// TestPerUserShares: of resources that the kernel counts for all users of a jail together, one job can use only a
// part.
func TestPerUserShares(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	// The jail's maximums of pending signals and processes would be those of the process that creates it. Set them
	// above one job's limits and below two jobs'.
	for resource, most := range map[int]uint64{unix.RLIMIT_SIGPENDING: 5000, unix.RLIMIT_NPROC: 160} {
		var before unix.Rlimit
		if err := unix.Getrlimit(resource, &before); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Setrlimit(resource, &before); err != nil {
				t.Error(err)
			}
		}()
	}
	host := func(name string) int {
		b, err := os.ReadFile("/proc/sys/fs/inotify/" + name)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	f := newFront(t)
	// The job blocks these signals, so they stay queued.
	script := fmt.Sprintf(`$| = 1;
my ($instances, $watches, $signals, $processes) = (0, 0, 0, 0);
while ($processes < 100) { my $p = fork; last unless defined $p; if (!$p) { sleep 1000; exit } $processes++ }
my @fds; for (my $fd; $instances < 100000 && ($fd = syscall(%[1]d, 0)) >= 0; $instances++) { push @fds, $fd }
my @files = map { "/tmp/$_" } 1 .. %[4]d / @fds + 2; for (@files) { open(my $f, ">", $_) }
for my $fd (@fds) { for my $file (@files) { syscall(%[5]d, $fd, $file, 2) < 0 ? last : $watches++ } }
my $set = pack("Q", ~0); my $old = "\0" x 8; my $info = pack("iiix116", 40, 0, -1);
syscall(%[2]d, 0, $set, $old, 8);
$signals++ while $signals < 100000 && syscall(%[3]d, $$+0, 40, $info) == 0;
print "$instances instances, $watches watches, $signals signals, $processes processes\n"; <STDIN>`, unix.SYS_INOTIFY_INIT1, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGQUEUEINFO,
		host("max_user_watches")/4, unix.SYS_INOTIFY_ADD_WATCH)
	want := fmt.Sprintf("%d instances, %d watches, 4096 signals, 100 processes\n", host("max_user_instances")/4, host("max_user_watches")/4)
	for range 3 {
		l, err := f.Start(f.Spec("perl", "-e", script))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			l.In.Close()
			if _, err := l.End(); err != nil {
				t.Error(err)
			}
		}()
		if l.Until("\n"); l.Out.String() != want {
			t.Errorf("%q, want %q: %s", l.Out.String(), want, l.Err.String())
		}
	}
}
