package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
)

// TestStateDirectory: which clients get which user's state directory.
func TestStateDirectory(t *testing.T) {
	s := supervise(t)
	users := filepath.Join(s.config.StateDir, "users")
	mkdir(t, filepath.Join(users, "5"), 6) // as no supervisor creates it
	for path, content := range map[string]string{"7": "", "8": "x"} {
		put(t, filepath.Join(users, path), content, 0o644, 0)
	}
	if err := errors.Join(os.Symlink("/etc", filepath.Join(users, "9")), os.Mkdir(filepath.Join(users, "10"), 0o777)); err != nil {
		t.Fatal(err)
	}
	embedded := host.Peer{Embedded: true}
	for _, tt := range []struct {
		name string
		peer host.Peer
		uid  uint32
		want string // in the error
	}{
		{"one's own", host.Peer{UID: 1000}, 1000, ""},
		{"again", host.Peer{UID: 1000}, 1000, ""},
		{"another's", host.Peer{UID: 1000}, 1001, "is not yours (you are user 1000)"},
		{"root's", host.Peer{UID: 1000}, 0, "is not yours"},
		{"a subordinate id's", host.Peer{UID: 100005, Holder: 1000}, 100005, "a subordinate id of user 1000"},
		{"root's own", host.Peer{}, 0, ""},
		{"whom a client of root becomes", host.Peer{}, 1000, ""},
		{"whom root's front-end becomes", embedded, 1002, ""},
		{"root, for root's front-end", embedded, 0, "has no state directory"},
		{"nobody at all", embedded, 1<<32 - 1, "has no state directory"},
		{"of an odd owner", embedded, 5, "belongs to user 6"},
		{"a file", embedded, 7, "not a directory"},
		{"a link", embedded, 9, "not a directory"},
		{"what a killed one left", embedded, 10, ""},
	} {
		c := connect(t, s, tt.peer)
		dir, err := c.State(tt.uid)
		if tt.want != "" {
			if dir != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got, named unix.Stat_t
		err = errors.Join(unix.Fstat(int(dir.Fd()), &got), unix.Lstat(filepath.Join(users, fmt.Sprint(tt.uid)), &named))
		if err != nil || got.Ino != named.Ino || got.Uid != tt.uid || got.Mode != unix.S_IFDIR|0o700 {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
		dir.Close()
	}
	// A compromised front-end cannot create a directory for every user id.
	for _, peer := range []host.Peer{embedded, {}} {
		c := connect(t, s, peer)
		dir, err := c.State(1002)
		if err != nil {
			t.Fatalf("%+v: %v", peer, err)
		}
		dir.Close()
		if _, err := c.State(1003); err == nil || !strings.Contains(err.Error(), "already become user 1002") {
			t.Errorf("%+v: %v", peer, err)
		}
	}
	for path, mode := range map[string]os.FileMode{"": 0o711, "users": 0o711, "audit": 0o700} {
		info, err := os.Stat(filepath.Join(s.config.StateDir, path))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%q: %v, %v", path, info, err)
		}
	}
}

// TestStateDirRefused: a state directory in which users other than root could create files is refused.
func TestStateDirRefused(t *testing.T) {
	for name, make := range map[string]func(dir string) error{
		"another's":     func(dir string) error { return errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, owner, owner)) },
		"all may write": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o777)) },
		"a link":        func(dir string) error { return os.Symlink(t.TempDir(), dir) },
		"a file":        func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"another's users": func(dir string) error {
			return errors.Join(os.MkdirAll(dir+"/users", 0o755), os.Chown(dir+"/users", owner, owner))
		},
		"linked users": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o755), os.Symlink("/etc", dir+"/users")) },
		"another's log": func(dir string) error {
			return errors.Join(os.MkdirAll(dir+"/audit", 0o700), os.Chown(dir+"/audit", owner, owner))
		},
		"log that all read": func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(dir+"/audit", 0o755), os.Chmod(dir+"/audit", 0o755))
		},
		"linked log": func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(dir+"/real", 0o700), os.Symlink("real", dir+"/audit"))
		},
	} {
		c := config(t)
		if err := make(c.StateDir); err != nil {
			t.Fatal(err)
		}
		s, err := New(c)
		if err == nil {
			t.Errorf("%s: served", name)
			_ = s.Close()
		}
		for _, left := range traces(c.Instance) {
			t.Errorf("%s: left behind: %s", name, left)
		}
	}
	c := config(t)
	c.StateDir = "relative/../path"
	if _, err := New(c); err == nil {
		t.Error("a relative path is served")
	}
}

// TestStateDirIsNoRepo: no job runs in the supervisor's state directory.
func TestStateDirIsNoRepo(t *testing.T) {
	f := sharedFront(t)
	dir, err := f.C.State(owner)
	if err != nil {
		t.Fatal(err)
	}
	dir.Close()
	for path, uid := range map[string]uint32{f.s.config.StateDir + "/users/1001": owner, f.s.config.StateDir + "/users": 0, f.s.config.StateDir: 0} {
		if _, err := f.s.served.Now().Serves(host.Peer{UID: uid}, path, opened(t, path)); err == nil || !strings.Contains(err.Error(), "the supervisor's own") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
