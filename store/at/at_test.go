package at

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpen: a link is not followed, an error names the operation and the file, and a created file is private.
func TestOpen(t *testing.T) {
	path := t.TempDir()
	dir, err := unix.Open(path, Dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	if all, err := Names(dir, -1); err != nil || len(all) != 0 {
		t.Errorf("%q, %v", all, err)
	}
	fd, err := Open(dir, "file", unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := os.Symlink("file", filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
	if st, err := Stat(dir, "file"); err != nil || st.Mode&0o777 != FileMode {
		t.Errorf("%o, %v", st.Mode, err)
	}
	if st, err := Stat(dir, "link"); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Errorf("%o, %v", st.Mode, err)
	}
	var pathError *fs.PathError
	if _, err := Open(dir, "link", Dir); !errors.As(err, &pathError) || pathError.Op != "open" || pathError.Path != "link" {
		t.Errorf("a link was opened as a directory: %v", err)
	}
	if _, err := Stat(dir, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	all, err := Names(dir, -1)
	slices.Sort(all)
	if err != nil || !slices.Equal(all, []string{"file", "link"}) {
		t.Errorf("%q, %v", all, err)
	}
	if few, err := Names(dir, 1); err != nil || len(few) != 1 {
		t.Errorf("%q, %v", few, err)
	}
	if _, err := Names(fd, -1); !errors.Is(err, unix.ENOTDIR) {
		t.Error(err)
	}
}

// TestRegularOnly: what Regular opens is neither a link, nor a pipe that has no writer, nor a directory.
func TestRegularOnly(t *testing.T) {
	path := t.TempDir()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	in := func(name string) string { return filepath.Join(path, name) }
	if err := errors.Join(
		os.WriteFile(in("file"), []byte("x"), 0o600), os.Symlink("file", in("link")), unix.Mkfifo(in("pipe"), 0o600),
		os.Mkdir(in("directory"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"file": nil, "link": unix.ELOOP, "pipe": ErrNotRegular, "directory": ErrNotRegular, "none": os.ErrNotExist} {
		f, st, err := Regular(dir, name)
		if !errors.Is(err, want) || (f == nil) != (want != nil) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if f != nil {
			f.Close()
			if st.Size != 1 {
				t.Errorf("%s has %d bytes", name, st.Size)
			}
		}
	}
}
