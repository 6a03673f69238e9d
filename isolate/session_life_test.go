package isolate

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/layer"
	"corral/job"
)

// TestSessionFails: a session that fails to open never appears in lists.
func TestSessionFails(t *testing.T) {
	f := newFront(t, func(c *Config) { c.Layers.MaxDisk = layer.MaxBytes })
	ctx := context.Background()
	done := make(chan struct{})
	var work sync.WaitGroup
	for range 2 {
		work.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if list, err := f.c.ListSessions(ctx); err != nil || len(list) > 0 {
					t.Errorf("%+v, %v", list, err)
					return
				}
			}
		})
	}
	for range sandboxtest.Scale(20) {
		spec := job.SessionSpec{Repo: f.repo, Disk: layer.MaxBytes, Inodes: 1000, Workspace: job.Overlay}
		refusedAt(t, "more than there is", second(f.c.OpenSession(ctx, spec)), "session", 0)
	}
	close(done)
	work.Wait()
}

// TestResumeConcurrently: concurrent requests for a kept layer resume it once.
func TestResumeConcurrently(t *testing.T) {
	f := newFront(t)
	ss := f.session(job.SessionSpec{Workspace: job.Overlay})
	f.must(ss, ": >lines")
	f.close(ss, true)
	for range sandboxtest.Scale(6) {
		var work sync.WaitGroup
		for range 6 {
			work.Go(func() {
				spec := f.spec("/bin/sh", "-c", "echo line >>lines")
				spec.Session, spec.Workspace = ss.ID, ss.Workspace
				if d, err := f.try(spec); err != nil || d.ExitCode != 0 {
					t.Errorf("%+v, %v", d.Result, err)
				}
			})
			work.Go(func() {
				if _, err := f.c.ListSessions(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		if _, err := f.c.CloseSession(context.Background(), ss.ID, true); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(f.must(ss, "cat lines"), "line\n"); got != 6*sandboxtest.Scale(6) {
		t.Errorf("%d lines", got)
	}
}

// TestResumeNoRoom: a kept layer that cannot be resumed now can be resumed later.
func TestResumeNoRoom(t *testing.T) {
	f := newFront(t, func(c *Config) { c.MaxJails = 4 }) // one jail per user
	ss := f.session(job.SessionSpec{Workspace: job.Overlay})
	f.must(ss, ": >x")
	f.close(ss, true)
	other := f.session(job.SessionSpec{Workspace: job.Overlay})
	spec := f.spec("/bin/true")
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	for range 2 {
		refusedAt(t, "no room", second(f.try(spec)), "jail", 0)
		if list, err := f.c.ListSessions(context.Background()); err != nil || len(list) != 2 {
			t.Errorf("%+v, %v", list, err)
		}
	}
	f.close(other, false)
	f.run(spec)
}

// TestSessionScannerDies: a session whose scanner died gets another one; so does a session without one when it needs
// one.
func TestSessionScannerDies(t *testing.T) {
	f := newFront(t)
	mkdir(t, filepath.Join(f.repo, ".git"), owner)
	mkdir(t, filepath.Join(f.repo, ".git", "hooks"), owner)
	ss := f.session(job.SessionSpec{Root: true})
	f.must(ss, "true")
	if err := unix.Kill(f.jailOf(ss).ScannerPID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f.must(ss, ": >.git/hooks/one")
	}
	if d := f.in(ss, "echo >>.git/hooks/one"); !slices.Contains(d.Sensitive, ".git/hooks/one") {
		t.Errorf("reported: %q", d.Sensitive)
	}
	layered := f.session(job.SessionSpec{Workspace: job.Overlay})
	f.must(layered, "echo x >y")
	for range 2 {
		spec := f.spec("changes", "list", f.repo)
		spec.Session, spec.Tool, spec.Protect = layered.ID, job.ToolChanges, job.ProtectHooks
		if d := f.feed(spec, nil); d.ExitCode != 0 {
			t.Errorf("%+v %s", d.Result, d.err)
		}
	}
	f.must(layered, "cat y")
}

// TestResumedProfile: the current configuration of a repository applies to layers that were kept before.
func TestResumedProfile(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	repo := newRepo(t)
	f := &front{t, supervise(t, func(c *Config) { c.StateDir = state }), nil, repo}
	f.c = connect(t, f.s, host.Peer{UID: owner})
	ss := f.session(job.SessionSpec{Workspace: job.Overlay})
	f.must(ss, ": >x")
	f.close(ss, true)
	g := &front{t, supervise(t, func(c *Config) {
		c.StateDir, c.Repos = state, []admit.Entry{{Path: repo, UIDs: []uint32{owner}, Profile: "strict"}}
	}), nil, repo}
	g.c = connect(t, g.s, host.Peer{UID: owner})
	spec := g.spec("/bin/true")
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	refusedAt(t, "the profile has changed", second(g.try(spec)), "profile", 0)
}

// TestResumedHome: a session that resumes a kept layer has the home directory and /tmp of the first one, if its jobs shared those.
func TestResumedHome(t *testing.T) {
	f := newFront(t)
	f.repo = filepath.Join(sandboxtest.OpenDirIn(t, "/var/tmp"), "repo")
	mkdir(t, f.repo, owner)
	for _, share := range []bool{true, false} {
		ss := f.session(job.SessionSpec{Workspace: job.Overlay, Share: share})
		f.must(ss, "echo home >/home/job/made; echo tmp >/tmp/made; echo new >file")
		want := "new\n"
		if share {
			want = "home\ntmp\nnew\n"
		}
		for range 2 {
			if !f.close(ss, true) {
				t.Fatal("the layer was not kept")
			}
			if got := f.must(ss, "cat /home/job/made /tmp/made file 2>/dev/null || :"); got != want {
				t.Errorf("share %v: %q, want %q", share, got, want)
			}
		}
		if got := f.must(ss, "stat -c %a /tmp; echo more >>/tmp/made; rmdir /tmp 2>/dev/null || echo stays"); got != "1777\nstays\n" {
			t.Errorf("%q", got)
		}
		f.close(ss, false)
	}
}
