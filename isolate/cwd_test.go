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
	f := sharedFront(t)
	outside := filepath.Join(filepath.Dir(f.Repo), "outside")
	mkdir(t, outside, owner)
	f.Sh(`mkdir -p a/b closed; chmod 0 closed; echo x >file; ln -s a/b inside; ln -s / root; ln -s ../outside up; ln -s ` + outside +
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
		spec := f.Spec("pwd", "-P")
		spec.Dir = tt.dir
		d, err := f.Try(spec)
		if tt.errno != 0 {
			refusedAt(t, fmt.Sprintf("%.20q", tt.dir), err, "cwd", tt.errno)
		} else if err != nil || d.Out != f.Repo+tt.want+"\n" {
			t.Errorf("%q: %q, %v", tt.dir, d.Out, err)
		}
	}
	for _, dir := range []string{"/", f.Repo, "/proc/self/fd/3"} {
		spec := f.Spec("true")
		spec.Dir = dir
		_, err := f.Try(spec)
		refusedAt(t, dir, err, "cwd", 0)
	}
}

// TestWorkingDirectorySwapped: a directory that is repeatedly swapped with a link is used or refused, and the link
// never followed.
func TestWorkingDirectorySwapped(t *testing.T) {
	f := sharedFront(t)
	dir, link := f.Repo+"/dir", f.Repo+"/link"
	mkdir(t, dir, owner)
	if err := os.Symlink("/tmp", link); err != nil {
		t.Fatal(err)
	}
	stop := exchange(dir, link)
	found, refused := 0, 0
	for range sandboxtest.Scale(100) {
		spec := f.Spec("pwd", "-P")
		spec.Dir = "dir/../dir" // with ".." the kernel sometimes returns EAGAIN, which is retried
		d, err := f.Try(spec)
		var r *job.Refusal
		switch {
		case err == nil && (d.Out == dir+"\n" || d.Out == link+"\n"): // the directory may have either name
			found++
		case errors.As(err, &r) && r.Step == "cwd" && r.Errno == int(unix.EXDEV):
			refused++
		default:
			t.Errorf("%q, %v", d.Out, err)
		}
	}
	if stop() == 0 {
		t.Error("nothing was swapped")
	}
	t.Logf("%d found, %d refused", found, refused)
}

// TestRepoSwapped: a repository that is repeatedly swapped with another directory is used or refused, whether named
// by path or by descriptor.
func TestRepoSwapped(t *testing.T) {
	f := sharedFront(t)
	trap := filepath.Join(filepath.Dir(f.Repo), "trap")
	mkdir(t, trap, 0)
	put(t, f.Repo+"/which", "mine", 0o644, owner)
	put(t, trap+"/which", "trap", 0o644, 0)
	stop := exchange(f.Repo, trap)
	for range sandboxtest.Scale(60) {
		d, err := f.Try(f.Spec("cat", "which"))
		if err == nil && d.Out != "mine" {
			t.Errorf("a job ran in another user's directory: %q", d.Out)
		}
	}
	if stop() == 0 {
		t.Error("nothing was swapped")
	}
}
