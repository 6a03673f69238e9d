package sandboxtest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Overlay mounts an overlay over the directory lower with the options of sessions: userxattr, no redirects, no metacopies.
// Like the root of a jail, the mounter may not open files by handle: the kernel then marks a copied file without saying
// where it came from. It returns the mount point and the upper directory, which has an empty directory base beside it. The test must run
// under PrivateMounts.
func Overlay(t testing.TB, lower string) (merged, upper string) {
	t.Helper()
	Require(t, Root, FileSystem("overlay"))
	dir := t.TempDir()
	for _, name := range []string{"merged", "upper", "work", "base"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	merged, upper = filepath.Join(dir, "merged"), filepath.Join(dir, "upper")
	escape := strings.NewReplacer(`\`, `\\`, `,`, `\,`, `:`, `\:`).Replace
	options := "userxattr,lowerdir=" + escape(lower) + ",upperdir=" + escape(upper) + ",workdir=" + escape(filepath.Join(dir, "work"))
	if err := mountWithoutHandles(merged, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(merged, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return merged, upper
}

// mountWithoutHandles mounts an overlay from a thread without CAP_DAC_READ_SEARCH, which the kernel remembers.
func mountWithoutHandles(at, options string) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&h, &caps[0])
		caps[0].Effective &^= 1 << unix.CAP_DAC_READ_SEARCH
		if err == nil {
			err = unix.Capset(&h, &caps[0])
		}
		if err == nil {
			err = unix.Mount("overlay", at, "overlay", 0, options)
		}
		result <- err
	}()
	return <-result
}
