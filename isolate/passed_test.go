package isolate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/job"
)

// TestReadOnlyForClient: a directory that a client opened through a read-only mount is read-only for its jobs,
// whatever it is on the host.
func TestReadOnlyForClient(t *testing.T) {
	f := sharedFront(t)
	put(t, f.Repo+"/file", "before", 0o644, owner)
	var dir *os.File
	inMountNamespace(t, func() error {
		err := errors.Join(
			unix.Mount(f.Repo, f.Repo, "", unix.MS_BIND, ""),
			unix.Mount("", f.Repo, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
		)
		if err == nil {
			dir, err = handle(f.Repo)
		}
		return err
	})
	defer dir.Close()
	for name, repo := range map[string]string{"as its own": f.Repo, "by another name": "/anything"} {
		r, err := f.s.served.Now().Serves(host.Peer{UID: owner}, repo, dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ids, err := f.s.userns.IDMap(owner, owner, host.DefaultUIDBase+host.DefaultUIDSize-1, 1)
		if err != nil {
			t.Fatal(err)
		}
		mount, err := r.Clone(ids, false)
		r.Close()
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
	give(t, f.Repo, owner, group)
	put(t, f.Repo+"/of-the-group", "secret", 0o640, 1002)
	give(t, f.Repo+"/of-the-group", 1002, group)
	put(t, f.Repo+"/own", "own\n", 0o640, owner)
	give(t, f.Repo+"/own", owner, group)
	for _, tt := range []struct{ script, want string }{
		{"cat of-the-group 2>&1", "cat: of-the-group: Permission denied"},
		{"echo more >>own && chmod 600 own && cat own", "own\nmore"},
		{"touch made && mkdir dir && touch dir/in && rm -r dir && stat -c %U:%G made", "job:job"},
	} {
		if d := f.Run(f.Spec("sh", "-c", tt.script)); strings.TrimSpace(d.Out) != tt.want {
			t.Errorf("%s: %q, %q, want %q", tt.script, d.Out, d.Err, tt.want)
		}
	}
	for name, gid := range map[string]uint32{"made": owner, "own": group} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(f.Repo, name), &st); err != nil || st.Uid != owner || st.Gid != gid {
			t.Errorf("%s: owner %d:%d, %v", name, st.Uid, st.Gid, err)
		}
	}
	d := f.In(f.Session(job.SessionSpec{Workspace: job.Overlay}), "cat of-the-group 2>&1; echo layer >>own && cat own && touch made-on-layer && echo done")
	if want := "cat: of-the-group: Permission denied\nown\nmore\nlayer\ndone"; strings.TrimSpace(d.Out) != want {
		t.Errorf("on a layer: %q, %q", d.Out, d.Err)
	}
}
