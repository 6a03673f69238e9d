package rootfs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// TestTables checks that every row has a reason and a valid, unique path.
func TestTables(t *testing.T) {
	seen := map[string]bool{}
	row := func(table, p, reason string) {
		t.Helper()
		if reason == "" || badPath(p) != "" || seen[table+p] {
			t.Errorf("%s: path %q, reason %q, bad path %q, duplicate %v", table, p, reason, badPath(p), seen[table+p])
		}
		seen[table+p] = true
	}
	for _, d := range Private {
		row("Private", d.Path, d.Reason)
	}
	for _, d := range DevDirs {
		row("DevDirs", d.Path, d.Reason)
	}
	for _, m := range MaskedProc {
		row("MaskedProc", m.Path, m.Reason)
	}
	for _, p := range Places {
		row("Places", p.Path, p.Reason)
	}
	for _, d := range systemDirs {
		row("systemDirs", d.path, d.reason)
	}
	for _, d := range emptyDirs {
		row("emptyDirs", d.path, d.reason)
	}
	for _, r := range etc {
		row("etc", "/etc/"+r.name, r.reason)
		if _, err := path.Match(r.name, ""); err != nil {
			t.Errorf("etc: %s: %v", r.name, err)
		}
	}
	if !slices.IsSortedFunc(MaskedProc, func(a, b Mask) int { return strings.Compare(a.Path, b.Path) }) {
		t.Error("MaskedProc is not sorted")
	}
	if !slices.IsSortedFunc(Places, func(a, b Place) int { return strings.Compare(a.Path, b.Path) }) {
		t.Error("Places is not sorted")
	}
}

// TestMasksFitTheKernel checks Dir against this machine's kernel, and that files that programs need are not masked.
func TestMasksFitTheKernel(t *testing.T) {
	for _, m := range MaskedProc {
		st, err := os.Lstat(m.Path)
		if err == nil && (st.IsDir() != m.Dir || st.Mode()&fs.ModeSymlink != 0) {
			t.Errorf("%s is %v here, Dir is %v", m.Path, st.Mode(), m.Dir)
		}
	}
	for _, p := range []string{
		"cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems", "mounts", "self", "thread-self", "net",
		"sys", "swaps", "vmstat", "cgroups", "tty",
	} {
		if slices.ContainsFunc(MaskedProc, func(m Mask) bool { return m.Path == "/proc/"+p }) {
			t.Errorf("/proc/%s is masked", p)
		}
	}
	// Writable files of the top of /proc must be masked.
	top, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range top {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Mode()&0o222 != 0 {
			if p := "/proc/" + e.Name(); !slices.ContainsFunc(MaskedProc, func(m Mask) bool { return m.Path == p }) {
				t.Errorf("%s is writable (%v) and not masked", p, info.Mode())
			}
		}
	}
}

// TestDevicesAreTheHosts checks the device numbers against this machine's /dev.
func TestDevicesAreTheHosts(t *testing.T) {
	for _, d := range Devices {
		var st unix.Stat_t
		if err := unix.Stat("/dev/"+d.Name, &st); err != nil {
			t.Errorf("%s: %v", d.Name, err)
		} else if unix.Major(st.Rdev) != d.Major || unix.Minor(st.Rdev) != d.Minor {
			t.Errorf("%s is %d:%d here", d.Name, unix.Major(st.Rdev), unix.Minor(st.Rdev))
		}
	}
}

// devTmpfs returns a directory in which devices work: a tmpfs in a mount namespace of the test's own thread, which
// ends with the test.
func devTmpfs(t *testing.T) (p string, fd int) {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root) // to create devices
	p = t.TempDir()
	runtime.LockOSThread() // never unlocked: the thread's namespaces must not be reused
	for _, err := range []error{
		unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", p, "tmpfs", unix.MS_NOSUID, "mode=0755,size=64k"),
	} {
		if err != nil {
			t.Fatal("create a mount namespace: ", err)
		}
	}
	fd, err := unix.Open(p, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fd)
		if err := unix.Unmount(p, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return p, fd
}

func TestWriteDev(t *testing.T) {
	p, fd := devTmpfs(t)
	if err := WriteDev(fd); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range Devices {
		names = append(names, d.Name)
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(p, d.Name), &st); err != nil {
			t.Fatal(err)
		}
		if st.Mode != unix.S_IFCHR|uint32(d.Mode) || st.Rdev != unix.Mkdev(d.Major, d.Minor) {
			t.Errorf("%s: mode %o, device %x", d.Name, st.Mode, st.Rdev)
		}
	}
	for _, l := range DevLinks {
		names = append(names, l.Name)
		if got, err := os.Readlink(filepath.Join(p, l.Name)); err != nil || got != l.Target {
			t.Errorf("%s -> %s %v", l.Name, got, err)
		}
	}
	for _, d := range DevDirs {
		names = append(names, path.Base(d.Path))
		if st, err := os.Lstat(filepath.Join(p, path.Base(d.Path))); err != nil || st.Mode() != fs.ModeDir|d.Mode {
			t.Errorf("%s: %v %v", d.Path, st.Mode(), err)
		}
	}
	made, err := os.ReadDir(p)
	if err != nil || len(made) != len(names) {
		t.Errorf("%v %v, want %v", made, err, names)
	}
	if err := os.WriteFile(filepath.Join(p, "full"), []byte("x"), 0); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("write to full: %v", err)
	}
	if err := WriteDev(fd); err == nil || !strings.Contains(err.Error(), "/dev/null") {
		t.Errorf("second WriteDev: %v", err)
	}
}

// TestPrivateMountPoints checks that each private directory has a mount point, in the tree or in /dev.
func TestPrivateMountPoints(t *testing.T) {
	tree := must(t, Options{Host: fakeHost(t)})
	for _, d := range Private {
		inDev := slices.ContainsFunc(DevDirs, func(x Dir) bool { return x.Path == d.Path })
		if (describe(tree, d.Path) == "dir") == inDev {
			t.Errorf("%s: entry %s, in DevDirs %v", d.Path, describe(tree, d.Path), inDev)
		}
	}
	if !isPrivate(HomeDir) {
		t.Errorf("%s is shared between jobs", HomeDir)
	}
}
