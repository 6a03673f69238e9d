package sessions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// TestOverlay: what a session's jobs write is visible to the session's next job, and not in the repository.
func TestOverlay(t *testing.T) {
	f := shared(t)
	put(t, filepath.Join(f.Repo, "old"), "old\n", 0o644, owner)
	put(t, filepath.Join(f.Repo, "gone"), "gone\n", 0o644, owner)
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.Must(ss, "echo new >new && echo more >>old && rm gone && mkdir -p a/b && ln -s old link && chmod 755 old")
	if got := f.Must(ss, "cat new old link; ls a; ls; stat -c '%U %a' old new"); got != "new\nold\nmore\nold\nmore\nb\na\nlink\nnew\nold\njob 755\njob 644\n" {
		t.Errorf("the next job sees %q", got)
	}
	names, err := os.ReadDir(f.Repo)
	if err != nil || len(names) != 2 {
		t.Errorf("the repository has %v, %v", names, err)
	}
	if b, err := os.ReadFile(filepath.Join(f.Repo, "old")); string(b) != "old\n" {
		t.Errorf("old is %q, %v", b, err)
	}
	if got := f.Run(f.Spec("/bin/ls")).Out; got != "gone\nold\n" {
		t.Errorf("a job without the session sees %q", got)
	}
	if f.CloseSession(ss, false) {
		t.Error("a layer was kept")
	}
	spec := f.Spec("/bin/true")
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	refusedAt(t, t.Name(), fronttest.Second(f.Try(spec)), "session", 0)
}

// TestKeepAndResume: a layer with changes can outlive its session and be resumed.
func TestKeepAndResume(t *testing.T) {
	f := newFront(t)
	empty := f.Session(job.SessionSpec{Workspace: job.Overlay})
	if f.CloseSession(empty, true) {
		t.Error("an empty layer was kept")
	}
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay, Name: "mine"})
	f.Must(ss, "echo 1 >file")
	if !f.CloseSession(ss, true) {
		t.Fatal("the layer was not kept")
	}
	list, err := f.C.ListSessions(context.Background())
	if err != nil || len(list) != 1 || list[0].ID != ss.ID || !list[0].Kept || list[0].Name != "mine" || list[0].Repo != f.Repo {
		t.Fatalf("%+v, %v", list, err)
	}
	for range 3 {
		f.Must(ss, "echo 2 >>file")
	}
	if got := f.Must(ss, "cat file"); got != "1\n2\n2\n2\n" {
		t.Errorf("the layer has %q", got)
	}
	f.CloseSession(ss, false)
	if list, _ := f.C.ListSessions(context.Background()); len(list) != 0 {
		t.Errorf("still there: %+v", list)
	}
	if _, err := os.Stat(filepath.Join(f.layers(), ss.ID+".layer")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
}

// TestRootSession: the whole system is writable in the session, and the next session starts with a new one.
func TestRootSession(t *testing.T) {
	f := shared(t)
	ss := f.Session(job.SessionSpec{Root: true})
	f.Must(ss, `set -e
id -u >/id; echo a >/etc/mine; echo b >/usr/bin/tool; chmod +x /usr/bin/tool; mkdir /srv/x
echo c >$HOME/c; echo d >/tmp/d; echo e >/var/tmp/e; echo f >/dev/shm/f; echo changed >>/usr/bin/env; echo here >in-repo; rm /usr/bin/yes
export X=1; cd /tmp; sleep 1000 &`)
	want := "1000 a b c d e here gone \n"
	got := f.Must(ss, `set -e; cat /id /etc/mine /usr/bin/tool $HOME/c /tmp/d /var/tmp/e in-repo | tr '\n' ' '
test -e /usr/bin/yes || printf 'gone '; test -d /srv/x; test ! -e /dev/shm/f; tail -1 /usr/bin/env | grep -q changed; echo $X`)
	if got != want {
		t.Errorf("the next call sees %q, want %q", got, want)
	}
	if b, err := os.ReadFile(filepath.Join(f.Repo, "in-repo")); string(b) != "here\n" {
		t.Errorf("in the repository: %q, %v", b, err)
	}
	other := f.Session(job.SessionSpec{Root: true})
	if got := f.Must(other, "ls / /etc /tmp /srv /home/job; test -e /usr/bin/yes && ! grep -q changed /usr/bin/env"); strings.Contains(got, "mine") || strings.Contains(got, "id\n") {
		t.Errorf("another session sees %q", got)
	}
	spec := f.Spec("/bin/pwd")
	spec.Session, spec.Dir = ss.ID, "/srv/x"
	if got := f.Run(spec).Out; got != "/srv/x\n" {
		t.Errorf("working directory %q", got)
	}
	spec.Dir = "/no/such"
	refusedAt(t, t.Name(), fronttest.Second(f.Try(spec)), "cwd", 0)
}

// TestRootSessionHides: host files that are not readable by every user are not visible in a session whose user owns
// the rest.
func TestRootSessionHides(t *testing.T) {
	f := shared(t)
	var hidden host.HiddenPaths
	list, err := hidden.Find("/usr")
	if err != nil {
		t.Fatal(err)
	}
	ss := f.Session(job.SessionSpec{Root: true})
	for _, p := range list {
		if d := f.In(ss, "ls -ld '/usr/"+p+"'"); d.ExitCode == 0 {
			t.Errorf("%s is there: %s", p, d.Out)
		}
	}
	if got := f.Must(ss, `find / -xdev ! -perm -o=r ! -type l -path '/usr/*' 2>/dev/null | head -3`); got != "" {
		t.Errorf("not readable by every user: %s", got)
	}
	for _, p := range []string{"/etc/shadow", "/root", "/var/lib/dpkg", "/boot", "/etc/corral"} {
		if d := f.In(ss, "ls -d "+p); d.ExitCode == 0 {
			t.Errorf("%s is there", p)
		}
	}
}

// TestSessionQuota: a full layer affects only its own session.
func TestSessionQuota(t *testing.T) {
	f := shared(t)
	for _, spec := range []job.SessionSpec{{Workspace: job.Overlay}, {Root: true}} {
		ss := f.Session(spec)
		at := "."
		if spec.Root {
			at = "/var/tmp"
		}
		if d := f.In(ss, "head -c 200M /dev/zero >"+at+"/big"); d.ExitCode == 0 || d.Limit != job.LimitDisk || !strings.Contains(d.Err, "No space left") {
			t.Errorf("%+v: %+v %s", spec, d.Result, d.Err)
		}
		f.Must(ss, "rm -f "+at+"/big")
		if d := f.In(ss, "i=0; while :; do i=$((i+1)); : >"+at+"/f$i || exit 3; done"); d.ExitCode == 0 || d.Limit != job.LimitFiles {
			t.Errorf("%+v: %+v %s", spec, d.Result, d.Err)
		}
		next := f.Session(spec)
		f.Must(next, "echo 1 >"+at+"/file")
		f.CloseSession(ss, false)
		f.Must(next, "cat "+at+"/file")
	}
}

// TestSessionsApart: two sessions that write the same paths each see their own files.
func TestSessionsApart(t *testing.T) {
	f := shared(t)
	var work sync.WaitGroup
	for n := range 2 {
		ss := f.Session(job.SessionSpec{Workspace: job.Overlay, Root: true})
		work.Go(func() {
			d := f.In(ss, fmt.Sprintf(`i=0; while test $i -lt %[2]d; do i=$((i+1)); echo %[1]d.$i >same; echo %[1]d.$i >/etc/same
read a <same; read b </etc/same; test "$a $b" = "%[1]d.$i %[1]d.$i" || exit 9; done`, n, sandboxtest.Scale(1000)))
			if d.ExitCode != 0 {
				t.Errorf("session %d: %+v %s", n, d.Result, d.Err)
			}
		})
	}
	work.Wait()
}

// TestSessionParallel: jobs of one session run concurrently.
func TestSessionParallel(t *testing.T) {
	f := shared(t)
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay, Root: true})
	f.Must(ss, "mkfifo pipe")
	reader := f.Spec("/bin/sh", "-c", "cat pipe")
	reader.Session, reader.Workspace = ss.ID, ss.Workspace
	l, err := f.Start(reader)
	if err != nil {
		t.Fatal(err)
	}
	f.Must(ss, "echo through >pipe")
	if d, err := l.End(); err != nil || d.Out != "through\n" {
		t.Errorf("%q, %v", d.Out, err)
	}
}

// TestSessionOwner: a session is accessible to its user and to root only.
func TestSessionOwner(t *testing.T) {
	f := newFront(t)
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.Must(ss, ": >x")
	other := f.with(t, f.Connect(host.Peer{UID: owner + 1}), newRepo(t))
	if err := os.Chown(other.Repo, owner+1, owner+1); err != nil {
		t.Fatal(err)
	}
	check := func(kept bool) {
		spec := other.Spec("/bin/true")
		spec.Repo, spec.Session, spec.Workspace = "", ss.ID, ss.Workspace
		refusedAt(t, t.Name(), fronttest.Second(other.Try(spec)), "session", 0)
		refusedAt(t, t.Name(), fronttest.Second(other.C.CloseSession(context.Background(), ss.ID, false)), "session", 0)
		if list, err := other.C.ListSessions(context.Background()); err != nil || len(list) != 0 {
			t.Errorf("kept %v: another user sees %+v, %v", kept, list, err)
		}
	}
	check(false)
	f.CloseSession(ss, true)
	check(true)
	root := f.Connect(host.Peer{})
	if list, err := root.ListSessions(context.Background()); err != nil || len(list) != 1 || list[0].UID != owner {
		t.Errorf("root sees %+v, %v", list, err)
	}
	if _, err := root.CloseSession(context.Background(), ss.ID, false); err != nil {
		t.Error(err)
	}
}

// TestSessionLife: a session ends with its connection, unless it is lasting, and when it has been idle for its
// timeout. Its changes are kept, although the client did not ask for that.
func TestSessionLife(t *testing.T) {
	f := newFront(t)
	of := f.Connect(host.Peer{UID: owner})
	open := func(spec job.SessionSpec) job.Session {
		spec.Repo, spec.Disk, spec.Workspace = f.Repo, fronttest.Small, job.Overlay
		ss, err := of.OpenSession(context.Background(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return ss
	}
	bound, lasting := open(job.SessionSpec{}), open(job.SessionSpec{Lasting: true})
	f.Must(bound, "echo 1 >x")
	f.Must(lasting, "echo 1 >x")
	idle := f.Session(job.SessionSpec{Idle: time.Millisecond, Workspace: job.Overlay})
	eventually(t, func() string {
		list, _ := f.C.ListSessions(context.Background())
		for _, ss := range list {
			if ss.ID == idle.ID {
				return "the idle session has not ended"
			}
		}
		return ""
	})
	of.Close()
	eventually(t, func() string {
		list, err := f.C.ListSessions(context.Background())
		kept := map[string]bool{}
		for _, ss := range list {
			kept[ss.ID] = ss.Kept
		}
		if err != nil || len(list) != 2 || !kept[bound.ID] || kept[lasting.ID] {
			return fmt.Sprintf("%+v, %v", list, err)
		}
		return ""
	})
	f.CloseSession(bound, false)
	f.Must(lasting, "cat x")
}

// TestSessionRefusals: invalid sessions, and invalid requests of jobs in a session.
func TestSessionRefusals(t *testing.T) {
	f := shared(t)
	for name, tt := range map[string]struct {
		step   string
		change func(*job.SessionSpec)
	}{
		"name":           {"session", func(s *job.SessionSpec) { s.Name = "a b" }},
		"long name":      {"session", func(s *job.SessionSpec) { s.Name = strings.Repeat("x", wire.MaxLabel+1) }},
		"profile":        {"profile", func(s *job.SessionSpec) { s.Profile = "none" }},
		"huge":           {"limits", func(s *job.SessionSpec) { s.Disk = 1 << 50 }},
		"negative":       {"session", func(s *job.SessionSpec) { s.Inodes = -1 }},
		"no such image":  {"session", func(s *job.SessionSpec) { s.Root, s.Image = true, "nothing" }},
		"image, no root": {"session", func(s *job.SessionSpec) { s.Image = "nothing" }},
		"image, a path":  {"session", func(s *job.SessionSpec) { s.Root, s.Image = true, "../layers" }},
		"import":         {"session", func(s *job.SessionSpec) { s.Import = "mine" }},
		"repository":     {"repo", func(s *job.SessionSpec) { s.Repo = "/" }},
	} {
		t.Run(name, func(t *testing.T) {
			spec := job.SessionSpec{Repo: f.Repo, Disk: fronttest.Small, Workspace: job.Overlay}
			tt.change(&spec)
			refusedAt(t, t.Name(), fronttest.Second(f.C.OpenSession(context.Background(), spec)), tt.step, 0)
		})
	}
	direct, overlay := f.Session(job.SessionSpec{Root: true}), f.Session(job.SessionSpec{Workspace: job.Overlay})
	for name, tt := range map[string]struct {
		in     job.Session
		step   string
		change func(*job.Spec)
	}{
		"no session":           {job.Session{}, "workspace", func(s *job.Spec) { s.Workspace = job.Overlay }},
		"unknown session":      {job.Session{ID: strings.Repeat("0", 32)}, "session", func(*job.Spec) {}},
		"a path for a session": {job.Session{ID: "../../etc/passwd"}, "session", func(*job.Spec) {}},
		"overlay in direct":    {direct, "workspace", func(s *job.Spec) { s.Workspace = job.Overlay }},
		"direct in overlay":    {overlay, "workspace", func(s *job.Spec) { s.Workspace = job.Direct }},
		"another profile":      {overlay, "profile", func(s *job.Spec) { s.Profile = "strict" }},
		"another repository":   {overlay, "session", func(s *job.Spec) { s.Repo = "/srv" }},
		"absolute directory":   {overlay, "cwd", func(s *job.Spec) { s.Dir = "/etc" }},
		"unknown tool":         {overlay, "session", func(s *job.Spec) { s.Tool = "rm" }},
		"unpack":               {overlay, "session", func(s *job.Spec) { s.Tool = job.ToolUnpack }},
		"changes of direct":    {direct, "session", func(s *job.Spec) { s.Tool = job.ToolChanges }},
		"edit in a root":       {direct, "session", func(s *job.Spec) { s.Tool = job.ToolEdit }},
		"edit on a terminal":   {overlay, "request", func(s *job.Spec) { s.Tool, s.Terminal = job.ToolEdit, job.Size{Rows: 1, Cols: 1} }},
		"edit of nothing":      {job.Session{}, "workspace", func(s *job.Spec) { s.Tool, s.Workspace = job.ToolEdit, job.NoRepo }},
		"edit without session": {job.Session{}, "request", func(s *job.Spec) { s.Tool, s.Terminal = job.ToolEdit, job.Size{Rows: 1, Cols: 1} }},
		"tool, no session":     {job.Session{}, "session", func(s *job.Spec) { s.Tool = job.ToolChanges }},
	} {
		t.Run(name, func(t *testing.T) {
			spec := f.Spec("/bin/true")
			spec.Session, spec.Workspace = tt.in.ID, tt.in.Workspace
			tt.change(&spec)
			refusedAt(t, t.Name(), fronttest.Second(f.Try(spec)), tt.step, 0)
		})
	}
}

// TestSharedDirectories: all jobs of a session with Share have one home directory and one /tmp, limited by the
// session's layer and not by the job's own limit. Other jobs do not see them.
func TestSharedDirectories(t *testing.T) {
	f := shared(t)
	f.Repo = filepath.Join(sandboxtest.OpenDirIn(t, "/var/tmp"), "repo")
	mkdir(t, f.Repo, owner)
	for _, w := range []job.Workspace{job.Direct, job.ReadOnly, job.Overlay} {
		t.Run(w.String(), func(t *testing.T) {
			ss := f.Session(job.SessionSpec{Workspace: w, Share: true, Disk: fronttest.Small})
			other := f.Session(job.SessionSpec{Workspace: w, Share: true})
			f.Must(ss, "echo home >/home/job/made; echo tmp >/tmp/made; mkdir /tmp/dir")
			if got := f.Must(ss, "cat /home/job/made /tmp/made; rmdir /tmp/dir && echo removed"); got != "home\ntmp\nremoved\n" {
				t.Errorf("%q", got)
			}
			spec := f.Spec("sh", "-c", "cat /tmp/made; head -c 2000000 /dev/zero >/tmp/large && head -c 2000000 /dev/zero >/var/tmp/large")
			spec.Session, spec.Workspace, spec.Limits = ss.ID, ss.Workspace, job.Limits{Tmp: 1 << 20}
			if d := f.Run(spec); d.Out != "tmp\n" || d.ExitCode == 0 {
				t.Errorf("a job with a small /var/tmp: %q %+v", d.Out, d.Result)
			}
			if got := f.Must(ss, "head -c 1000000000 /dev/zero >/home/job/full 2>/dev/null || echo full; rm /home/job/full /tmp/large"); got != "full\n" {
				t.Errorf("%q", got)
			}
			for name, got := range map[string]string{
				"another session": f.Must(other, "ls -A /home/job /tmp"), "a job of none": f.Sh("ls -A /home/job /tmp"),
			} {
				if strings.TrimSpace(got) != "/home/job:\n\n/tmp:" {
					t.Errorf("%s: %q", name, got)
				}
			}
		})
	}
}

// TestRepoParentNotShared: /tmp is private to each job if the repository is in it; the home directory is still
// shared.
func TestRepoParentNotShared(t *testing.T) {
	f := shared(t)
	f.Repo = filepath.Join(sandboxtest.OpenDirIn(t, "/tmp"), "repo")
	mkdir(t, f.Repo, owner)
	ss := f.Session(job.SessionSpec{Share: true})
	f.Must(ss, "echo home >/home/job/made; echo tmp >/tmp/made; echo repo >made")
	if got := f.Must(ss, "cat /home/job/made made; test -e /tmp/made || echo none"); got != "home\nrepo\nnone\n" {
		t.Errorf("%q", got)
	}
}
