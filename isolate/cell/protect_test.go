package cell

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/isolatetest"
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
		isolatetest.Put(t, filepath.Join(j.repo.Path, name), "x", 0o644, isolatetest.Owner)
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
		{"of no common directory", 1, "Rfile\x00", "EINVAL"},
		{"more than are said", 1, "rfile\x00rx\x00", "EINVAL"},
		{"fewer", 2, "rfile\x00", "EINVAL"},
		{"no path", 1, "r\x00", "EINVAL"},
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
