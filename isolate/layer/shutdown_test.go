package layer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHeldFiles: a process that holds files of a layer cannot use them after the layer was closed. A layer without a name
// gives its space back all the same, one with a name can be opened again, and what it had is there.
func TestHeldFiles(t *testing.T) {
	before := detachPatience
	detachPatience = 100 * time.Millisecond
	t.Cleanup(func() { detachPatience = before })
	for _, kind := range []string{"dropped", "named", "kept"} {
		t.Run(kind, func(t *testing.T) {
			s, dir := store(t)
			l, err := s.Make(mountPoint(t, dir, "m"), Client{}, size, files)
			if err != nil {
				t.Fatal(err)
			}
			text := make([]byte, 8<<20)
			text[0] = 'x'
			if err := os.WriteFile(filepath.Join(l.Path(), "f"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			held, err := os.OpenFile(filepath.Join(l.Path(), "f"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer free(t, dir) // after held was closed
			defer held.Close()
			fd, err := unix.Dup(int(l.file.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			backing := os.NewFile(uintptr(fd), "backing file")
			switch kind {
			case "dropped":
				err = l.Close()
			case "named":
				err = errors.Join(l.Name("a"), l.Sync(), l.Close())
			case "kept":
				err = l.Keep("a")
			}
			if err != nil {
				t.Fatal(err)
			}
			if n, err := held.WriteAt([]byte("late"), 0); !errors.Is(err, unix.EIO) {
				t.Errorf("a write afterwards: %d, %v", n, err)
			}
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil || kind == "dropped" && st.Blocks*512 > 1<<20 {
				t.Errorf("the file has %d bytes on the disk: %v", st.Blocks*512, err)
			}
			backing.Close()
			if kind == "dropped" {
				return
			}
			again, err := s.Reopen("a", mountPoint(t, dir, "again"), Client{}, files)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(filepath.Join(again.Path(), "f")); err != nil || string(b) != string(text) {
				t.Errorf("%d bytes, %v", len(b), err)
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
