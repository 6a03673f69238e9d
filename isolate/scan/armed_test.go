package scan

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// hasEvents reports whether the inotify instance has unread events.
func hasEvents(fd int) bool {
	for {
		some, err := readable(fd)
		if !errors.Is(err, unix.EINTR) {
			return some || err != nil
		}
	}
}

// serving returns a server of a repository that has taken its baseline.
func serving(t *testing.T, dir string) *server {
	t.Helper()
	s := &server{repo: scanner(t, dir, Bounds{}), events: newEvents()}
	t.Cleanup(s.events.stop)
	s.repo.watch(s.events)
	ask(t, s, OpBaseline, time.Time{})
	return s
}

func ask(t *testing.T, s *server, op Op, since time.Time) (Answer, []string) {
	t.Helper()
	a, err := ReadAnswer(s.answer(op, since))
	if err != nil {
		t.Fatal(err)
	}
	paths := slices.DeleteFunc(strings.Split(a.Paths, "\x00"), func(p string) bool { return p == "" })
	slices.Sort(paths)
	return a, paths
}

// armed repeats requests until an answer is Armed and no events are left.
func armed(t *testing.T, s *server) {
	t.Helper()
	for range 3 {
		if a, _ := ask(t, s, OpChanged, time.Now()); a.Armed && !hasEvents(s.events.fd) {
			return
		}
	}
	t.Fatal("not armed, or events did not cease")
}

// mapped returns a shared mapping of a file, which it closes; the mapping is removed when the test ends.
func mapped(t *testing.T, path string) []byte {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	b, err := unix.Mmap(fd, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

// inFlight opens a file for writing, and leaves the descriptor in a socket.
func inFlight(t *testing.T, path string) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(pair[0]); unix.Close(pair[1]) })
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(fd), nil, 0); err != nil {
		t.Fatal(err)
	}
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestArmedCalls: every system call that changes a sensitive file, a link or its target causes an event. The scanner is
// not closed in between.
func TestArmedCalls(t *testing.T) {
	past := []unix.Timespec{{Sec: 1}, {Sec: 1}}
	for _, tc := range []struct {
		name string
		do   func(t *testing.T)
		want string
	}{
		{"write", func(t *testing.T) { must(t, os.WriteFile(".envrc", []byte("new"), 0o600)) }, ".envrc"},
		{"mapped memory", func(t *testing.T) { mapped(t, ".envrc")[0] = 'y' }, ".envrc"},
		{"descriptor in a socket", func(t *testing.T) { inFlight(t, ".envrc") }, ".envrc"},
		{"truncate", func(t *testing.T) { must(t, unix.Truncate(".envrc", 1)) }, ".envrc"},
		{"chmod", func(t *testing.T) { must(t, unix.Chmod(".envrc", 0o777)) }, ".envrc"},
		{"both times", func(t *testing.T) { must(t, unix.UtimesNanoAt(unix.AT_FDCWD, ".envrc", past, 0)) }, ".envrc"},
		{"time of access", func(t *testing.T) {
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, ".envrc", []unix.Timespec{{Sec: 1}, {Nsec: unix.UTIME_OMIT}}, 0))
		}, ".envrc"},
		{"time of change", func(t *testing.T) {
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, ".envrc", []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: 1}}, 0))
		}, ".envrc"},
		{"attribute", func(t *testing.T) { must(t, unix.Setxattr(".envrc", "user.x", []byte("x"), 0)) }, ".envrc"},
		{"one more name", func(t *testing.T) { must(t, os.Link(".envrc", "plain/other")) }, ".envrc"},
		{"write by another name", func(t *testing.T) { must(t, os.WriteFile("plain/hard", []byte("new"), 0o600)) }, ".npmrc"},
		{"another name removed", func(t *testing.T) { must(t, os.Remove("plain/hard")) }, ".npmrc"},
		{"another name where nobody looks", func(t *testing.T) { must(t, os.Remove("b.git/refs/hard")) }, ".yarnrc"},
		{"renamed over", func(t *testing.T) { must(t, os.Rename("plain/file", ".envrc")) }, ".envrc"},
		{"exchanged", func(t *testing.T) {
			must(t, unix.Renameat2(unix.AT_FDCWD, "plain/file", unix.AT_FDCWD, ".envrc", unix.RENAME_EXCHANGE))
		}, ".envrc"},
		{"without a name, then with", func(t *testing.T) {
			fd, err := unix.Open(".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
			must(t, err)
			t.Cleanup(func() { unix.Close(fd) })
			must(t, unix.Linkat(unix.AT_FDCWD, fmt.Sprint("/proc/self/fd/", fd), unix.AT_FDCWD, ".profile", unix.AT_SYMLINK_FOLLOW))
		}, ".profile"},
		{"times of a link", func(t *testing.T) {
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, "CLAUDE.md", past, unix.AT_SYMLINK_NOFOLLOW))
		}, "CLAUDE.md"},
		{"what a link leads to", func(t *testing.T) { must(t, os.WriteFile("plain/target", []byte("new"), 0o600)) }, "CLAUDE.md"},
		{"replaced on a link's way", func(t *testing.T) {
			must(t, os.Remove("plain/way"))
			must(t, os.Symlink("file", "plain/way"))
		}, "CLAUDE.md"},
		{"made where a link leads", func(t *testing.T) { must(t, os.WriteFile("plain/none", nil, 0o600)) }, "AGENTS.md"},
		{"where nobody looks but a link", func(t *testing.T) {
			must(t, os.WriteFile("b.git/refs/new", nil, 0o600))
			must(t, os.Rename("b.git/refs/new", "b.git/refs/target"))
		}, "GEMINI.md"},
		{"by a directory moved there", func(t *testing.T) {
			must(t, os.Rename("b.git/refs", "b.git/r"))
			must(t, os.Rename("other", "b.git/refs"))
		}, "GEMINI.md"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			shell(t, dir, `mkdir -p plain other b.git/objects b.git/refs; echo a >.envrc; echo b >.npmrc; echo b >.yarnrc; echo c >plain/file
				echo d >plain/target; echo e >other/target; echo f >b.git/refs/target; echo >b.git/HEAD; ln .npmrc plain/hard; ln .yarnrc b.git/refs/hard
				ln -s target plain/way; ln -s plain/../plain/way CLAUDE.md; ln -s plain/none AGENTS.md; ln -s ./b.git/refs/target GEMINI.md`)
			t.Chdir(dir)
			s := serving(t, dir)
			armed(t, s)
			since := settle()
			tc.do(t)
			if !hasEvents(s.events.fd) {
				t.Fatal("the change caused no event")
			}
			if a, got := ask(t, s, OpChanged, since); !slices.Contains(got, tc.want) || a.Incomplete || !a.Heard {
				t.Errorf("%+v, want %q", a, tc.want)
			}
			armed(t, s)
		})
	}
}

// TestUndone: what was changed and put back is reported, though the tree is as before, and by no more than one name.
func TestUndone(t *testing.T) {
	const exchange = "renameat2, twice"
	for _, tc := range []struct{ name, script, want string }{
		{"a hook", "echo >.git/hooks/pre-commit; rm .git/hooks/pre-commit", ".git/hooks/pre-commit"},
		{"a hook under another name", "echo >x; mv x .git/hooks/pre-commit; mv .git/hooks/pre-commit x; rm x", ".git/hooks/pre-commit"},
		{"the hooks", "mv .git/hooks h; mkdir .git/hooks; rmdir .git/hooks; mv h .git/hooks", ".git/hooks"},
		{"the git directory", "mv .git g; cp -r g .git; rm -r .git; mv g .git", ".git"},
		{"a file in its place", "mv .git g; echo gitdir: g >.git; rm .git; mv g .git", ".git"},
		{"exchanged", exchange, ".git"},
		{"an editor's settings", "mkdir .vscode; echo >.vscode/settings.json; rm -r .vscode", ".vscode"},
		{"an agent's settings, below", "mkdir a/.claude; echo >a/.claude/settings.json; rm -r a/.claude", "a/.claude"},
		{"a directory above one", "mv .github g; mkdir -p .github/workflows; echo >.github/workflows/x.yml; rm -r .github; mv g .github", ".github"},
		{"a file", "mv .envrc e; echo evil >.envrc; mv e .envrc", ".envrc"},
		{"made again", "rm .envrc; echo a >.envrc", ".envrc"},
		{"removed at the end", "mv .envrc e; mv e .envrc; rm .envrc", ".envrc"},
		{"new, with content", "mkdir .idea; rmdir .idea; mkdir .idea; echo >.idea/x", ".idea/x"},
		{"git's own work", "mkdir .git/rebase-merge; echo >.git/rebase-merge/git-rebase-todo; rm -r .git/rebase-merge; echo >.git/config.lock; rm .git/config.lock", ""},
		{"ordinary files", "echo >x; rm x; mkdir d; rmdir d; mv a b; mv b a", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			shell(t, dir, "mkdir -p .git/hooks .git/objects .git/refs a .github/workflows; echo x >.git/HEAD; echo >.git/config; echo a >.envrc; echo >.github/workflows/w.yml")
			t.Chdir(dir)
			s := serving(t, dir)
			armed(t, s)
			since := settle()
			if tc.script == exchange {
				for range 2 {
					must(t, unix.Renameat2(unix.AT_FDCWD, ".git", unix.AT_FDCWD, "a", unix.RENAME_EXCHANGE))
				}
			} else {
				shell(t, dir, tc.script)
			}
			a, got := ask(t, s, OpChanged, since)
			if strings.Join(got, " ") != tc.want || a.Incomplete || a.Lost {
				t.Errorf("%q, %+v, want %q", got, a, tc.want)
			}
			if a, got := ask(t, s, OpChanged, settle()); len(got) > 0 {
				t.Errorf("again: %q, %+v", got, a)
			}
		})
	}
}

// TestUndoneTooMany: more names than are kept are said to be lost.
func TestUndoneTooMany(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, "mkdir -p .git/hooks .git/objects .git/refs; echo x >.git/HEAD")
	t.Chdir(dir)
	s := serving(t, dir)
	armed(t, s)
	since := settle()
	for i := range maxSeen + 1 {
		name := fmt.Sprintf(".git/hooks/h%d", i)
		must(t, os.WriteFile(name, nil, 0o600))
		must(t, os.Remove(name))
	}
	if a, got := ask(t, s, OpChanged, since); !a.Lost || len(got)+int(a.More) != maxSeen {
		t.Errorf("%d paths, %+v", len(got), a)
	}
	if a, _ := ask(t, s, OpChanged, settle()); a.Lost {
		t.Error("again")
	}
}

// TestArmedWithoutEvents: scans themselves, reads and changes of ordinary files cause no events.
func TestArmedWithoutEvents(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	dir := t.TempDir()
	shell(t, dir, repository)
	s := serving(t, dir)
	armed(t, s)
	for _, op := range []Op{OpUsage, OpKeepHooks, OpKeepAll, OpChanged} {
		s.answer(op, time.Now())
		if hasEvents(s.events.fd) {
			t.Errorf("op %d caused an event", op)
		}
	}
	shell(t, dir, "echo more >>src/a/b/x.go; echo again >README.md; cat README.md src/a/b/x.go; ls -lR .; find .git; cat .git/HEAD")
	if hasEvents(s.events.fd) {
		t.Error("reading, or writing to ordinary files, caused an event")
	}
	if a, _ := ask(t, s, OpChanged, time.Time{}); a.Heard || !a.Armed {
		t.Errorf("%+v", a)
	}
	shell(t, dir, "echo >new")
	if a, _ := ask(t, s, OpChanged, time.Now()); !a.Heard || !a.Armed {
		t.Errorf("an ordinary file: %+v", a)
	}
	shell(t, dir, "cat .git/config")
	if a, _ := ask(t, s, OpChanged, time.Now()); !a.Heard || !a.Armed {
		t.Errorf("a sensitive file opened: %+v", a)
	}
}

// TestArmedAgain: after an inode number is reused, the queue overflows, and directories come and go, the current files
// are watched.
func TestArmedAgain(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	shell(t, dir, "mkdir -p a/b; echo x >a/b/.envrc")
	s := serving(t, dir)
	for range 20 {
		armed(t, s)
		shell(t, dir, "rm -r a; mkdir -p a/b; echo x >a/b/.envrc")
		armed(t, s)
		must(t, os.WriteFile("a/b/.envrc", []byte("y"), 0o600))
		if !hasEvents(s.events.fd) {
			t.Fatal("a new file in place of an old one is not watched")
		}
	}
	armed(t, s)
	overflow := make([]byte, unix.SizeofInotifyEvent)
	copy(overflow, []byte{0xff, 0xff, 0xff, 0xff})
	overflow[5] = byte(unix.IN_Q_OVERFLOW >> 8)
	s.events.take(overflow)
	if len(s.events.alive) != 0 {
		t.Error("a queue overflow was ignored")
	}
	armed(t, s)
	if want := 4; len(s.events.alive) != want { // the root, a, b and the file
		t.Errorf("%d watches, want %d", len(s.events.alive), want)
	}
}

// TestNotArmed: anything that cannot be watched completely is examined in each pass, and the scanner is not armed.
func TestNotArmed(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		change       func(s *server)
	}{
		{"file system not known", "", func(s *server) { s.repo.events = nil }},
		{"no instance", "", func(s *server) { s.events.stop() }},
		{"too many", "mkdir -p a/b/c", func(s *server) { s.events.limit = 2 }},
		{"links without end", "for i in $(seq 70); do mkdir -p $i; ln -s ../x $i/CLAUDE.md; done", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			shell(t, dir, tc.script)
			s := serving(t, dir)
			if tc.change != nil {
				tc.change(s)
				ask(t, s, OpBaseline, time.Time{})
			}
			shell(t, dir, "mkdir new")
			if a, _ := ask(t, s, OpChanged, time.Now()); a.Armed {
				t.Errorf("%+v", a)
			}
		})
	}
}
