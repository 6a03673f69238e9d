package scan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"

	"golang.org/x/sys/unix"
)

// deepen creates a chain of n directories below dir, deeper than any path can name, and a file at its end.
func deepen(t testing.TB, dir string, n int, name, file string) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	defer unix.Close(fd)
	f, err := unix.Openat(fd, file, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(f)
}

// TestDeep: a file is found though its path is longer than PATH_MAX, and a tree deeper than MaxDepth makes a report
// Incomplete.
func TestDeep(t *testing.T) {
	long := strings.Repeat("d", 200) // 250 levels make a path of 50,000 bytes
	for _, tc := range []struct {
		levels     int
		name       string
		found      bool
		incomplete bool
	}{
		{MaxDepth, "d", true, false},
		{250, long, true, false},
		{MaxDepth + 1, "d", false, true},
		{1000, "d", false, true},
	} {
		t.Run(fmt.Sprintf("%d of %d", tc.levels, len(tc.name)), func(t *testing.T) {
			dir := t.TempDir()
			s := scanner(t, dir, Bounds{})
			baseline(t, s)
			since := settle()
			deepen(t, dir, tc.levels, tc.name, ".envrc")
			rep := changed(t, s, since)
			var want []string
			if tc.found {
				want = []string{strings.Repeat(tc.name+"/", tc.levels) + ".envrc"}
			}
			if !slices.Equal(rep.Paths, want) || rep.Incomplete != tc.incomplete {
				t.Errorf("%d paths, incomplete %v", len(rep.Paths), rep.Incomplete)
			}
			if rep := changed(t, s, settle()); rep.Paths != nil || rep.Incomplete != tc.incomplete {
				t.Errorf("again: %d paths, incomplete %v", len(rep.Paths), rep.Incomplete)
			}
			bytes, inodes, err := s.Usage(since)
			if (err != nil) != tc.incomplete || err != nil && !errors.Is(err, ErrIncomplete) || inodes < MaxDepth-7 || bytes < 0 {
				t.Errorf("Usage = %d, %d, %v", bytes, inodes, err)
			}
		})
	}
}

// TestHostileKinds: FIFOs, loops of links and links to the outside are reported without being followed or blocking.
func TestHostileKinds(t *testing.T) {
	dir := t.TempDir()
	s := scanner(t, dir, Bounds{})
	baseline(t, s)
	since := settle()
	shell(t, dir, `
		mkdir a b c d e
		mkfifo a/.git a/.envrc
		ln -s / b/.git; ln -s .. b/loop; ln -s . b/.claude; ln -s self b/self; ln -s self b/.mcp.json
		ln -s / c/root; ln -s /etc c/.vscode
		mkdir d/.git; mkfifo d/.git/config d/.git/HEAD; ln -s / d/.git/hooks; ln -s /dev/zero d/.git/commondir
		ln -s /proc/self/root e/.git; ln -s ../../../../../../etc/passwd e/.npmrc`)
	want := []string{
		"a/.envrc", "a/.git", "b/.claude", "b/.git", "b/.mcp.json", "c/.vscode", "d/.git/commondir", "d/.git/config",
		"d/.git/hooks", "e/.git", "e/.npmrc",
	}
	if rep := changed(t, s, since); !slices.Equal(rep.Paths, want) || rep.Incomplete || rep.Dirs > 20 {
		t.Errorf("report = %+v", rep)
	}
	same(t, s)
}

// TestOpenAt: openAt opens only directories below dir.
func TestOpenAt(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, "mkdir -p in/dir; ln -s dir in/link; ln -s / in/root; ln -s .. in/up; ln -s /proc/self/fd in/magic; mkfifo in/fifo; echo > in/file")
	fd, err := unix.Open(filepath.Join(dir, "in"), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, tc := range []struct {
		name string
		want error
	}{
		{"dir", nil},
		{".", nil},
		{"..", unix.EXDEV},
		{"dir/../..", unix.EXDEV},
		{"/", unix.EXDEV},
		{"link", unix.ENOTDIR},
		{"link/.", unix.ELOOP},
		{"root", unix.ENOTDIR},
		{"up", unix.ENOTDIR},
		{"magic", unix.ENOTDIR},
		{"fifo", unix.ENOTDIR},
		{"file", unix.ENOTDIR},
		{"missing", unix.ENOENT},
	} {
		for _, access := range []uint64{unix.O_RDONLY, unix.O_PATH} {
			got, err := openAt(fd, tc.name, access)
			if err == nil {
				unix.Close(got)
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("openAt(%q, %#x) = %v, want %v", tc.name, access, err, tc.want)
			}
		}
	}
}

// TestMount: neither a mount point nor a bind mount of the same file system is entered.
func TestMount(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	outside, dir := t.TempDir(), t.TempDir()
	shell(t, outside, "mkdir .git; echo > .git/config; echo > .envrc")
	shell(t, dir, "mkdir bound tmp")
	for _, m := range [][2]string{{outside, "bound"}, {"", "tmp"}} {
		at := filepath.Join(dir, m[1])
		var err error
		if m[0] == "" {
			err = unix.Mount("none", at, "tmpfs", 0, "size=1m")
		} else {
			err = unix.Mount(m[0], at, "", unix.MS_BIND, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	s := scanner(t, dir, Bounds{})
	baseline(t, s)
	since := settle()
	shell(t, dir, "echo x > bound/.envrc; echo x > tmp/.envrc; echo x > .npmrc")
	for range 2 {
		rep := changed(t, s, since)
		if rep.Incomplete || len(rep.Paths) > 1 || slices.Contains(rep.Paths, "bound/.envrc") {
			t.Errorf("report = %+v", rep)
		}
	}
	if _, inodes, err := s.Usage(since); err != nil || inodes > 4 {
		t.Errorf("Usage = %d inodes, %v", inodes, err)
	}
}

// TestSwap: while a job replaces directories with links to the outside and back during walks, the scanner never reads the
// outside.
func TestSwap(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	shell(t, outside, "fallocate -l 16M large; mkdir -p .git/hooks deep/.git/hooks; echo > .git/hooks/outside; echo > deep/.git/hooks/outside; echo > .envrc")
	shell(t, dir, "mkdir -p a/deep/.git/hooks b/c; echo > a/deep/.git/hooks/inside; ln -s "+outside+" link")
	s := scanner(t, dir, Bounds{})
	baseline(t, s)
	stop := make(chan struct{})
	var job sync.WaitGroup
	job.Go(func() {
		swap := func(a, b string) {
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, a), unix.AT_FDCWD, filepath.Join(dir, b), unix.RENAME_EXCHANGE)
		}
		for {
			select {
			case <-stop:
				return
			default:
				swap("a", "link")
				swap("b", "link")
				swap("a", "b")
				_ = os.Mkdir(filepath.Join(dir, "b/c/.git"), 0o755)
				_ = os.Remove(filepath.Join(dir, "b/c/.git"))
			}
		}
	})
	seen := map[string]bool{}
	for i := range 2000 {
		rep, err := s.Changed(time.Time{})
		if i%200 == 0 {
			rep, err = s.Baseline()
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range rep.Paths {
			seen[p] = true
			if strings.Contains(p, "outside") || strings.HasSuffix(p, ".envrc") {
				t.Fatalf("read outside: %q", p)
			}
		}
		if bytes, _, err := s.Usage(time.Time{}); err != nil && !errors.Is(err, ErrIncomplete) || bytes >= 16<<20 {
			t.Fatalf("Usage = %d, %v", bytes, err)
		}
	}
	close(stop)
	job.Wait()
	// Once the job has ended, one pass brings everything up to date.
	since := time.Now()
	shell(t, dir, "echo > .npmrc")
	if rep := changed(t, s, since); rep.Incomplete || !slices.Contains(rep.Paths, ".npmrc") {
		t.Errorf("after the job: %+v", rep)
	}
	same(t, s)
	t.Logf("%d paths seen", len(seen))
}

// TestUnreadable: a sensitive directory that becomes unreadable is reported, and read again once it is readable.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	mkdir := func(name string, mode os.FileMode) {
		if err := os.Mkdir(filepath.Join(dir, name), mode); err != nil {
			t.Error(err)
		}
	}
	s := scanner(t, dir, Bounds{})
	sandboxtest.AsNobody(t, dir, func() {
		for _, name := range []string{".git", ".git/hooks", "plain", "plain/.git"} {
			mkdir(name, 0o755)
		}
		if _, err := s.Baseline(); err != nil {
			t.Error(err)
		}
		since := settle()
		for _, name := range []string{".git/hooks", "plain"} {
			if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
				t.Error(err)
			}
		}
		mkdir(".claude", 0)
		for _, want := range [][]string{{".git/hooks", ".claude"}, nil} {
			rep, err := s.Changed(since)
			if err != nil || !slices.Equal(rep.Paths, want) || !rep.Incomplete {
				t.Errorf("report = %+v, %v\nwant %q", rep, err, want)
			}
			since = settle()
		}
		for _, name := range []string{".git/hooks", "plain", ".claude"} {
			_ = os.Chmod(filepath.Join(dir, name), 0o700)
		}
		if rep, err := s.Changed(since); err != nil || rep.Incomplete {
			t.Errorf("readable again: %+v, %v", rep, err)
		}
	})
	same(t, s)
}
