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
	"corral/isolate/host"
	"corral/job"
)

// give changes the owner and group of a file or directory.
func give(t testing.TB, path string, uid, gid int) {
	t.Helper()
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

// inMountNamespace calls f in a new mount namespace, which lasts until the end of the test.
func inMountNamespace(t *testing.T, f func() error) {
	t.Helper()
	var err error
	sandboxtest.OnThread(func() {
		err = errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		var namespace *os.File
		if err == nil {
			namespace, err = os.Open("/proc/thread-self/ns/mnt")
		}
		if err == nil {
			t.Cleanup(func() { namespace.Close() })
			err = f()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// handle opens a path with O_PATH, as clients do that pass it.
func handle(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	return os.NewFile(uintptr(fd), path), err
}

// TestServesErrorUniform: in its own mount namespace a client can have directories at any path. The error for one of
// them must not reveal what the host has at that path, which the client may not see.
func TestServesErrorUniform(t *testing.T) {
	s := supervise(t)
	closed := filepath.Join(t.TempDir(), "closed")
	mkdir(t, closed, 0)
	for _, name := range []string{"directory", "closed"} {
		mkdir(t, filepath.Join(closed, name), 0)
	}
	put(t, closed+"/file", "", 0o600, 0)
	if err := errors.Join(os.Symlink("directory", closed+"/link"), os.Chmod(closed+"/closed", 0), os.Chmod(closed, 0o700)); err != nil {
		t.Fatal(err)
	}
	names := []string{"directory", "closed", "file", "link", "nothing", "file/in", "link/in", "nothing/in"}
	passed := map[string]*os.File{}
	inMountNamespace(t, func() error {
		if err := unix.Mount("test", closed, "tmpfs", 0, "mode=0755"); err != nil {
			return err
		}
		for _, name := range names {
			path := filepath.Join(closed, name)
			if err := errors.Join(os.MkdirAll(path, 0o755), os.Chown(path, owner, owner)); err != nil {
				return err
			}
			f, err := handle(path)
			if err != nil {
				return err
			}
			passed[name] = f
		}
		return nil
	})
	errorTexts := map[string]string{}
	for _, name := range names {
		path := filepath.Join(closed, name)
		defer passed[name].Close()
		r, err := s.serves(host.Peer{UID: owner}, path, passed[name])
		if err == nil {
			r.close()
			t.Fatalf("%s is served", path)
		}
		var refusal *job.Refusal
		if !errors.As(err, &refusal) {
			t.Fatalf("%s: %v", path, err)
		}
		text := fmt.Sprintf("%s %d %s %s", refusal.Step, refusal.Errno, refusal.Message, refusal.Hint)
		errorTexts[strings.ReplaceAll(text, path, "PATH")] += " " + name
	}
	if len(errorTexts) != 1 {
		t.Errorf("a client can tell these apart: %q", errorTexts)
	}
}

// TestReadOnlyForClient: a directory that a client opened through a read-only mount is read-only for its jobs,
// whatever it is on the host.
func TestReadOnlyForClient(t *testing.T) {
	f := newFront(t)
	put(t, f.repo+"/file", "before", 0o644, owner)
	var dir *os.File
	inMountNamespace(t, func() error {
		err := errors.Join(
			unix.Mount(f.repo, f.repo, "", unix.MS_BIND, ""),
			unix.Mount("", f.repo, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
		)
		if err == nil {
			dir, err = handle(f.repo)
		}
		return err
	})
	defer dir.Close()
	for name, repo := range map[string]string{"as its own": f.repo, "by another name": "/anything"} {
		r, err := f.s.serves(host.Peer{UID: owner}, repo, dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ids, err := f.s.userns.IDMap(owner, owner, host.DefaultUIDBase+host.DefaultUIDSize-1, 1)
		if err != nil {
			t.Fatal(err)
		}
		mount, err := r.clone(ids, false)
		r.close()
		ids.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(mount.Fd()), &st); err != nil || st.Flags&unix.ST_RDONLY == 0 {
			t.Errorf("%s: a job can write to the mount: flags %#x, %v", name, st.Flags, err)
		}
		mount.Close()
	}
}

// TestFileGroups: a directory's group is its jobs' group only if the client is in it. Files of that group that belong
// to the owner are writable all the same.
func TestFileGroups(t *testing.T) {
	const group = 1500
	f := newFront(t)
	give(t, f.repo, owner, group)
	put(t, f.repo+"/of-the-group", "secret", 0o640, 1002)
	give(t, f.repo+"/of-the-group", 1002, group)
	put(t, f.repo+"/own", "own\n", 0o640, owner)
	give(t, f.repo+"/own", owner, group)
	for _, tt := range []struct{ script, want string }{
		{"cat of-the-group 2>&1", "cat: of-the-group: Permission denied"},
		{"echo more >>own && chmod 600 own && cat own", "own\nmore"},
		{"touch made && mkdir dir && touch dir/in && rm -r dir && stat -c %U:%G made", "job:job"},
	} {
		if d := f.run(f.spec("sh", "-c", tt.script)); strings.TrimSpace(d.out) != tt.want {
			t.Errorf("%s: %q, %q, want %q", tt.script, d.out, d.err, tt.want)
		}
	}
	for name, gid := range map[string]uint32{"made": owner, "own": group} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(f.repo, name), &st); err != nil || st.Uid != owner || st.Gid != gid {
			t.Errorf("%s: owner %d:%d, %v", name, st.Uid, st.Gid, err)
		}
	}
	d := f.in(f.session(job.SessionSpec{Workspace: job.Overlay}), "cat of-the-group 2>&1; echo layer >>own && cat own && touch made-on-layer && echo done")
	if want := "cat: of-the-group: Permission denied\nown\nmore\nlayer\ndone"; strings.TrimSpace(d.out) != want {
		t.Errorf("on a layer: %q, %q", d.out, d.err)
	}
}
