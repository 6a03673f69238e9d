package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/cell"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// small is the layer size of tests.
const small = 64 << 20

// session opens a session of the front's repository. The test fails if it cannot.
func (f *front) session(spec job.SessionSpec) job.Session {
	f.t.Helper()
	spec.Repo = f.repo
	if spec.Disk == 0 {
		spec.Disk = small
	}
	ss, err := f.c.OpenSession(context.Background(), spec)
	if err != nil {
		f.t.Fatal(err)
	}
	return ss
}

// in runs a shell script in a session.
func (f *front) in(ss job.Session, script string) did {
	f.t.Helper()
	spec := f.spec("/bin/sh", "-c", script)
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	return f.run(spec)
}

// must runs a shell script in a session, which must succeed, and returns its output.
func (f *front) must(ss job.Session, script string) string {
	f.t.Helper()
	d := f.in(ss, script)
	if d.ExitCode != 0 {
		f.t.Fatalf("%s: exit code %d, limit %q: %s%s", script, d.ExitCode, d.Limit, d.out, d.err)
	}
	return d.out
}

func (f *front) close(ss job.Session, keep bool) bool {
	f.t.Helper()
	kept, err := f.c.CloseSession(context.Background(), ss.ID, keep)
	if err != nil {
		f.t.Fatal(err)
	}
	return kept
}

// TestOverlay: what a session's jobs write is visible to the session's next job, and not in the repository.
func TestOverlay(t *testing.T) {
	f := newFront(t)
	put(t, filepath.Join(f.repo, "old"), "old\n", 0o644, owner)
	put(t, filepath.Join(f.repo, "gone"), "gone\n", 0o644, owner)
	ss := f.session(job.SessionSpec{Workspace: job.Overlay})
	f.must(ss, "echo new >new && echo more >>old && rm gone && mkdir -p a/b && ln -s old link && chmod 755 old")
	if got := f.must(ss, "cat new old link; ls a; ls; stat -c '%U %a' old new"); got != "new\nold\nmore\nold\nmore\nb\na\nlink\nnew\nold\njob 755\njob 644\n" {
		t.Errorf("the next job sees %q", got)
	}
	names, err := os.ReadDir(f.repo)
	if err != nil || len(names) != 2 {
		t.Errorf("the repository has %v, %v", names, err)
	}
	if b, err := os.ReadFile(filepath.Join(f.repo, "old")); string(b) != "old\n" {
		t.Errorf("old is %q, %v", b, err)
	}
	if got := f.run(f.spec("/bin/ls")).out; got != "gone\nold\n" {
		t.Errorf("a job without the session sees %q", got)
	}
	if f.close(ss, false) {
		t.Error("a layer was kept")
	}
	spec := f.spec("/bin/true")
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	refusedAt(t, t.Name(), second(f.try(spec)), "session", 0)
}

func second[T any](_ T, err error) error { return err }

// TestKeepAndResume: a layer with changes can outlive its session and be resumed.
func TestKeepAndResume(t *testing.T) {
	f := newFront(t)
	empty := f.session(job.SessionSpec{Workspace: job.Overlay})
	if f.close(empty, true) {
		t.Error("an empty layer was kept")
	}
	ss := f.session(job.SessionSpec{Workspace: job.Overlay, Name: "mine"})
	f.must(ss, "echo 1 >file")
	if !f.close(ss, true) {
		t.Fatal("the layer was not kept")
	}
	list, err := f.c.ListSessions(context.Background())
	if err != nil || len(list) != 1 || list[0].ID != ss.ID || !list[0].Kept || list[0].Name != "mine" || list[0].Repo != f.repo {
		t.Fatalf("%+v, %v", list, err)
	}
	for range 3 {
		f.must(ss, "echo 2 >>file")
	}
	if got := f.must(ss, "cat file"); got != "1\n2\n2\n2\n" {
		t.Errorf("the layer has %q", got)
	}
	f.close(ss, false)
	if list, _ := f.c.ListSessions(context.Background()); len(list) != 0 {
		t.Errorf("still there: %+v", list)
	}
	if _, err := os.Stat(filepath.Join(f.layers(), ss.ID+".layer")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
}

// TestRootSession: the whole system is writable in the session, and the next session starts with a new one.
func TestRootSession(t *testing.T) {
	f := newFront(t)
	ss := f.session(job.SessionSpec{Root: true})
	f.must(ss, `set -e
id -u >/id; echo a >/etc/mine; echo b >/usr/bin/tool; chmod +x /usr/bin/tool; mkdir /srv/x
echo c >$HOME/c; echo d >/tmp/d; echo e >/var/tmp/e; echo f >/dev/shm/f; echo changed >>/usr/bin/env; echo here >in-repo; rm /usr/bin/yes
export X=1; cd /tmp; sleep 1000 &`)
	want := "1000 a b c d e here gone \n"
	got := f.must(ss, `set -e; cat /id /etc/mine /usr/bin/tool $HOME/c /tmp/d /var/tmp/e in-repo | tr '\n' ' '
test -e /usr/bin/yes || printf 'gone '; test -d /srv/x; test ! -e /dev/shm/f; tail -1 /usr/bin/env | grep -q changed; echo $X`)
	if got != want {
		t.Errorf("the next call sees %q, want %q", got, want)
	}
	if b, err := os.ReadFile(filepath.Join(f.repo, "in-repo")); string(b) != "here\n" {
		t.Errorf("in the repository: %q, %v", b, err)
	}
	other := f.session(job.SessionSpec{Root: true})
	if got := f.must(other, "ls / /etc /tmp /srv /home/job; test -e /usr/bin/yes && ! grep -q changed /usr/bin/env"); strings.Contains(got, "mine") || strings.Contains(got, "id\n") {
		t.Errorf("another session sees %q", got)
	}
	spec := f.spec("/bin/pwd")
	spec.Session, spec.Dir = ss.ID, "/srv/x"
	if got := f.run(spec).out; got != "/srv/x\n" {
		t.Errorf("working directory %q", got)
	}
	spec.Dir = "/no/such"
	refusedAt(t, t.Name(), second(f.try(spec)), "cwd", 0)
}

// TestRootSessionHides: host files that are not readable by every user are not visible in a session whose user owns
// the rest.
func TestRootSessionHides(t *testing.T) {
	f := newFront(t)
	var hidden host.HiddenPaths
	list, err := hidden.Find("/usr")
	if err != nil {
		t.Fatal(err)
	}
	ss := f.session(job.SessionSpec{Root: true})
	for _, p := range list {
		if d := f.in(ss, "ls -ld '/usr/"+p+"'"); d.ExitCode == 0 {
			t.Errorf("%s is there: %s", p, d.out)
		}
	}
	if got := f.must(ss, `find / -xdev ! -perm -o=r ! -type l -path '/usr/*' 2>/dev/null | head -3`); got != "" {
		t.Errorf("not readable by every user: %s", got)
	}
	for _, p := range []string{"/etc/shadow", "/root", "/var/lib/dpkg", "/boot", "/etc/corral"} {
		if d := f.in(ss, "ls -d "+p); d.ExitCode == 0 {
			t.Errorf("%s is there", p)
		}
	}
}

// TestSessionQuota: a full layer affects only its own session.
func TestSessionQuota(t *testing.T) {
	f := newFront(t)
	for _, spec := range []job.SessionSpec{{Workspace: job.Overlay}, {Root: true}} {
		ss := f.session(spec)
		at := "."
		if spec.Root {
			at = "/var/tmp"
		}
		if d := f.in(ss, "head -c 200M /dev/zero >"+at+"/big"); d.ExitCode == 0 || d.Limit != job.LimitDisk || !strings.Contains(d.err, "No space left") {
			t.Errorf("%+v: %+v %s", spec, d.Result, d.err)
		}
		f.must(ss, "rm -f "+at+"/big")
		if d := f.in(ss, "i=0; while :; do i=$((i+1)); : >"+at+"/f$i || exit 3; done"); d.ExitCode == 0 || d.Limit != job.LimitFiles {
			t.Errorf("%+v: %+v %s", spec, d.Result, d.err)
		}
		next := f.session(spec)
		f.must(next, "echo 1 >"+at+"/file")
		f.close(ss, false)
		f.must(next, "cat "+at+"/file")
	}
}

// TestSessionsApart: two sessions that write the same paths each see their own files.
func TestSessionsApart(t *testing.T) {
	f := newFront(t)
	var work sync.WaitGroup
	for n := range 2 {
		ss := f.session(job.SessionSpec{Workspace: job.Overlay, Root: true})
		work.Go(func() {
			d := f.in(ss, fmt.Sprintf(`i=0; while test $i -lt %[2]d; do i=$((i+1)); echo %[1]d.$i >same; echo %[1]d.$i >/etc/same
read a <same; read b </etc/same; test "$a $b" = "%[1]d.$i %[1]d.$i" || exit 9; done`, n, sandboxtest.Scale(1000)))
			if d.ExitCode != 0 {
				t.Errorf("session %d: %+v %s", n, d.Result, d.err)
			}
		})
	}
	work.Wait()
}

// TestSessionParallel: jobs of one session run concurrently.
func TestSessionParallel(t *testing.T) {
	f := newFront(t)
	ss := f.session(job.SessionSpec{Workspace: job.Overlay, Root: true})
	f.must(ss, "mkfifo pipe")
	reader := f.spec("/bin/sh", "-c", "cat pipe")
	reader.Session, reader.Workspace = ss.ID, ss.Workspace
	l, err := f.start(reader)
	if err != nil {
		t.Fatal(err)
	}
	f.must(ss, "echo through >pipe")
	if d, err := l.end(); err != nil || d.out != "through\n" {
		t.Errorf("%q, %v", d.out, err)
	}
}

// TestSessionOwner: a session is accessible to its user and to root only.
func TestSessionOwner(t *testing.T) {
	f := newFront(t)
	ss := f.session(job.SessionSpec{Workspace: job.Overlay})
	f.must(ss, ": >x")
	other := &front{t, f.s, connect(t, f.s, host.Peer{UID: owner + 1}), newRepo(t)}
	if err := os.Chown(other.repo, owner+1, owner+1); err != nil {
		t.Fatal(err)
	}
	check := func(kept bool) {
		spec := other.spec("/bin/true")
		spec.Repo, spec.Session, spec.Workspace = "", ss.ID, ss.Workspace
		refusedAt(t, t.Name(), second(other.try(spec)), "session", 0)
		refusedAt(t, t.Name(), second(other.c.CloseSession(context.Background(), ss.ID, false)), "session", 0)
		if list, err := other.c.ListSessions(context.Background()); err != nil || len(list) != 0 {
			t.Errorf("kept %v: another user sees %+v, %v", kept, list, err)
		}
	}
	check(false)
	f.close(ss, true)
	check(true)
	root := connect(t, f.s, host.Peer{})
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
	of := connect(t, f.s, host.Peer{UID: owner})
	open := func(spec job.SessionSpec) job.Session {
		spec.Repo, spec.Disk, spec.Workspace = f.repo, small, job.Overlay
		ss, err := of.OpenSession(context.Background(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return ss
	}
	bound, lasting := open(job.SessionSpec{}), open(job.SessionSpec{Lasting: true})
	f.must(bound, "echo 1 >x")
	f.must(lasting, "echo 1 >x")
	idle := f.session(job.SessionSpec{Idle: time.Millisecond, Workspace: job.Overlay})
	eventually(t, func() string {
		list, _ := f.c.ListSessions(context.Background())
		for _, ss := range list {
			if ss.ID == idle.ID {
				return "the idle session has not ended"
			}
		}
		return ""
	})
	of.Close()
	eventually(t, func() string {
		list, err := f.c.ListSessions(context.Background())
		kept := map[string]bool{}
		for _, ss := range list {
			kept[ss.ID] = ss.Kept
		}
		if err != nil || len(list) != 2 || !kept[bound.ID] || kept[lasting.ID] {
			return fmt.Sprintf("%+v, %v", list, err)
		}
		return ""
	})
	f.close(bound, false)
	f.must(lasting, "cat x")
}

// TestSessionRefusals: invalid sessions, and invalid requests of jobs in a session.
func TestSessionRefusals(t *testing.T) {
	f := newFront(t)
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
			spec := job.SessionSpec{Repo: f.repo, Disk: small, Workspace: job.Overlay}
			tt.change(&spec)
			refusedAt(t, t.Name(), second(f.c.OpenSession(context.Background(), spec)), tt.step, 0)
		})
	}
	direct, overlay := f.session(job.SessionSpec{Root: true}), f.session(job.SessionSpec{Workspace: job.Overlay})
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
			spec := f.spec("/bin/true")
			spec.Session, spec.Workspace = tt.in.ID, tt.in.Workspace
			tt.change(&spec)
			refusedAt(t, t.Name(), second(f.try(spec)), tt.step, 0)
		})
	}
}

// TestSharedDirectories: all jobs of a session with Share have one home directory and one /tmp, limited by the
// session's layer and not by the job's own limit. Other jobs do not see them.
func TestSharedDirectories(t *testing.T) {
	f := newFront(t)
	f.repo = filepath.Join(sandboxtest.OpenDirIn(t, "/var/tmp"), "repo")
	mkdir(t, f.repo, owner)
	for _, w := range []job.Workspace{job.Direct, job.ReadOnly, job.Overlay} {
		t.Run(w.String(), func(t *testing.T) {
			ss := f.session(job.SessionSpec{Workspace: w, Share: true, Disk: small})
			other := f.session(job.SessionSpec{Workspace: w, Share: true})
			f.must(ss, "echo home >/home/job/made; echo tmp >/tmp/made; mkdir /tmp/dir")
			if got := f.must(ss, "cat /home/job/made /tmp/made; rmdir /tmp/dir && echo removed"); got != "home\ntmp\nremoved\n" {
				t.Errorf("%q", got)
			}
			spec := f.spec("sh", "-c", "cat /tmp/made; head -c 2000000 /dev/zero >/tmp/large && head -c 2000000 /dev/zero >/var/tmp/large")
			spec.Session, spec.Workspace, spec.Limits = ss.ID, ss.Workspace, job.Limits{Tmp: 1 << 20}
			if d := f.run(spec); d.out != "tmp\n" || d.ExitCode == 0 {
				t.Errorf("a job with a small /var/tmp: %q %+v", d.out, d.Result)
			}
			if got := f.must(ss, "head -c 1000000000 /dev/zero >/home/job/full 2>/dev/null || echo full; rm /home/job/full /tmp/large"); got != "full\n" {
				t.Errorf("%q", got)
			}
			for name, got := range map[string]string{
				"another session": f.must(other, "ls -A /home/job /tmp"), "a job of none": f.sh("ls -A /home/job /tmp"),
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
	f := newFront(t)
	f.repo = filepath.Join(sandboxtest.OpenDirIn(t, "/tmp"), "repo")
	mkdir(t, f.repo, owner)
	ss := f.session(job.SessionSpec{Share: true})
	f.must(ss, "echo home >/home/job/made; echo tmp >/tmp/made; echo repo >made")
	if got := f.must(ss, "cat /home/job/made made; test -e /tmp/made || echo none"); got != "home\nrepo\nnone\n" {
		t.Errorf("%q", got)
	}
}

// TestSessionJailDies: when its jail dies the session ends and nothing of it is left, except changes behind an
// overlay, which were not discarded: the next job resumes them.
func TestSessionJailDies(t *testing.T) {
	f := newFront(t)
	before := layers(t)
	die := func(spec job.SessionSpec) job.Spec {
		ss := f.session(spec)
		f.must(ss, ": >x")
		f.killJail(ss)
		eventually(t, func() string {
			for _, l := range layers(t) {
				if !slices.Contains(before, l) {
					return l
				}
			}
			return ""
		})
		again := f.spec("cat", "x")
		again.Session, again.Workspace = ss.ID, ss.Workspace
		return again
	}
	refusedAt(t, t.Name(), second(f.try(die(job.SessionSpec{Root: true}))), "session", 0)
	if err := os.Remove(filepath.Join(f.repo, "x")); err != nil {
		t.Error(err)
	}
	if result, err := f.try(die(job.SessionSpec{Workspace: job.Overlay, Root: true})); err != nil || result.ExitCode != 0 {
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
	f.t.Helper()
	for _, j := range f.s.standing() {
		if j.Session == ss.ID {
			return j
		}
	}
	f.t.Fatalf("session %s has no jail", ss.ID)
	return cell.JailState{}
}

// killJail kills process 1 of a session's jail, and waits until nothing of the jail is left.
func (f *front) killJail(ss job.Session) {
	f.t.Helper()
	if err := unix.Kill(f.jailOf(ss).InitPID, unix.SIGKILL); err != nil {
		f.t.Fatal(err)
	}
	eventually(f.t, func() string {
		list, err := f.c.ListSessions(f.t.Context())
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
