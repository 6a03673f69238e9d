package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
	"corral/seccomp"
)

func compileStore(t *testing.T) []byte {
	t.Helper()
	filter, err := seccomp.Compile(seccomp.EgressStore, runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	return filter
}

// storeDirectory returns the directory of a store as the supervisor makes it, below one that only root reaches, and a change to start.
func storeDirectory(t *testing.T) (path string, change func(*exec.Cmd)) {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.LandlockABI(1))
	root := filepath.Join(sandboxtest.OpenDir(t), "cache")
	path = filepath.Join(root, "1000")
	for _, dir := range []string{root, path} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(path, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	return path, func(c *exec.Cmd) {
		dir, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dir.Close() })
		c.ExtraFiles = append(c.ExtraFiles, dir)
		c.Env = append(c.Env, sizeVariable+"=1048576")
	}
}

// TestProgramStore: under its filter and Landlock, the program keeps what it got of a registry, and the next process, which has another
// id, gives it to jobs while the registry is off.
func TestProgramStore(t *testing.T) {
	path, change := storeDirectory(t)
	for n, id := range []int{nobody, nobody - 1} {
		if err := os.Chown(path, id, id); err != nil {
			t.Fatal(err)
		}
		p := start(t, compileStore(t), func(c *exec.Cmd) {
			change(c)
			c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}
		})
		job := nettest.Job(t)
		p.trust()
		p.open(job, `{"allow":[{"host":"inspected.example.org","registry":"go"}],"private":["192.0.2.10/32"]}`)
		var off atomic.Bool
		off.Store(n > 0)
		leaf, err := p.authority.Leaf("inspected.example.org")
		if err != nil {
			t.Fatal(err)
		}
		server := &httptest.Server{Listener: p.internet.Listen(netip.AddrPortFrom(alpha, 443)), Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if off.Load() {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, "a zip")
		})}}
		server.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}}
		server.StartTLS()
		t.Cleanup(server.Close)
		c := client(t, job)
		c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // whose certificate it is does not matter here
		for range 2 {
			reply, err := c.Get("https://inspected.example.org/a/@v/v1.0.0.zip")
			if err != nil {
				t.Fatalf("%v; %s", err, p.stop())
			}
			body, err := io.ReadAll(reply.Body)
			reply.Body.Close()
			if err != nil || string(body) != "a zip" {
				t.Errorf("process %d: %d %q, %v; %s", n, reply.StatusCode, body, err, p.stderr)
			}
			off.Store(true)
		}
		c.CloseIdleConnections()
		p.end()
		if out := p.stop(); strings.Contains(out, "not kept") || strings.Contains(out, "panic") {
			t.Error(out)
		}
	}
	names, err := os.ReadDir(path)
	if err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
}

// TestRefusesStore: a store without a directory or with an impossible bound is refused.
func TestRefusesStore(t *testing.T) {
	path, change := storeDirectory(t)
	for name, tt := range map[string]struct {
		change func(*exec.Cmd)
		want   string
	}{
		"no directory": {func(c *exec.Cmd) { c.Env = append(c.Env, sizeVariable+"=1") }, "not the directory of the store"},
		"a file": {func(c *exec.Cmd) {
			change(c)
			c.ExtraFiles[2] = memory(t, nil)
		}, "not the directory of the store"},
		"no bound": {func(c *exec.Cmd) {
			change(c)
			c.Env = append(c.Env, sizeVariable+"=0")
		}, "must be a number of bytes"},
	} {
		p := start(t, compileStore(t), tt.change)
		if err := p.cmd.Wait(); err == nil || !strings.Contains(p.stderr.String(), tt.want) {
			t.Errorf("%s: %v: %s", name, err, p.stderr)
		}
	}
	// A directory that is not the process's own keeps nothing, and connections work.
	if err := os.Chown(path, 0, 0); err != nil {
		t.Fatal(err)
	}
	p := start(t, compileStore(t), change)
	p.open(nettest.Job(t), rules)
	if p.end(); !strings.Contains(p.stop(), "packages are not kept") {
		t.Error(p.stderr)
	}
}

// attemptsVariable makes the test binary a process that was taken over after it confined itself: a JSON list of its attempts.
const attemptsVariable = "CORRAL_TEST_ATTEMPTS"

// A storeAttempt is what a process tries that was taken over. above is the directory that has its store in it.
type storeAttempt struct {
	name string
	try  func(above string) error
	ok   bool // it belongs to the store
	// The filter refuses it. Landlock has no right for it, or it changes nothing but what the process may change.
	filtered bool
}

func storeAttempts() []storeAttempt {
	open := func(dir int, path string, flags int) error {
		fd, err := unix.Openat(dir, path, flags|unix.O_CLOEXEC, 0o666)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	const create = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL
	return []storeAttempt{
		{"make a file", func(string) error { return open(storeFD, "new", create) }, true, false},
		{"rename it", func(string) error { return unix.Renameat2(storeFD, "new", storeFD, "renamed", 0) }, true, false},
		{"read it", func(string) error { return open(storeFD, "renamed", unix.O_RDONLY|unix.O_NOFOLLOW) }, true, false},
		{"remove it", func(string) error { return unix.Unlinkat(storeFD, "renamed", 0) }, true, false},
		{"read a file of the host", func(string) error { return open(unix.AT_FDCWD, "/etc/hosts", unix.O_RDONLY) }, false, false},
		{"write one", func(above string) error { return open(unix.AT_FDCWD, above+"/open", unix.O_WRONLY) }, false, false},
		{"make one", func(above string) error { return open(unix.AT_FDCWD, above+"/new", create) }, false, false},
		{"make one above the store", func(string) error { return open(storeFD, "../new", create) }, false, false},
		{"read another user's store", func(string) error { return open(storeFD, "../other/file", unix.O_RDONLY) }, false, false},
		{"write to another user's store", func(string) error { return open(storeFD, "../other/new", create) }, false, false},
		{"follow a link", func(string) error { return open(storeFD, "link", unix.O_RDONLY) }, false, false},
		{"write through a link", func(string) error { return open(storeFD, "link", unix.O_WRONLY) }, false, false},
		{"move a file out", func(string) error { return unix.Renameat2(storeFD, "mine", storeFD, "../other/mine", 0) }, false, false},
		{"move a file in", func(string) error { return unix.Renameat2(storeFD, "../other/file", storeFD, "file", 0) }, false, false},
		{"remove a file of others", func(string) error { return unix.Unlinkat(storeFD, "../other/file", 0) }, false, false},
		{"make a link", func(string) error { return unix.Symlinkat("/etc/passwd", storeFD, "planted") }, false, false},
		{"make a hard link out", func(string) error { return unix.Linkat(storeFD, "mine", storeFD, "../other/mine", 0) }, false, false},
		{"make a directory", func(string) error { return unix.Mkdirat(storeFD, "directory", 0o777) }, false, false},
		{"make a fifo", func(string) error { return unix.Mknodat(storeFD, "fifo", unix.S_IFIFO|0o666, 0) }, false, false},
		{"open a file to execute", func(string) error { return unix.Exec("/bin/true", []string{"true"}, nil) }, false, false},
		{"change rights", func(string) error { return unix.Fchmodat(storeFD, "mine", 0o4777, 0) }, false, true},
		{"make a file without a name", func(string) error { return open(storeFD, ".", unix.O_TMPFILE|unix.O_WRONLY) }, false, true},
		{"get the directory above", func(string) error { return open(storeFD, "..", unix.O_PATH) }, false, true},
		{"look at a file of the host", func(string) error {
			return unix.Fstatat(unix.AT_FDCWD, "/etc/hosts", new(unix.Stat_t), unix.AT_SYMLINK_NOFOLLOW)
		}, false, true},
		{"truncate", func(string) error { return unix.Truncate("mine", 0) }, false, true},
	}
}

// attempts confines this process as the program does, and prints the errno of each attempt.
func attempts() {
	runtime.LockOSThread() // the test binary is linked with a C library: this thread alone makes the attempts
	if err := confine(filterFD, storeFD, syscall.RawSyscall6); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var results []int
	for _, a := range storeAttempts() {
		errno := syscall.Errno(0)
		errors.As(a.try(os.Getenv(attemptsVariable)), &errno)
		results = append(results, int(errno))
	}
	_ = json.NewEncoder(os.Stdout).Encode(results)
}

// TestTakenOver: a process that was taken over writes and reads nothing but regular files in the directory of its store: by Landlock alone,
// and with the filter, although everybody may write to what is beside it.
func TestTakenOver(t *testing.T) {
	path, _ := storeDirectory(t)
	above := filepath.Dir(path)
	other := filepath.Join(above, "other")
	for _, err := range []error{
		os.Chmod(above, 0o777), os.Mkdir(other, 0o777), os.Chmod(other, 0o777),
		os.WriteFile(filepath.Join(above, "open"), nil, 0o666), os.Chmod(filepath.Join(above, "open"), 0o666),
		os.WriteFile(filepath.Join(other, "file"), nil, 0o666), os.Chmod(filepath.Join(other, "file"), 0o666),
		os.WriteFile(filepath.Join(path, "mine"), nil, 0o666), os.Chown(filepath.Join(path, "mine"), nobody, nobody),
		os.Symlink(filepath.Join(other, "file"), filepath.Join(path, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	everything := []byte{unix.BPF_RET, 0, 0, 0, 0, 0, 0xff, 0x7f} // SECCOMP_RET_ALLOW
	for name, filter := range map[string][]byte{"landlock": everything, "landlock and filter": compileStore(t)} {
		dir, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		self, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Cmd{
			Path: fmt.Sprintf("/proc/self/fd/%d", self.Fd()), Args: []string{"attempts"}, Env: []string{attemptsVariable + "=" + above}, Stderr: os.Stderr, Dir: "/",
			ExtraFiles: []*os.File{memory(t, nil), memory(t, filter), dir}, SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}},
		}
		out, err := cmd.Output()
		self.Close()
		dir.Close()
		var got []int
		list := storeAttempts()
		if err != nil || json.Unmarshal(out, &got) != nil || len(got) != len(list) {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		for i, a := range list {
			unbounded := a.filtered && name == "landlock"
			if done := got[i] == 0; done != a.ok && !unbounded {
				t.Errorf("%s: %s: %v", name, a.name, syscall.Errno(got[i]))
			}
		}
	}
	for _, dir := range []string{above, other, path} {
		names, err := os.ReadDir(dir)
		if err != nil || len(names) > 3 {
			t.Errorf("%s has %v, %v", dir, names, err)
		}
	}
}
