package sessions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/isolate"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/layer"
	"corral/isolate/test/supervise"
	"corral/job"
)

// TestFullLayerKept: the changes on a layer without free space, in bytes or in files, can be listed and applied.
func TestFullLayerKept(t *testing.T) {
	for name, fill := range map[string]string{
		"bytes": "head -c 200M /dev/zero >big; while echo 1234567890123456789012345678901234567890 >>rest; do :; done",
		"files": "i=0; while : >f$i; do i=$((i+1)); done",
		"both":  "head -c 200M /dev/zero >big; i=0; while : >f$i; do i=$((i+1)); done",
	} {
		t.Run(name, func(t *testing.T) {
			f := shared(t)
			ss := f.Session(job.SessionSpec{Workspace: job.Overlay, Disk: layer.MinBytes, Inodes: 256})
			f.Must(ss, "echo mine >a-file")
			f.In(ss, "("+fill+") 2>/dev/null")
			for _, free := range []string{":", ":", "rm -f f1 big; echo more >>a-file", "echo more >>a-file"} {
				if _, err := f.C.CloseSession(context.Background(), ss.ID, true); err != nil {
					t.Fatal(err)
				}
				d := f.Run(f.Changes(ss))
				if d.ExitCode != 0 || !strings.Contains(d.Out, "a-file") {
					t.Fatalf("%+v %q %q", d.Result, d.Out, d.Err)
				}
				f.Must(ss, "cat a-file; "+free)
			}
			apply := f.Changes(ss)
			apply.Args, apply.Workspace = []string{"changes", "apply", "-opened", fmt.Sprint(ss.Opened.UnixNano()), f.Repo}, job.Direct
			d := f.Run(apply)
			if b, err := os.ReadFile(filepath.Join(f.Repo, "a-file")); d.ExitCode != 0 || string(b) != "mine\nmore\nmore\n" {
				t.Errorf("%q, %v, %+v %s%s", b, err, d.Result, d.Out, d.Err)
			}
			f.CloseSession(ss, false)
		})
	}
}

// TestEmbeddedKeptLayers: layers kept by embedded front-ends can be used by embedded front-ends of the same
// repository.
func TestEmbeddedKeptLayers(t *testing.T) {
	mine, others := newRepo(t), newRepo(t)
	f := newFront(t, func(c *isolate.Config) { c.Repos = []admit.Entry{{Path: mine}} })
	f.CloseSession(f.kept(), true)
	embedded := f.with(t, f.Connect(host.Peer{Embedded: true}), mine)
	own := embedded.kept()
	embedded.CloseSession(own, true)
	foreign := embedded.kept()
	embedded.CloseSession(foreign, true)
	var st unix.Stat_t
	if err := unix.Stat(others, &st); err != nil {
		t.Fatal(err)
	}
	f.describe(foreign, func(k map[string]any) { k["repo"], k["dev"], k["ino"] = others, st.Dev, st.Ino })
	list, err := embedded.C.ListSessions(context.Background())
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, ss := range list {
		if ss.ID == foreign.ID && ss.Repo != others || ss.ID == own.ID && ss.Repo != mine {
			t.Errorf("%+v", ss)
		}
	}
	if _, err := embedded.Try(embedded.Changes(foreign)); err == nil {
		t.Error("the layer of another repository was used")
	}
	refusedAt(t, "removed", fronttest.Second(embedded.C.CloseSession(context.Background(), foreign.ID, false)), "session", 0)
	if d := embedded.Run(embedded.Changes(own)); d.ExitCode != 0 || !strings.Contains(d.Out, "file") {
		t.Errorf("%+v %s%s", d.Result, d.Out, d.Err)
	}
	embedded.CloseSession(own, false)
	root := f.Connect(host.Peer{})
	if list, err := root.ListSessions(context.Background()); err != nil || len(list) != 2 {
		t.Errorf("root sees %+v, %v", list, err)
	}
	if _, err := root.CloseSession(context.Background(), foreign.ID, false); err != nil {
		t.Error(err)
	}
}

// kept opens a session and writes a file to its layer.
func (f *front) kept() job.Session {
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.Must(ss, "echo 1 >file")
	return ss
}

// TestImagesNeedRoot: a front-end of root creates and removes root file systems only if its supervisor was started
// for that, and an empty one is not kept.
func TestImagesNeedRoot(t *testing.T) {
	f := newFront(t)
	ctx, spec := context.Background(), job.SessionSpec{Import: "mine", Disk: fronttest.Small}
	put(t, filepath.Join(f.State, "images", "there"), "", 0o600, 0)
	plain := f.Connect(host.Peer{Embedded: true})
	refusedAt(t, "import", fronttest.Second(plain.OpenSession(ctx, spec)), "session", 0)
	refusedAt(t, "remove", plain.RemoveImage(ctx, "there"), "session", 0)
	for _, peer := range []host.Peer{{Embedded: true, Images: true}, {}} {
		c := f.Connect(peer)
		ss, err := c.OpenSession(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := c.CloseSession(ctx, ss.ID, true)
		refusedAt(t, "nothing in it", err, "session", 0)
		if list, err := c.ListImages(ctx); err != nil || kept || len(list) != 1 {
			t.Errorf("kept %v: %+v, %v", kept, list, err)
		}
	}
	if err := f.Connect(host.Peer{Embedded: true, Images: true}).RemoveImage(ctx, "there"); err != nil {
		t.Error(err)
	}
}

// TestKeptLayerExpires: kept layers expire unless in use; using one restarts its retention time.
func TestKeptLayerExpires(t *testing.T) {
	f := newFront(t)
	ss := f.kept()
	f.CloseSession(ss, true)
	old := func() {
		t.Helper()
		f.describe(ss, func(k map[string]any) { k["kept"] = time.Now().Add(-8 * 24 * time.Hour) })
	}
	expire := func() { // as each supervisor does when it starts
		t.Helper()
		c := supervise.Config(t)
		c.StateDir = f.State
		other, err := isolate.New(c)
		if err == nil {
			err = other.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	old()
	f.Must(ss, "cat file")
	expire()
	f.CloseSession(ss, true)
	expire()
	f.describe(ss, func(k map[string]any) {
		if kept, err := time.Parse(time.RFC3339Nano, k["kept"].(string)); err != nil || time.Since(kept) > time.Hour {
			t.Fatalf("%+v, %v", k, err)
		}
	})
	old()
	expire()
	eventually(t, func() string {
		left, err := os.ReadDir(f.layers())
		for _, e := range left {
			if strings.HasPrefix(e.Name(), ss.ID) {
				return e.Name()
			}
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// TestEmbeddedExpiresNothing: a supervisor started for one command removes no kept layers.
func TestEmbeddedExpiresNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	f := newFront(t, func(c *isolate.Config) { c.StateDir = dir })
	ss := f.kept()
	f.CloseSession(ss, true)
	f.describe(ss, func(k map[string]any) { k["kept"] = time.Time{} })
	c := supervise.Config(t)
	c.StateDir, c.Layers.Keep = dir, -1
	other, err := isolate.New(c)
	if err == nil {
		err = other.Close() // no goroutine expires layers any more
	}
	if err != nil {
		t.Fatal(err)
	}
	if !exists(filepath.Join(f.layers(), ss.ID+".json")) || !exists(filepath.Join(f.layers(), ss.ID+".layer")) {
		t.Error("the layer is gone")
	}
}

// TestUnkeepableSessionStaysOpen: a session whose layer cannot be kept stays open without a description, and can be
// closed without keeping it.
func TestUnkeepableSessionStaysOpen(t *testing.T) {
	f := shared(t)
	ss := f.kept()
	layerPath := filepath.Join(f.layers(), ss.ID+".layer")
	put(t, layerPath, "", 0o600, 0)
	kept, err := f.C.CloseSession(context.Background(), ss.ID, true)
	refusedAt(t, "a session that cannot be kept", err, "changes", unix.EEXIST)
	if kept {
		t.Error("kept")
	}
	if _, err := os.Stat(filepath.Join(f.layers(), ss.ID+".json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("described: %v", err)
	}
	f.Must(ss, "true")
	if kept, err := f.C.CloseSession(context.Background(), ss.ID, false); kept || err != nil {
		t.Errorf("discarded: kept %v, %v", kept, err)
	}
	if err := os.Remove(layerPath); err != nil { // another file of that name is not removed
		t.Error(err)
	}
}

// TestTooSmallLayerRefused: a layer with impossible limits, or too small for a session's initial files, is refused.
func TestTooSmallLayerRefused(t *testing.T) {
	f := shared(t)
	for name, spec := range map[string]job.SessionSpec{
		"files for its size": {Disk: fronttest.Small, Inodes: fronttest.Small/4096 + 1},
		"no files":           {Disk: fronttest.Small, Inodes: layer.MinInodes - 1},
		"no bytes":           {Disk: layer.MinBytes - 1},
		"a root":             {Disk: layer.MinBytes, Inodes: layer.MinInodes, Root: true},
	} {
		spec.Repo = f.Repo
		refusedAt(t, name, fronttest.Second(f.C.OpenSession(context.Background(), spec)), "limits", 0)
	}
}

// layers is the directory of kept layers.
func (f *front) layers() string { return filepath.Join(f.State, "layers") }

// describe changes the description of a kept layer.
func (f *front) describe(ss job.Session, change func(k map[string]any)) {
	f.T.Helper()
	path := filepath.Join(f.layers(), ss.ID+".json")
	b, err := os.ReadFile(path)
	k := map[string]any{}
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(b))
		decoder.UseNumber()
		err = decoder.Decode(&k)
	}
	if err != nil {
		f.T.Fatal(err)
	}
	change(k)
	if b, err = json.Marshal(k); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		f.T.Fatal(err)
	}
}
