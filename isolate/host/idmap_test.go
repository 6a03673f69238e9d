package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// maker returns a UsernsMaker for the test.
func maker(t testing.TB) *UsernsMaker {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root)
	p, err := LoadPrograms(programsDir(t))
	if err != nil {
		t.Fatal(err)
	}
	m := &UsernsMaker{stub: p.Stub}
	t.Cleanup(func() {
		m.Close()
		p.Close()
	})
	return m
}

// ownerOf returns the host user who owns a user namespace (ioctl_nsfs(2)).
func ownerOf(t *testing.T, ns *os.File) uint32 {
	t.Helper()
	const getOwner = 0xb704 // NS_GET_OWNER_UID
	var uid uint32
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, ns.Fd(), getOwner, uintptr(unsafe.Pointer(&uid))); errno != 0 {
		t.Fatal(errno)
	}
	return uid
}

// holders returns the children of m's helper, which hold namespaces open.
func holders(t *testing.T, m *UsernsMaker) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", m.pid, m.pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestUsernsMaker: concurrent requests get namespaces with the right owner and ids, and leave nothing but the
// descriptor.
func TestUsernsMaker(t *testing.T) {
	m := maker(t)
	const top = 1 << 20
	var all sync.WaitGroup
	for n := range uint32(40) {
		all.Go(func() {
			base := top + n*uidBlock
			ns, err := m.JailMap(base)
			if err != nil {
				t.Error(err)
				return
			}
			defer ns.Close()
			if uid := ownerOf(t, ns); uid != base {
				t.Errorf("owner is user %d, want %d", uid, base)
			}
			want := fmt.Sprintf("0 %d 1,%d %d %d", base, FirstJobUID, base+1, JobUIDs)
			if got := maps(t, ns); got != want+";"+want {
				t.Errorf("maps %q, want %q twice", got, want)
			}
		})
	}
	all.Wait()
	ns, err := m.IDMap(1000, 1001, top, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if got := maps(t, ns); got != "1000 1048576 3;1001 1048576 3" || ownerOf(t, ns) != 0 {
		t.Errorf("maps %q of user %d", got, ownerOf(t, ns))
	}
	repo, err := m.RepoMap(Owner{UID: 1000, GID: 100, Group: 100}, top+1, top)
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	if got, want := maps(t, repo), "1000 1048577 1;100 1048577 1,0 0 100,101 101 1048476,1048578 1048578 4293918717"; got != want {
		t.Errorf("maps of a repository %q, want %q", got, want)
	}
	eventually(t, func() string { return holders(t, m) })
}

// maps returns the user id map and the group id map as seen in ns.
func maps(t *testing.T, ns *os.File) string {
	t.Helper()
	script := `for f in uid_map gid_map; do awk '{print $1, $2, $3}' /proc/self/$f | paste -sd,; done | paste -sd';'`
	file := fmt.Sprintf("--user=/proc/%d/fd/%d", os.Getpid(), ns.Fd())
	out, err := exec.Command("nsenter", "--preserve-credentials", file, "sh", "-c", script).Output()
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(string(out))
}

// TestUsernsMakerRecovers: it works again after ids that the kernel refuses, and after its helper was killed.
func TestUsernsMakerRecovers(t *testing.T) {
	m := maker(t)
	works := func() {
		t.Helper()
		ns, err := m.IDMap(0, 0, 1<<20, 1)
		if err != nil {
			t.Fatal(err)
		}
		ns.Close()
	}
	works()
	if _, err := m.Make(0, "0 0 0\n", "0 0 1\n"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no ids at all: %v", err)
	}
	works()
	first := m.pid
	if _, err := m.Make(1<<32-1, "0 0 1\n", "0 0 1\n"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("nobody as the owner: %v", err)
	}
	works()
	if m.pid != first {
		t.Error("the helper ended after an error of the kernel")
	}
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if m.conn.Ended() {
			return ""
		}
		return "the helper has not exited"
	})
	works()
	if m.pid == first {
		t.Error("the killed helper is still used")
	}
	second := m.pid
	m.stub = nil // a helper that cannot be started is an error
	m.Close()
	if _, err := m.IDMap(0, 0, 1<<20, 1); err == nil || !strings.Contains(err.Error(), "user namespace") {
		t.Errorf("without a program: %v", err)
	}
	if m.conn != nil || exists(filepath.Join("/proc", fmt.Sprint(second))) {
		t.Error("the helper is left")
	}
}
