package sessions

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/fronttest"
	"corral/isolate/host"
	"corral/job"
)

// tool runs one of corral's own programs in a session.
func (f *front) tool(ss job.Session, tool job.Tool, ws job.Workspace, input []byte, args ...string) did {
	f.T.Helper()
	spec := f.Spec(args...)
	spec.Session, spec.Tool, spec.Workspace, spec.Repo = ss.ID, tool, ws, ""
	return f.Feed(spec, input)
}

// TestChangesTool: the tool sees the session's layer and the repository below it, of open sessions and of kept
// layers, whatever jobs did to the session's own root.
func TestChangesTool(t *testing.T) {
	f := shared(t)
	put(t, filepath.Join(f.Repo, "old"), "old\n", 0o644, owner)
	for _, root := range []bool{false, true} {
		ss := f.Session(job.SessionSpec{Workspace: job.Overlay, Root: root})
		f.Must(ss, "echo new >new-file; rm old")
		if root {
			f.Must(ss, "rm -rf /etc /srv /var/layer /var/lib /var/empty 2>/dev/null; ln -s /dev/null /var/layer; true")
		}
		for range 2 {
			d := f.tool(ss, job.ToolChanges, job.ReadOnly, nil, "changes", "list", f.Repo)
			if d.ExitCode != 0 || !strings.Contains(d.Out, "new-file") || !strings.Contains(d.Out, "old") {
				t.Errorf("root %v: %+v %q %q", root, d.Result, d.Out, d.Err)
			}
			if _, err := f.C.CloseSession(context.Background(), ss.ID, true); err != nil {
				t.Fatal(err)
			}
		}
		f.CloseSession(ss, false)
	}
}

// TestImage: root imports a root file system, and sessions of every user can start with it.
func TestImage(t *testing.T) {
	f := newFront(t)
	archive := fronttest.Archive(t, nil)
	root := f.with(t, f.Connect(host.Peer{}), t.TempDir())
	ctx := context.Background()
	for _, keep := range []bool{false, true} {
		ss, err := root.C.OpenSession(ctx, job.SessionSpec{Import: "mine", Disk: fronttest.Small})
		if err != nil {
			t.Fatal(err)
		}
		spec := root.Spec("unpack", "/image")
		spec.Repo, spec.Session, spec.Tool = "", ss.ID, job.ToolUnpack
		if d := root.Feed(spec, archive); d.ExitCode != 0 {
			t.Fatalf("%+v %s%s", d.Result, d.Out, d.Err)
		}
		if kept, err := root.C.CloseSession(ctx, ss.ID, keep); err != nil || kept != keep {
			t.Errorf("kept: %v, %v", kept, err)
		}
	}
	list, err := f.C.ListImages(ctx)
	if err != nil || len(list) != 1 || list[0].Name != "mine" || list[0].Bytes == 0 {
		t.Errorf("%+v, %v", list, err)
	}
	refusedAt(t, "twice", fronttest.Second(root.C.OpenSession(ctx, job.SessionSpec{Import: "mine", Disk: fronttest.Small})), "session", 0)
	a := f.Session(job.SessionSpec{Root: true, Image: "mine"})
	b := f.Session(job.SessionSpec{Root: true, Image: "mine", Workspace: job.Overlay})
	script := "read x </etc/marker; echo $x; echo changed >/etc/marker; echo >/etc/new; read x </etc/secret; echo $x; : >in-repo; test ! -e /usr/bin/env"
	for _, ss := range []job.Session{a, b} {
		if got := f.Must(ss, script); got != "from the image\nof its root\n" {
			t.Errorf("%q", got)
		}
		if got := f.Must(ss, "read x </etc/marker; echo $x; test -e /etc/new"); got != "changed\n" {
			t.Errorf("%q", got)
		}
	}
	refusedAt(t, "another user", f.C.RemoveImage(ctx, "mine"), "session", 0)
	if err := root.C.RemoveImage(ctx, "mine"); err != nil {
		t.Error(err)
	}
	f.Must(a, "test -e /etc/new")
	refusedAt(t, "removed", root.C.RemoveImage(ctx, "mine"), "session", 0)
}
