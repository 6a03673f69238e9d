package sessions

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestReplacedAccess checks that a file which an apply or an edit puts in the place of another does not let in whom that
// one kept out: its group, by an access control list that cannot be kept, or the job's group, by the other one's group.
func TestReplacedAccess(t *testing.T) {
	// user::rw-, user:4242:rw-, group::---, mask::rw-, other::---: its mode is 0660.
	list := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range [][3]uint32{{1, 6, ^uint32(0)}, {2, 6, 4242}, {4, 0, ^uint32(0)}, {16, 6, ^uint32(0)}, {32, 0, ^uint32(0)}} {
		list = binary.LittleEndian.AppendUint16(list, uint16(e[0]))
		list = binary.LittleEndian.AppendUint16(list, uint16(e[1]))
		list = binary.LittleEndian.AppendUint32(list, e[2])
	}
	f := shared(t)
	sandboxtest.Give(t, f.Repo, owner, 1500) // the client is not a member: its jobs see the group, and are not in it
	fresh := func() {
		put(t, filepath.Join(f.Repo, "list"), "old\n", 0o600, owner)
		put(t, filepath.Join(f.Repo, "group"), "old\n", 0o660, owner)
		put(t, filepath.Join(f.Repo, "plain"), "old\n", 0o660, owner)
		sandboxtest.Give(t, filepath.Join(f.Repo, "group"), owner, 1500)
		if err := unix.Setxattr(filepath.Join(f.Repo, "list"), "system.posix_acl_access", list, 0); err != nil {
			t.Fatal(err)
		}
	}
	same := func(what string) {
		for name, want := range map[string]uint32{"list": 0o600, "group": 0o600, "plain": 0o660} {
			var st unix.Stat_t
			path := filepath.Join(f.Repo, name)
			b, err := os.ReadFile(path) //nolint:gosec // a file of the test
			if err = errors.Join(err, unix.Stat(path, &st)); err != nil || string(b) != "new\n" || st.Mode&0o7777 != want || st.Uid != owner {
				t.Errorf("%s: %s: %q, mode %o, want %o; owner %d, group %d, %v", what, name, b, st.Mode&0o7777, want, st.Uid, st.Gid, err)
			}
		}
	}
	fresh()
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.Must(ss, "set -e; umask 0; for n in list group plain; do echo new >t; chmod 660 t; mv t $n; done")
	if d := f.Run(f.apply(ss)); d.ExitCode != 0 {
		t.Errorf("%+v %s%s", d.Result, d.Out, d.Err)
	}
	same("apply")
	fresh()
	for _, name := range []string{"list", "group", "plain"} {
		spec, input := f.editing(job.Session{}, job.Direct, replacing(name, "old", "new"))
		if d := f.Feed(spec, input); d.ExitCode != 0 {
			t.Errorf("%s: %+v %q %q", name, d.Result, d.Out, d.Err)
		}
	}
	same("edit")
}
