package sessions

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/job"
	"corral/workspace/edit"
)

// editing returns an edit as a job, and its input.
func (f *front) editing(ss job.Session, ws job.Workspace, r edit.Request) (job.Spec, []byte) {
	spec := f.Spec(edit.Name)
	spec.Session, spec.Tool, spec.Workspace, spec.Repo = ss.ID, job.ToolEdit, ws, f.Repo
	return spec, []byte(r.Encode())
}

func replacing(path, old, new string) edit.Request {
	return edit.Request{Path: path, Old: &old, New: &new}
}

// TestEditTool checks that an edit changes what the jobs of the same session see, and nothing else.
func TestEditTool(t *testing.T) {
	f := shared(t)
	name := filepath.Join(f.Repo, "file")
	put(t, name, "old\n", 0o640, owner)
	onHost := func() string {
		b, err := os.ReadFile(name) //nolint:gosec // a file of the test
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	spec, input := f.editing(ss, job.Overlay, replacing("file", "old", "new"))
	if d := f.Feed(spec, input); d.ExitCode != 0 || !strings.Contains(d.Out, "-old\n+new") || onHost() != "old\n" {
		t.Errorf("overlay: %+v %q %q, on the host %q", d.Result, d.Out, d.Err, onHost())
	}
	if got := f.Must(ss, "cat file; stat -c %a file; ls -A"); got != "new\n640\nfile\n" {
		t.Errorf("a job of the session sees %q", got)
	}
	spec, input = f.editing(job.Session{}, job.Direct, replacing("file", "old", "direct"))
	if d := f.Feed(spec, input); d.ExitCode != 0 || onHost() != "direct\n" {
		t.Errorf("direct: %+v %q %q, on the host %q", d.Result, d.Out, d.Err, onHost())
	}
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil || st.Uid != owner || st.Mode&0o7777 != 0o640 {
		t.Errorf("the file belongs to %d, mode %o, %v", st.Uid, st.Mode, err)
	}
	spec, input = f.editing(job.Session{}, job.ReadOnly, replacing("file", "direct", "x"))
	if d := f.Feed(spec, input); d.ExitCode != 1 || !strings.Contains(d.Err, "cannot be written") || onHost() != "direct\n" {
		t.Errorf("readonly: %+v %q %q", d.Result, d.Out, d.Err)
	}
	put(t, filepath.Join(f.Repo, "locked"), "old\n", 0o444, owner)
	put(t, filepath.Join(f.Repo, "roots"), "old\n", 0o644, 0)
	for _, other := range []string{"locked", "roots"} {
		spec, input = f.editing(job.Session{}, job.Direct, replacing(other, "old", "x"))
		if d := f.Feed(spec, input); d.ExitCode != 1 || !strings.Contains(d.Err, other+" cannot be written") {
			t.Errorf("%s: %+v %q %q", other, d.Result, d.Out, d.Err)
		}
	}
}

// TestEditHostile checks that what a job left in the repository leads no edit elsewhere, and stops none for good.
func TestEditHostile(t *testing.T) {
	f := shared(t)
	ss := f.Session(job.SessionSpec{Workspace: job.Direct})
	f.Must(ss, "mkfifo fifo; ln -s /etc/passwd passwd; ln -s .. up; mkdir d .git; echo old >.git/config; truncate -s 1G huge; echo old >file")
	for path, want := range map[string]string{
		"fifo": "not a regular file", "passwd": "leads out", "up/x": "leads out", "d": "is a directory", "huge": "has 1073741824 bytes",
		".git/config": "git directory", "/proc/self/mem": "leads out", "/tmp/x": "leads out",
	} {
		spec, input := f.editing(ss, job.Direct, replacing(path, "old", "new"))
		if d := f.Feed(spec, input); d.ExitCode != 1 || !strings.Contains(d.Err, want) || d.Out != "" {
			t.Errorf("%s: %+v %q %q, want %q", path, d.Result, d.Out, d.Err, want)
		}
	}
	if got := f.Must(ss, "cat .git/config"); got != "old\n" {
		t.Errorf("%q", got)
	}
}
