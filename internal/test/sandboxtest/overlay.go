package sandboxtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Overlay mounts an overlay over the directory lower with the options of sessions: userxattr, no redirects, no metacopies.
// It returns the mount point and the upper directory. The test must run under PrivateMounts.
func Overlay(t testing.TB, lower string) (merged, upper string) {
	t.Helper()
	Require(t, Root, FileSystem("overlay"))
	dir := t.TempDir()
	for _, name := range []string{"merged", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	merged, upper = filepath.Join(dir, "merged"), filepath.Join(dir, "upper")
	escape := strings.NewReplacer(`\`, `\\`, `,`, `\,`, `:`, `\:`).Replace
	options := "userxattr,lowerdir=" + escape(lower) + ",upperdir=" + escape(upper) + ",workdir=" + escape(filepath.Join(dir, "work"))
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(merged, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return merged, upper
}
