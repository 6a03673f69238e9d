package artifact

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/flock"
	"corral/internal/test/sandboxtest"
)

// TestMain also plays another process that has the store open.
func TestMain(m *testing.M) {
	switch os.Getenv("ARTIFACT_TEST") {
	case "writer":
		os.Exit(writer())
	case "full":
		os.Exit(fullDisk())
	}
	os.Exit(m.Run())
}

// text returns the output of job n; n can be read from any part of it.
func text(n int) string {
	size := 10
	switch n % 7 {
	case 3:
		size = 3000
	case 6:
		size = 30_000 // more than is kept in memory
	}
	return strings.Repeat(fmt.Sprintf("job %d\n", n), size)
}

// writer stores the output of one job after another and prints each handle, until it is killed.
func writer() int {
	dir, err := os.Open(os.Getenv("ARTIFACT_TEST_DIR"))
	if err != nil {
		return 1
	}
	maxCount, _ := strconv.Atoi(os.Getenv("ARTIFACT_TEST_MOST"))
	s, err := Open(dir, Options{MaxCount: maxCount})
	if err != nil {
		return 2
	}
	for n := 0; n < 100_000; n++ {
		out := s.Begin(mine())
		o, e, err := out.Streams()
		if err != nil {
			return 3
		}
		_, _ = io.WriteString(o, text(n))
		o.Close()
		e.Close()
		out.Finish(record())
		if _, err := fmt.Fprintln(os.Stdout, n, out.Captured().Handle, out.Captured().Reason); err != nil {
			return 4
		}
	}
	return 0
}

func startWriter(t *testing.T, dir string, maxCount int) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "ARTIFACT_TEST=writer", "ARTIFACT_TEST_DIR="+dir, "ARTIFACT_TEST_MOST="+strconv.Itoa(maxCount))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(stdout)
}

// TestKilled kills writers at random moments: every artifact whose handle was printed can be read and is correct, and
// nothing else remains.
func TestKilled(t *testing.T) {
	const maxCount = 1000 // more than are stored between printing a handle and reading its artifact
	dir := t.TempDir()
	s := openStore(t, dir, Options{MaxCount: maxCount})
	for round := range sandboxtest.Scale(25) {
		var last []string
		var cmds []*exec.Cmd
		for range 2 {
			cmd, lines := startWriter(t, dir, maxCount)
			cmds = append(cmds, cmd)
			for range 1 + round%9 {
				if !lines.Scan() {
					t.Fatal("the writer ended")
				}
				last = strings.Fields(lines.Text())
			}
		}
		for i, cmd := range cmds { // the writers continue meanwhile
			time.Sleep(time.Duration(round*i*137) * time.Microsecond) // deliberately not synchronized: any moment will do
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		var n int
		if _, err := fmt.Sscan(last[0], &n); err != nil || len(last) != 2 {
			t.Fatalf("printed %q", last)
		}
		if got, _, err := content(s, ada, last[1]); got != text(n) || err != nil {
			t.Fatalf("job %d: %d bytes, %v", n, len(got), err)
		}
		if round%5 == 4 {
			checkStore(t, s)
		}
	}
	s.disk.Sweep(context.Background())
	for _, name := range entries(t, dir) {
		if _, ok := parseHandle(name); !ok {
			t.Errorf("remains: %s", name)
		}
	}
}

// checkStore reads and verifies every artifact.
func checkStore(t *testing.T, s *Store) {
	t.Helper()
	list, err := s.disk.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		got, _, err := content(s, ada, a.Handle)
		if errors.Is(err, ErrNotFound) {
			continue // evicted
		}
		var n int
		if _, serr := fmt.Sscanf(got, "job %d\n", &n); err != nil || serr != nil || got != text(n) {
			t.Fatalf("%s: %.40q, %v", a.Handle, got, err)
		}
	}
}

// TestProcesses: several processes write and sweep at once, and the quota covers all of them together.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{MaxCount: 50})
	var cmds []*exec.Cmd
	var outs []*bufio.Scanner
	for range 3 {
		cmd, lines := startWriter(t, dir, 50)
		cmds, outs = append(cmds, cmd), append(outs, lines)
	}
	for i := range sandboxtest.Scale(60) {
		for _, lines := range outs {
			if !lines.Scan() {
				t.Fatal("a writer ended")
			}
			if f := strings.Fields(lines.Text()); len(f) != 2 {
				t.Fatalf("a writer could not store: %q", f)
			}
		}
		if i%10 == 0 {
			s.disk.Sweep(context.Background())
		}
		// The list is not a snapshot: it may contain an artifact that a writer just evicted, together with its
		// successor.
		list, err := s.disk.List()
		if err != nil || len(list) > 50+len(cmds) {
			t.Fatalf("%d artifacts, %v", len(list), err)
		}
	}
	for _, cmd := range cmds {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	checkStore(t, s)
}

// TestStoppedProcess: a process that is stopped while it holds the quota's lock does not block commits.
func TestStoppedProcess(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	held, err := os.Open(filepath.Join(dir, dirName, quotaName))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	// The initial sweep may hold it.
	for flock.Try(int(held.Fd()), unix.LOCK_EX) != nil {
		runtime.Gosched()
	}
	if got := put(t, s, mine(), "x", "").Captured(); got.Handle == "" {
		t.Error(got.Reason)
	}
	held.Close()
	s.disk.Sweep(context.Background())
	if u := usageOf(t, dir); u.count != 1 {
		t.Errorf("%+v", u)
	}
}

// TestFullDisk fills a disk of 1 MiB in a mount namespace of its own.
func TestFullDisk(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "ARTIFACT_TEST=full", "ARTIFACT_TEST_DIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// fullDisk fills a small disk with artifacts. Each job's output must be captured, and must say whether it was stored.
func fullDisk() int {
	dir := os.Getenv("ARTIFACT_TEST_DIR")
	fail := func(a ...any) int { fmt.Fprintln(os.Stderr, a...); return 1 }
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		return fail(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return fail(err)
	}
	s, err := Open(f, Options{})
	if err != nil {
		return fail(err)
	}
	defer s.Close()
	noise := make([]byte, 300<<10)
	for i := range noise {
		noise[i] = byte(i * i >> 3 * 2654435761 >> 7)
	}
	stored, refused := 0, 0
	for n := range 60 {
		in := string(noise[:1000+n*5000%len(noise)])
		begin := mine()
		begin.View.Lines = 10
		out := s.Begin(begin)
		o, e, err := out.Streams()
		if err != nil {
			return fail(err)
		}
		e.Close()
		_, _ = io.WriteString(o, in)
		o.Close()
		out.Finish(record())
		switch got := out.Captured(); {
		case got.Stdout.Bytes != int64(len(in)) || got.Stdout.Summary == "":
			return fail("no result", got.Stdout.Bytes)
		case got.Handle == "" && !strings.Contains(got.Reason, "no space left on device"):
			return fail("not stored:", got.Reason)
		case got.Handle == "":
			refused++
		default:
			stored++
			if back, _, err := content(s, ada, got.Handle); back != in || err != nil {
				return fail("stored", len(in), "read", len(back), err)
			}
		}
	}
	all, err := os.ReadDir(filepath.Join(dir, dirName))
	if err != nil {
		return fail(err)
	}
	for _, e := range all {
		if strings.HasPrefix(e.Name(), ".") && e.Name() != quotaName {
			return fail("left:", e.Name())
		}
	}
	if stored == 0 || refused == 0 {
		return fail(stored, "stored,", refused, "refused")
	}
	return 0
}
