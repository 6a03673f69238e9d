package isolate

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

	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/isolate/layer"
	"corral/job"
)

// apply returns a job that applies the session's changes.
func (f *front) apply(ss job.Session) job.Spec {
	spec := f.changes(ss)
	spec.Args, spec.Workspace = []string{"changes", "apply", "-opened", fmt.Sprint(ss.Opened.UnixNano()), f.repo}, job.Direct
	return spec
}

// TestApplyExcludesWriters: changes are not applied while a job of the session could still change them; listing them
// and a dry run are always possible.
func TestApplyExcludesWriters(t *testing.T) {
	f := newFront(t)
	ss := f.session(job.SessionSpec{Workspace: job.Overlay})
	f.must(ss, "echo good >file")
	spec := f.spec("/bin/sh", "-c", "read line; echo evil >file")
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	l, err := f.start(spec)
	if err != nil {
		t.Fatal(err)
	}
	if d := f.run(f.changes(ss)); d.ExitCode != 0 || !strings.Contains(d.out, "file") {
		t.Errorf("list: %+v %s%s", d.Result, d.out, d.err)
	}
	dry := f.apply(ss)
	dry.Args = append([]string{"changes", "apply", "-dry-run"}, dry.Args[2:]...)
	dry.Workspace = job.ReadOnly
	if d := f.run(dry); d.ExitCode != 0 {
		t.Errorf("a dry run: %+v %s%s", d.Result, d.out, d.err)
	}
	refusedAt(t, "applied while a job runs", second(f.try(f.apply(ss))), "changes", unix.EBUSY)
	if _, err := os.Stat(filepath.Join(f.repo, "file")); err == nil {
		t.Error("the changes were applied")
	}
	_, _ = l.in.WriteString("\n")
	if d, err := l.end(); err != nil || d.ExitCode != 0 {
		t.Fatalf("%+v, %v", d.Result, err)
	}
	if d := f.run(f.apply(ss)); d.ExitCode != 0 {
		t.Errorf("%+v %s%s", d.Result, d.out, d.err)
	}
	if b, err := os.ReadFile(filepath.Join(f.repo, "file")); string(b) != "evil\n" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	f.must(ss, "true")
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
			f := newFront(t, func(c *Config) { c.StateDir = state })
			ss := f.session(job.SessionSpec{Workspace: job.Overlay, Lasting: lasting, Disk: layer.MinBytes, Inodes: 256})
			f.must(ss, "echo mine >file")
			fill()
			for range 2 {
				refusedAt(t, "closed on a full disk", second(f.c.CloseSession(context.Background(), ss.ID, true)), "changes", unix.ENOSPC)
				if list, err := f.c.ListSessions(context.Background()); err != nil || len(list) != 1 || list[0].ID != ss.ID || list[0].Kept {
					t.Fatalf("%+v, %v", list, err)
				}
			}
			g := &front{t, f.s, connect(t, f.s, host.Peer{UID: owner}), f.repo}
			if !lasting {
				_ = f.c.Close()
				// Closing the connection ends its sessions and keeps their changes, because the client had asked for
				// that.
				eventually(t, func() string {
					list, err := g.c.ListSessions(context.Background())
					if err == nil && len(list) == 1 {
						return ""
					}
					return fmt.Sprintf("%+v, %v", list, err)
				})
			}
			room()
			if d := g.run(g.changes(ss)); d.ExitCode != 0 || !strings.Contains(d.out, "file") {
				t.Errorf("%+v %s%s", d.Result, d.out, d.err)
			}
			if kept, err := g.c.CloseSession(context.Background(), ss.ID, true); !kept || err != nil {
				t.Errorf("%v, %v", kept, err)
			}
			if got := g.must(ss, "cat file"); got != "mine\n" {
				t.Errorf("%q", got)
			}
			g.close(ss, false)
		})
	}
}

// TestChangesKeptWhenJailDies: the changes of a session whose jail was killed are kept.
func TestChangesKeptWhenJailDies(t *testing.T) {
	f := newFront(t)
	ss := f.session(job.SessionSpec{Workspace: job.Overlay})
	f.must(ss, "echo mine >file")
	f.killJail(ss) // process 1 exits, as after SIGKILL
	if d := f.run(f.changes(ss)); d.ExitCode != 0 || !strings.Contains(d.out, "file") {
		t.Errorf("%+v %s%s", d.Result, d.out, d.err)
	}
	if list, err := f.c.ListSessions(context.Background()); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestCloseLeavesNoEmptyLayer: closing a session while a job runs leaves no named layer if the layer is empty.
func TestCloseLeavesNoEmptyLayer(t *testing.T) {
	f := newFront(t)
	ss := f.session(job.SessionSpec{Workspace: job.Overlay})
	spec := f.spec("/bin/sh", "-c", "echo up; read line")
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	if _, err := f.start(spec); err != nil {
		t.Fatal(err)
	}
	if kept, err := f.c.CloseSession(context.Background(), ss.ID, true); kept || err != nil {
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
	f := newFront(t, func(c *Config) {
		c.StateDir, c.Log = state, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	ss := f.session(job.SessionSpec{Workspace: job.Overlay, Disk: 64 << 20, Inodes: 256})
	f.must(ss, "echo mine >file")
	fill()
	f.must(ss, "dd if=/dev/zero of=big bs=1M count=20 2>&1; sync || true")
	room()
	check := func(f *front) {
		t.Helper()
		if d := f.run(f.changes(ss)); d.ExitCode != 0 || !strings.Contains(d.out, "big") {
			t.Errorf("%+v %s%s", d.Result, d.out, d.err)
		}
		for range 2 {
			_, err := f.try(f.apply(ss))
			if refusal := (*job.Refusal)(nil); !errors.As(err, &refusal) || refusal.Step != "changes" || !strings.Contains(refusal.Message, "has lost data") {
				t.Errorf("applied with data that was lost: %v", err)
			}
		}
	}
	check(f)
	for range 2 {
		_, err := f.c.CloseSession(context.Background(), ss.ID, true)
		if refusal := (*job.Refusal)(nil); !errors.As(err, &refusal) || refusal.Step != "changes" || !strings.Contains(refusal.Message, "has lost data") {
			t.Errorf("closed with data that was lost: %v", err)
		}
	}
	_ = f.c.Close() // ends the session, and keeps its changes
	g := &front{t, f.s, connect(t, f.s, host.Peer{UID: owner}), f.repo}
	eventually(t, func() string {
		list, err := g.c.ListSessions(context.Background())
		if err == nil && len(list) == 1 && list[0].Kept {
			return ""
		}
		return fmt.Sprintf("%+v, %v", list, err)
	})
	// What was lost may also be directories of the layer: then it cannot even be looked at.
	if d, err := g.try(g.apply(ss)); err == nil || !strings.Contains(err.Error(), "has lost data") && !strings.Contains(err.Error(), "the layer is damaged") {
		t.Errorf("applied after the session: %v, %+v", err, d)
	}
	if list, err := os.ReadDir(f.repo); err != nil || len(list) != 0 {
		t.Errorf("the repository has changed: %v, %v", list, err)
	}
	if !strings.Contains(log.String(), "are kept, but the last writes of its jobs may be missing") {
		t.Errorf("the operator is not told: %s", log.String())
	}
}

// TestApplyAfterPart checks that changes can be applied in parts, although jobs have moved files of the repository into
// directories that the first part changes.
func TestApplyAfterPart(t *testing.T) {
	f := newFront(t)
	for _, name := range []string{"a", "b"} {
		put(t, filepath.Join(f.repo, name), name+"\n", 0o644, owner)
	}
	ss := f.session(job.SessionSpec{Workspace: job.Overlay})
	f.must(ss, "mv a moved && mv b edited && echo more >>edited && echo n >new")
	part := f.apply(ss)
	part.Args = append(part.Args, "new")
	for _, spec := range []job.Spec{part, f.apply(ss)} {
		if d := f.run(spec); d.ExitCode != 0 {
			t.Fatalf("%+v %s%s", d.Result, d.out, d.err)
		}
	}
	for name, want := range map[string]string{"moved": "a\n", "edited": "b\nmore\n", "new": "n\n", "a": "", "b": ""} {
		if b, _ := os.ReadFile(filepath.Join(f.repo, name)); string(b) != want {
			t.Errorf("%s: %q, want %q", name, b, want)
		}
	}
	if out := f.must(ss, "ls"); out != "edited\nmoved\nnew\n" {
		t.Errorf("the session sees %q", out)
	}
}
