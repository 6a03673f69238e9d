package isolate

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/rootfs"
)

// newTool creates a toolchain in a directory that its owner can write, and a directory beside that which is not
// shown.
func newTool(t *testing.T) (tool, trap string) {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	tool, trap = filepath.Join(home, "tool"), filepath.Join(filepath.Dir(home), "trap")
	mkdir(t, home, owner)
	mkdir(t, tool, owner)
	mkdir(t, trap, 0)
	put(t, tool+"/which", "tool", 0o644, owner)
	put(t, trap+"/which", "trap", 0o644, 0)
	return tool, trap
}

// TestToolchainSwapped: the owner of a toolchain's parent directory repeatedly replaces it by a link. Each job is the
// first of a jail: it sees the toolchain, or it is refused.
func TestToolchainSwapped(t *testing.T) {
	tool, trap := newTool(t)
	link := tool + "-link"
	if err := os.Symlink(trap, link); err != nil {
		t.Fatal(err)
	}
	c := config(t)
	c.Log = nil // each refused jail is logged as an error
	c.Toolchains = []string{tool}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	client := connect(t, s, host.Peer{UID: owner})
	end := exchange(tool, link)
	defer end()
	seen, refused := 0, 0
	for n := 0; n < sandboxtest.Scale(60) || seen == 0 && n < 60; n++ { // half of them are refused
		f := frontOf(t, s, client, newRepo(t))
		d, err := f.Try(f.Spec("cat", tool+"/which"))
		switch {
		case err != nil && strings.Contains(err.Error(), rootfs.ErrToolchain.Error()):
			refused++
		case err == nil && d.Out == "tool":
			seen++
		default:
			t.Errorf("%q %s, %v", d.Out, d.Err, err)
		}
	}
	t.Logf("%d saw it, %d refused", seen, refused)
	if seen == 0 {
		t.Error("no job has seen the toolchain, so this test proves nothing")
	}
}

// TestToolchainHeld: jobs see exactly the directory that was there when the supervisor was created, without mounts
// below it.
func TestToolchainHeld(t *testing.T) {
	tool, trap := newTool(t)
	mkdir(t, tool+"/below", owner)
	if err := unix.Mount("test", tool+"/below", "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(tool+"/below", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	put(t, tool+"/below/mounted", "", 0o644, owner)
	f := newFront(t, func(c *Config) { c.Toolchains, c.Log = []string{tool}, nil })
	if got := f.Sh("cat " + tool + "/which; ls -A " + tool + "/below"); got != "tool" {
		t.Errorf("%q: what is mounted below it is shown", got)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, tool, unix.AT_FDCWD, trap, unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	if got := f.Sh("cat " + tool + "/which"); got != "tool" {
		t.Errorf("%q in an existing jail", got)
	}
	f.Repo = newRepo(t) // another jail
	if d, err := f.Try(f.Spec("cat", tool+"/which")); err == nil || !strings.Contains(err.Error(), "restart the supervisor") {
		t.Errorf("another directory: %q, %v", d.Out, err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, tool, unix.AT_FDCWD, trap, unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
}

// collect makes a supervisor log to the returned buffer.
func collect(c *Config) *strings.Builder {
	var b strings.Builder
	c.Log = slog.New(slog.NewTextHandler(&b, nil))
	return &b
}

// TestToolchainRefusedAtStart: a toolchain that cannot be held is not shown and leaves nothing behind. One that the
// operator configured is left out, since a user may have replaced it; with one from an embedded supervisor's command
// line, New fails.
func TestToolchainRefusedAtStart(t *testing.T) {
	tool, trap := newTool(t)
	link := tool + "-link"
	if err := os.Symlink(trap, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, tool + "/absent", tool + "/which", "/etc/ssl", "relative"} {
		c := config(t)
		log := collect(&c)
		c.Toolchains = []string{tool, path}
		if s, err := New(c); err != nil {
			t.Errorf("%s: %v", path, err)
		} else {
			if !slices.Equal(s.tools.Paths, []string{tool}) {
				t.Errorf("%s is shown: %+v", path, s.tools.Paths)
			}
			if !strings.Contains(log.String(), `msg="toolchain not shown" toolchain=`+path+" reason=") {
				t.Errorf("%s: log: %s", path, log)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		c = config(t)
		c.Account, c.Toolchains, c.Shown = &directory.Account{}, []string{tool}, []string{path}
		if s, err := New(c); err == nil {
			t.Errorf("%s is shown", path)
			_ = s.Close()
		}
		for _, left := range traces(c.Instance) {
			t.Errorf("%s: left behind: %s", path, left)
		}
	}
	for _, name := range []string{tool, trap} {
		if b, err := os.ReadFile(name + "/which"); err != nil {
			t.Errorf("%q, %v", b, err)
		}
	}
}
