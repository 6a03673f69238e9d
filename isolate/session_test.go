package isolate

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/isolate/cell"
	"corral/job"
)

// TestSessionJailDies: when its jail dies the session ends and nothing of it is left, except changes behind an
// overlay, which were not discarded: the next job resumes them.
func TestSessionJailDies(t *testing.T) {
	f := newFront(t)
	before := layers(t)
	die := func(spec job.SessionSpec) job.Spec {
		ss := f.Session(spec)
		f.Must(ss, ": >x")
		f.killJail(ss)
		eventually(t, func() string {
			for _, l := range layers(t) {
				if !slices.Contains(before, l) {
					return l
				}
			}
			return ""
		})
		again := f.Spec("cat", "x")
		again.Session, again.Workspace = ss.ID, ss.Workspace
		return again
	}
	refusedAt(t, t.Name(), fronttest.Second(f.Try(die(job.SessionSpec{Root: true}))), "session", 0)
	if err := os.Remove(filepath.Join(f.Repo, "x")); err != nil {
		t.Error(err)
	}
	if result, err := f.Try(die(job.SessionSpec{Workspace: job.Overlay, Root: true})); err != nil || result.ExitCode != 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

// layers lists the loop devices, with their files, whose file is in a directory with the test's name. Loop devices
// are machine-wide, and other tests use some.
func layers(t testing.TB) []string {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "/"+test) {
			list = append(list, f+": "+strings.TrimSpace(string(b)))
		}
	}
	return list
}

// jailOf returns the state of a session's jail.
func (f *front) jailOf(ss job.Session) cell.JailState {
	f.T.Helper()
	for _, j := range f.s.standing() {
		if j.Session == ss.ID {
			return j
		}
	}
	f.T.Fatalf("session %s has no jail", ss.ID)
	return cell.JailState{}
}

// killJail kills process 1 of a session's jail, and waits until nothing of the jail is left.
func (f *front) killJail(ss job.Session) {
	f.T.Helper()
	if err := unix.Kill(f.jailOf(ss).InitPID, unix.SIGKILL); err != nil {
		f.T.Fatal(err)
	}
	eventually(f.T, func() string {
		list, err := f.C.ListSessions(f.T.Context())
		if err != nil {
			return err.Error()
		}
		for _, open := range list {
			if open.ID == ss.ID && !open.Kept {
				return "the session has not ended"
			}
		}
		return ""
	})
}

// TestSessionScannerDies: a session whose scanner died gets another one; so does a session without one when it needs
// one.
func TestSessionScannerDies(t *testing.T) {
	f := newFront(t)
	mkdir(t, filepath.Join(f.Repo, ".git"), owner)
	mkdir(t, filepath.Join(f.Repo, ".git", "hooks"), owner)
	ss := f.Session(job.SessionSpec{Root: true})
	f.Must(ss, "true")
	if err := unix.Kill(f.jailOf(ss).ScannerPID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f.Must(ss, ": >.git/hooks/one")
	}
	if d := f.In(ss, "echo >>.git/hooks/one"); !slices.Contains(d.Sensitive, ".git/hooks/one") {
		t.Errorf("reported: %q", d.Sensitive)
	}
	layered := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.Must(layered, "echo x >y")
	for range 2 {
		spec := f.Spec("changes", "list", f.Repo)
		spec.Session, spec.Tool, spec.Protect = layered.ID, job.ToolChanges, job.ProtectHooks
		if d := f.Feed(spec, nil); d.ExitCode != 0 {
			t.Errorf("%+v %s", d.Result, d.Err)
		}
	}
	f.Must(layered, "cat y")
}

// TestChangesKeptWhenJailDies: the changes of a session whose jail was killed are kept.
func TestChangesKeptWhenJailDies(t *testing.T) {
	f := newFront(t)
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.Must(ss, "echo mine >file")
	f.killJail(ss) // process 1 exits, as after SIGKILL
	if d := f.Run(f.Changes(ss)); d.ExitCode != 0 || !strings.Contains(d.Out, "file") {
		t.Errorf("%+v %s%s", d.Result, d.Out, d.Err)
	}
	if list, err := f.C.ListSessions(context.Background()); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}
