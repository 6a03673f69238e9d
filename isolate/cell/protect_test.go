package cell

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
	"corral/isolate/inside"
	"corral/isolate/wire"
	"corral/job"
)

// TestProtectListErrors: paths in the scanner's list that no longer exist are ignored; a list that the scanner cannot
// have made is refused.
func TestProtectListErrors(t *testing.T) {
	s := newTestJails(t, nil)
	j := s.enterNew(t)
	for _, name := range []string{".envrc", "file"} {
		sandboxtest.Put(t, filepath.Join(j.repo.Path, name), "x", 0o644, sandboxtest.Owner)
	}
	for _, tt := range []struct {
		name  string
		count uint32
		list  string
		want  string // error number; "" if the job runs
	}{
		{"nothing", 0, "", ""},
		{"gone", 3, "rgone\x00pgone/x\x00rfile/x\x00", ""},
		{"a path twice", 2, "r.envrc\x00r.envrc\x00", ""},
		{"upwards", 1, "r..\x00", "EXDEV"},
		{"absolute", 1, "r/etc\x00", "EXDEV"},
		{"through a link", 1, "rabroad/passwd\x00", "ELOOP"},
		{"by a magic link", 1, "rproc/self/root\x00", ""},
		{"no such hold", 1, "xfile\x00", "EINVAL"},
		{"what a client bounds", 4, "odir\x00r.\x00hfile\x00h.envrc\x00", ""},
		{"open, upwards", 1, "o..\x00", "EXDEV"},
		{"hidden, through a link", 1, "habroad/passwd\x00", "ELOOP"},
		{"open in a common directory", 1, "Ofile\x00", "EINVAL"},
		{"of no common directory", 1, "Rfile\x00", "EINVAL"},
		{"more than are said", 1, "rfile\x00rx\x00", "EINVAL"},
		{"fewer", 2, "rfile\x00", "EINVAL"},
		{"no path", 1, "r\x00", "EINVAL"},
		{"a worktree and a path", 2, "w/tmp/a/.git\x00r.envrc\x00", ""},
		{"a worktree that is the repository", 1, "w" + j.repo.Path + "/planted/.git\x00", ""},
		{"a worktree in no private directory", 2, "w/planted/.git\x00w/tmp/../etc/planted/.git\x00", ""},
		{"a worktree without a path", 2, "w/\x00w/tmp\x00", ""},
	} {
		if err := errors.Join(os.RemoveAll(j.repo.Path+"/abroad"), os.Symlink("/etc", j.repo.Path+"/abroad")); err != nil {
			t.Fatal(err)
		}
		err := j.runWithKept(inside.Kept{Count: tt.count, List: tt.list})
		var refusal *job.Refusal
		errors.As(err, &refusal)
		if (tt.want == "") != (err == nil) || err != nil && (refusal.Step != "protect" || unix.ErrnoName(unix.Errno(refusal.Errno)) != tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(j.repo.Path, "planted")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory for a worktree is in the repository (%v)", err)
	}
}

// TestAddWorktrees: directories for worktrees take a bounded part of a job's files, and of the root of a jail.
func TestAddWorktrees(t *testing.T) {
	top, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	root := &jailRoot{dir: top}
	sl := &Slot{jail: &Jail{root: root, session: &Session{}}}
	list := ""
	for n := range 20 {
		list += fmt.Sprintf("/home/a%d/w/.git\x00/srv/w%d/.git\x00/etc/w%d/.git\x00/x/../w%d/.git\x00", n, n, n, n)
	}
	for files, want := range map[int64]uint32{16: 0, 32: 1, 64: 2, 1 << 20: 20} {
		kept := sl.addWorktrees(&inside.Kept{Count: 1, List: "r.envrc\x00"}, list, files)
		if kept.Count != 1+want || uint32(strings.Count(kept.List, "\x00w/home/a")) != want {
			t.Errorf("%d files: %d, %q", files, kept.Count, kept.List)
		}
	}
	names, err := filepath.Glob(top.Name() + "/*/*/.git")
	if err != nil || len(names) != 20 || len(root.added) != 20 || root.parts != 60 {
		t.Errorf("%q, %d, %d, %v", names, len(root.added), root.parts, err)
	}
	deep := "/srv" + strings.Repeat("/a", 400)
	for n := range maxParts {
		if !root.addWorktree(fmt.Sprintf("%s/%d/.git", deep, n)) {
			if n != (maxParts-60)/403 {
				t.Errorf("full after %d", n)
			}
			return
		}
	}
	t.Error("never full")
}

// runWithKept runs true in a slot of the jail with the given list of paths to protect.
func (j *Jail) runWithKept(kept inside.Kept) error {
	sl, err := j.TakeSlot(false)
	if err != nil {
		return err
	}
	defer sl.destroy()
	payload, err := wire.NewPayload([]string{"true"}, []string{"PATH=/usr/bin:/bin"})
	if err != nil {
		return err
	}
	defer payload.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	mount, err := sl.mount(false)
	if err != nil {
		return err
	}
	defer mount.Close()
	plan := inside.Plan{
		SayStarted: true, TmpBytes: sl.tmp[0], TmpInodes: sl.tmp[1], Rlimits: host.Rlimits(job.Defaults(), 0), Repo: j.repo.Path, Kept: true,
	}
	if err := sl.stub.send(&plan, &kept, []*os.File{mount, payload, null, null}); err != nil {
		return err
	}
	return sl.stub.started()
}
