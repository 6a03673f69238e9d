package sessions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
	"corral/isolate/host"
	"corral/isolate/layer"
	"corral/job"
	"corral/workspace/changes/stream"
)

// apply returns a job that applies the session's changes.
func (f *front) apply(ss job.Session) job.Spec {
	spec := f.Changes(ss)
	spec.Args, spec.Workspace = []string{"changes", "apply", "-opened", fmt.Sprint(ss.Opened.UnixNano()), f.Repo}, job.Direct
	return spec
}

// TestApplyExcludesWriters: changes are not applied while a job of the session could still change them; listing them
// and a dry run are always possible.
func TestApplyExcludesWriters(t *testing.T) {
	f := shared(t)
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.Must(ss, "echo good >file")
	spec := f.Spec("/bin/sh", "-c", "read line; echo evil >file")
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	l, err := f.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	if d := f.Run(f.Changes(ss)); d.ExitCode != 0 || !strings.Contains(d.Out, "file") {
		t.Errorf("list: %+v %s%s", d.Result, d.Out, d.Err)
	}
	dry := f.apply(ss)
	dry.Args = append([]string{"changes", "apply", "-dry-run"}, dry.Args[2:]...)
	dry.Workspace = job.ReadOnly
	if d := f.Run(dry); d.ExitCode != 0 {
		t.Errorf("a dry run: %+v %s%s", d.Result, d.Out, d.Err)
	}
	refusedAt(t, "applied while a job runs", fronttest.Second(f.Try(f.apply(ss))), "changes", unix.EBUSY)
	if _, err := os.Stat(filepath.Join(f.Repo, "file")); err == nil {
		t.Error("the changes were applied")
	}
	_, _ = l.In.WriteString("\n")
	if d, err := l.End(); err != nil || d.ExitCode != 0 {
		t.Fatalf("%+v, %v", d.Result, err)
	}
	if d := f.Run(f.apply(ss)); d.ExitCode != 0 {
		t.Errorf("%+v %s%s", d.Result, d.Out, d.Err)
	}
	if b, err := os.ReadFile(filepath.Join(f.Repo, "file")); string(b) != "evil\n" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	f.Must(ss, "true")
}

// TestApplyTwice: a session works on what was applied, and on the repository's files that it has not changed as they are after
// a refresh, also when both were replaced and the overlay had cached them.
func TestApplyTwice(t *testing.T) {
	f := shared(t)
	var owner unix.Stat_t
	if err := unix.Stat(f.Repo, &owner); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) { // as editors do
		path := filepath.Join(f.Repo, name)
		if err := errors.Join(os.WriteFile(path+".tmp", []byte(text), 0o644), os.Chmod(path+".tmp", 0o644),
			os.Chown(path+".tmp", int(owner.Uid), int(owner.Gid)), os.Rename(path+".tmp", path)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(ss job.Session, verb string) {
		t.Helper()
		spec := f.apply(ss)
		spec.Args[1] = verb
		d := f.Run(spec)
		if d.ExitCode != 0 {
			t.Fatalf("%s: %+v %q%s", verb, d.Result, d.Out, d.Err)
		}
		for r := stream.NewReader(strings.NewReader(d.Out)); ; {
			switch rec, err := r.Next(); rec := rec.(type) {
			case *stream.Sum:
				if rec.Conflicts > 0 || rec.Failed != "" {
					t.Errorf("%s: %+v", verb, rec)
				}
				return
			case stream.Conflict:
				t.Errorf("%s: %+v", verb, rec)
			case nil:
				t.Fatal(err)
			}
		}
	}
	write("other", "before")
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.Must(ss, "cat other; mkdir new; echo 1 >new/file; echo 1 >more")
	run(ss, "apply")
	f.Must(ss, "test $(cat new/file) = 1 && echo 2 >new/file && rm more && mkdir more && echo 2 >more/file")
	run(ss, "apply")
	f.Must(ss, "rm -r new && test ! -e new && echo 3 >more/file")
	run(ss, "apply")
	f.Must(ss, "test ! -e new && test $(cat more/file) = 3")
	for name, want := range map[string]string{"more/file": "3\n", "new": ""} {
		if b, _ := os.ReadFile(filepath.Join(f.Repo, name)); string(b) != want {
			t.Errorf("%s is %q, want %q", name, b, want)
		}
	}
	f.Must(ss, "cat other")
	write("other", "after")
	run(ss, "refresh")
	f.Must(ss, "test $(cat other) = after && echo mine >other")
	run(ss, "revert")
	f.Must(ss, "test $(cat other) = after")
	// The base of the session is on its layer, but jobs do not see that.
	if d := f.In(ss, "find / -xdev -path '*/base/state' 2>/dev/null; ls -A /var/layer"); strings.TrimSpace(d.Out) != "" {
		t.Errorf("a job sees %q", d.Out)
	}
}

// TestAppliesExclude: changes of two sessions are not applied to a repository at the same time. No program that can only read the
// repository keeps an apply from it: it can lock the directory, but not what the supervisor locks.
func TestAppliesExclude(t *testing.T) {
	f := shared(t)
	dir, err := os.Open(f.Repo)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	sessions := []job.Session{f.Session(job.SessionSpec{Workspace: job.Overlay}), f.Session(job.SessionSpec{Workspace: job.Overlay})}
	for n, ss := range sessions {
		f.Must(ss, fmt.Sprintf("echo %d >file-%d", n, n))
	}
	var st unix.Stat_t
	if err := unix.Stat(f.Repo, &st); err != nil {
		t.Fatal(err)
	}
	unlock, err := host.LockApply(t.Context(), host.InodeOf(&st), 0)
	if err != nil {
		t.Fatal(err)
	}
	applied := make(chan error, len(sessions))
	for _, ss := range sessions {
		go func() {
			d, err := f.Try(f.apply(ss))
			if err == nil && d.ExitCode != 0 {
				err = fmt.Errorf("%+v %s%s", d.Result, d.Out, d.Err)
			}
			applied <- err
		}()
	}
	if again, err := host.LockApply(t.Context(), host.InodeOf(&st), 0); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("locked twice: %v", err)
		again()
	}
	for n := range sessions {
		if _, err := os.Stat(filepath.Join(f.Repo, fmt.Sprintf("file-%d", n))); err == nil {
			t.Error("changes are applied while others are")
		}
	}
	unlock()
	for range sessions {
		if err := <-applied; err != nil {
			t.Error(err)
		}
	}
	if entries, err := os.ReadDir(f.Repo); err != nil || len(entries) < len(sessions) {
		t.Errorf("%v, %v", entries, err)
	}
	unlock, err = host.LockApply(t.Context(), host.InodeOf(&st), 0)
	if err != nil {
		t.Fatalf("the lock stays after an apply: %v", err)
	}
	unlock()
	sandboxtest.AsNobody(t, t.TempDir(), func() {
		if file, err := os.Open(filepath.Join(host.RunDir, "apply")); err == nil {
			file.Close()
			t.Error("another user can open what the supervisor locks")
		}
	})
}

// fullState returns a state directory on a file system of its own, and functions that fill that file system and free
// it again.
func fullState(t *testing.T) (dir string, fill, room func()) {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root)
	at := t.TempDir()
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=256m,mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	filler := filepath.Join(at, "filler")
	fill = func() {
		t.Helper()
		f, err := os.OpenFile(filler, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for size := 1 << 20; size >= 1; {
			if _, err := f.Write(make([]byte, size)); err != nil {
				size /= 2
			}
		}
	}
	room = func() {
		t.Helper()
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(at, "state"), fill, room
}

// TestCloseOnFullDisk: a session whose changes cannot be kept stays open and its caller gets the error, also when the
// session ends with its connection.
func TestCloseOnFullDisk(t *testing.T) {
	for _, lasting := range []bool{true, false} {
		t.Run(fmt.Sprint("lasting ", lasting), func(t *testing.T) {
			state, fill, room := fullState(t)
			f := newFront(t, func(c *isolate.Config) { c.StateDir = state })
			ss := f.Session(job.SessionSpec{Workspace: job.Overlay, Lasting: lasting, Disk: layer.MinBytes, Inodes: 256})
			f.Must(ss, "echo mine >file")
			fill()
			for range 2 {
				refusedAt(t, "closed on a full disk", fronttest.Second(f.C.CloseSession(context.Background(), ss.ID, true)), "changes", unix.ENOSPC)
				if list, err := f.C.ListSessions(context.Background()); err != nil || len(list) != 1 || list[0].ID != ss.ID || list[0].Kept {
					t.Fatalf("%+v, %v", list, err)
				}
			}
			g := f.with(t, f.Connect(host.Peer{UID: owner}), f.Repo)
			if !lasting {
				_ = f.C.Close()
				// Closing the connection ends its sessions and keeps their changes, because the client had asked for
				// that.
				eventually(t, func() string {
					list, err := g.C.ListSessions(context.Background())
					if err == nil && len(list) == 1 {
						return ""
					}
					return fmt.Sprintf("%+v, %v", list, err)
				})
			}
			room()
			if d := g.Run(g.Changes(ss)); d.ExitCode != 0 || !strings.Contains(d.Out, "file") {
				t.Errorf("%+v %s%s", d.Result, d.Out, d.Err)
			}
			if kept, err := g.C.CloseSession(context.Background(), ss.ID, true); !kept || err != nil {
				t.Errorf("%v, %v", kept, err)
			}
			if got := g.Must(ss, "cat file"); got != "mine\n" {
				t.Errorf("%q", got)
			}
			g.CloseSession(ss, false)
		})
	}
}

// TestCloseLeavesNoEmptyLayer: closing a session while a job runs leaves no named layer if the layer is empty.
func TestCloseLeavesNoEmptyLayer(t *testing.T) {
	f := newFront(t)
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	spec := f.Spec("/bin/sh", "-c", "echo up; read line")
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	if _, err := f.Start(spec); err != nil {
		t.Fatal(err)
	}
	if kept, err := f.C.CloseSession(context.Background(), ss.ID, true); kept || err != nil {
		t.Errorf("%v, %v", kept, err)
	}
	entries, err := os.ReadDir(f.layers())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".layer") || strings.HasSuffix(e.Name(), ".json") {
			t.Errorf("left: %s", e.Name())
		}
	}
}

// TestLostWrites: data of a job that did not reach the disk, since the state's file system was full, is neither applied nor
// kept in silence, however often the client asks, and also not after the session has ended and its layer was kept.
func TestLostWrites(t *testing.T) {
	state, fill, room := fullState(t)
	var log sandboxtest.Output
	f := newFront(t, func(c *isolate.Config) {
		c.StateDir, c.Log = state, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay, Disk: 64 << 20, Inodes: 256})
	f.Must(ss, "echo mine >file")
	fill()
	f.Must(ss, "dd if=/dev/zero of=big bs=1M count=20 2>&1; sync || true")
	room()
	check := func(f *front) {
		t.Helper()
		if d := f.Run(f.Changes(ss)); d.ExitCode != 0 || !strings.Contains(d.Out, "big") {
			t.Errorf("%+v %s%s", d.Result, d.Out, d.Err)
		}
		for range 2 {
			_, err := f.Try(f.apply(ss))
			if refusal := (*job.Refusal)(nil); !errors.As(err, &refusal) || refusal.Step != "changes" || !strings.Contains(refusal.Message, "has lost data") {
				t.Errorf("applied with data that was lost: %v", err)
			}
		}
	}
	check(f)
	for range 2 {
		_, err := f.C.CloseSession(context.Background(), ss.ID, true)
		if refusal := (*job.Refusal)(nil); !errors.As(err, &refusal) || refusal.Step != "changes" || !strings.Contains(refusal.Message, "has lost data") {
			t.Errorf("closed with data that was lost: %v", err)
		}
	}
	_ = f.C.Close() // ends the session, and keeps its changes
	g := f.with(t, f.Connect(host.Peer{UID: owner}), f.Repo)
	eventually(t, func() string {
		list, err := g.C.ListSessions(context.Background())
		if err == nil && len(list) == 1 && list[0].Kept {
			return ""
		}
		return fmt.Sprintf("%+v, %v", list, err)
	})
	// What was lost may also be directories of the layer: then it cannot even be looked at.
	if d, err := g.Try(g.apply(ss)); err == nil || !strings.Contains(err.Error(), "has lost data") && !strings.Contains(err.Error(), "the layer is damaged") {
		t.Errorf("applied after the session: %v, %+v", err, d)
	}
	if list, err := os.ReadDir(f.Repo); err != nil || len(list) != 0 {
		t.Errorf("the repository has changed: %v, %v", list, err)
	}
	if !strings.Contains(log.String(), "are kept, but the last writes of its jobs may be missing") {
		t.Errorf("the operator is not told: %s", log.String())
	}
}

// TestApplyAfterPart checks that changes can be applied in parts, although jobs have moved files of the repository into
// directories that the first part changes.
func TestApplyAfterPart(t *testing.T) {
	f := shared(t)
	for _, name := range []string{"a", "b"} {
		put(t, filepath.Join(f.Repo, name), name+"\n", 0o644, owner)
	}
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.Must(ss, "mv a moved && mv b edited && echo more >>edited && echo n >new")
	part := f.apply(ss)
	part.Args = append(part.Args, "new")
	for _, spec := range []job.Spec{part, f.apply(ss)} {
		if d := f.Run(spec); d.ExitCode != 0 {
			t.Fatalf("%+v %s%s", d.Result, d.Out, d.Err)
		}
	}
	for name, want := range map[string]string{"moved": "a\n", "edited": "b\nmore\n", "new": "n\n", "a": "", "b": ""} {
		if b, _ := os.ReadFile(filepath.Join(f.Repo, name)); string(b) != want {
			t.Errorf("%s: %q, want %q", name, b, want)
		}
	}
	if out := f.Must(ss, "ls"); out != "edited\nmoved\nnew\n" {
		t.Errorf("the session sees %q", out)
	}
}
