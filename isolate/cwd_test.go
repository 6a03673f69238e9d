package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestWorkingDirectory: a job starts only in a directory of the repository.
func TestWorkingDirectory(t *testing.T) {
	f := newFront(t)
	outside := filepath.Join(filepath.Dir(f.repo), "outside")
	mkdir(t, outside, owner)
	f.sh(`mkdir -p a/b closed; chmod 0 closed; echo x >file; ln -s a/b inside; ln -s / root; ln -s ../outside up; ln -s ` + outside +
		` absolute; ln -s a/../.. dots; ln -s loop loop; ln -s /proc/self/fd/3 descriptor`)
	for _, tt := range []struct {
		dir   string
		want  string // the job's directory, relative to the repository
		errno unix.Errno
	}{
		{"", "", 0},
		{".", "", 0},
		{"a", "/a", 0},
		{"a/b/", "/a/b", 0},
		{"a/b/../..", "", 0},
		{"a/../a", "/a", 0},
		{"inside", "/a/b", 0},
		{"missing", "", unix.ENOENT},
		{"file", "", unix.ENOTDIR},
		{"file/x", "", unix.ENOTDIR},
		{"closed/x", "", unix.EACCES},
		{"..", "", unix.EXDEV},
		{"a/../..", "", unix.EXDEV},
		{"a/../../repo", "", unix.EXDEV},
		{"root", "", unix.EXDEV},
		{"root/etc", "", unix.EXDEV},
		{"up", "", unix.EXDEV},
		{"absolute", "", unix.EXDEV},
		{"dots", "", unix.EXDEV},
		{"loop", "", unix.ELOOP},
		{"descriptor", "", unix.EXDEV}, // CVE-2024-21626
		{strings.Repeat("x", 256), "", unix.ENAMETOOLONG},
		{"a\nb\x1b", "", unix.ENOENT},
	} {
		spec := f.spec("pwd", "-P")
		spec.Dir = tt.dir
		d, err := f.try(spec)
		if tt.errno != 0 {
			refusedAt(t, fmt.Sprintf("%.20q", tt.dir), err, "cwd", tt.errno)
		} else if err != nil || d.out != f.repo+tt.want+"\n" {
			t.Errorf("%q: %q, %v", tt.dir, d.out, err)
		}
	}
	for _, dir := range []string{"/", f.repo, "/proc/self/fd/3"} {
		spec := f.spec("true")
		spec.Dir = dir
		_, err := f.try(spec)
		refusedAt(t, dir, err, "cwd", 0)
	}
}

// TestWorkingDirectorySwapped: a directory that is repeatedly swapped with a link is used or refused, and the link
// never followed.
func TestWorkingDirectorySwapped(t *testing.T) {
	f := newFront(t)
	dir, link := f.repo+"/dir", f.repo+"/link"
	mkdir(t, dir, owner)
	if err := os.Symlink("/tmp", link); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				if err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	found, refused := 0, 0
	for range sandboxtest.Scale(200) {
		spec := f.spec("pwd", "-P")
		spec.Dir = "dir/../dir" // with ".." the kernel sometimes returns EAGAIN, which is retried
		d, err := f.try(spec)
		var r *job.Refusal
		switch {
		case err == nil && (d.out == dir+"\n" || d.out == link+"\n"): // the directory may have either name
			found++
		case errors.As(err, &r) && r.Step == "cwd" && r.Errno == int(unix.EXDEV):
			refused++
		default:
			t.Errorf("%q, %v", d.out, err)
		}
	}
	close(stop)
	<-stopped
	t.Logf("%d found, %d refused", found, refused)
}

// TestRepoSwapped: a repository that is repeatedly swapped with another directory is used or refused, whether named
// by path or by descriptor.
func TestRepoSwapped(t *testing.T) {
	f := newFront(t)
	trap := filepath.Join(filepath.Dir(f.repo), "trap")
	mkdir(t, trap, 0)
	put(t, f.repo+"/which", "mine", 0o644, owner)
	put(t, trap+"/which", "trap", 0o644, 0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, f.repo, unix.AT_FDCWD, trap, unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range sandboxtest.Scale(60) {
		d, err := f.try(f.spec("cat", "which"))
		if err == nil && d.out != "mine" {
			t.Errorf("a job ran in another user's directory: %q", d.out)
		}
	}
	close(stop)
	<-stopped
}
