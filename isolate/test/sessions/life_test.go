package sessions

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
	"corral/isolate/admit"
	"corral/job"
)

// TestSessionFails: a session that fails to open never appears in lists.
func TestSessionFails(t *testing.T) {
	f := newFront(t)
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
				if list, err := f.C.ListSessions(ctx); err != nil || len(list) > 0 {
					t.Errorf("%+v, %v", list, err)
					return
				}
			}
		})
	}
	for range sandboxtest.Scale(20) {
		spec := job.SessionSpec{Repo: f.Repo, Image: "missing", Root: true, Workspace: job.Overlay}
		refusedAt(t, "an image that does not exist", fronttest.Second(f.C.OpenSession(ctx, spec)), "session", 0)
	}
	close(done)
	work.Wait()
}

// TestResumeConcurrently: concurrent requests for a kept layer resume it once.
func TestResumeConcurrently(t *testing.T) {
	f := shared(t)
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.Must(ss, ": >lines")
	f.CloseSession(ss, true)
	for range sandboxtest.Scale(6) {
		var work sync.WaitGroup
		for range 6 {
			work.Go(func() {
				spec := f.Spec("/bin/sh", "-c", "echo line >>lines")
				spec.Session, spec.Workspace = ss.ID, ss.Workspace
				if d, err := f.Try(spec); err != nil || d.ExitCode != 0 {
					t.Errorf("%+v, %v", d.Result, err)
				}
			})
			work.Go(func() {
				if _, err := f.C.ListSessions(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		if _, err := f.C.CloseSession(context.Background(), ss.ID, true); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(f.Must(ss, "cat lines"), "line\n"); got != 6*sandboxtest.Scale(6) {
		t.Errorf("%d lines", got)
	}
}

// TestResumeNoRoom: a kept layer that cannot be resumed now can be resumed later.
func TestResumeNoRoom(t *testing.T) {
	f := newFront(t, func(c *isolate.Config) { c.MaxJails = 1 })
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.Must(ss, ": >x")
	f.CloseSession(ss, true)
	other := f.Session(job.SessionSpec{Workspace: job.Overlay})
	spec := f.Spec("/bin/true")
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	for range 2 {
		refusedAt(t, "no room", fronttest.Second(f.Try(spec)), "jail", 0)
		if list, err := f.C.ListSessions(context.Background()); err != nil || len(list) != 2 {
			t.Errorf("%+v, %v", list, err)
		}
	}
	f.CloseSession(other, false)
	f.Run(spec)
}

// TestResumedProfile: the current configuration of a repository applies to layers that were kept before.
func TestResumedProfile(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	repo := newRepo(t)
	f := newFront(t, func(c *isolate.Config) { c.StateDir = state })
	f.Repo = repo
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.Must(ss, ": >x")
	f.CloseSession(ss, true)
	g := newFront(t, func(c *isolate.Config) {
		c.StateDir, c.Repos = state, []admit.Entry{{Path: repo, UIDs: []uint32{owner}, Profile: "strict"}}
	})
	g.Repo = repo
	spec := g.Spec("/bin/true")
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	refusedAt(t, "the profile has changed", fronttest.Second(g.Try(spec)), "profile", 0)
}

// TestResumedHome: a session that resumes a kept layer has the home directory and /tmp of the first one, if its jobs shared those.
func TestResumedHome(t *testing.T) {
	f := newFront(t)
	f.Repo = filepath.Join(sandboxtest.OpenDirIn(t, "/var/tmp"), "repo")
	mkdir(t, f.Repo, owner)
	for _, share := range []bool{true, false} {
		ss := f.Session(job.SessionSpec{Workspace: job.Overlay, Share: share})
		f.Must(ss, "echo home >/home/job/made; echo tmp >/tmp/made; echo new >file")
		want := "new\n"
		if share {
			want = "home\ntmp\nnew\n"
		}
		for range 2 {
			if !f.CloseSession(ss, true) {
				t.Fatal("the layer was not kept")
			}
			if got := f.Must(ss, "cat /home/job/made /tmp/made file 2>/dev/null || :"); got != want {
				t.Errorf("share %v: %q, want %q", share, got, want)
			}
		}
		if got := f.Must(ss, "stat -c %a /tmp; echo more >>/tmp/made; rmdir /tmp 2>/dev/null || echo stays"); got != "1777\nstays\n" {
			t.Errorf("%q", got)
		}
		f.CloseSession(ss, false)
	}
}
