package main

import (
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func socketAt(t *testing.T, network, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// noMembers is the name of no group. Tests do not use group corral, which this machine can have: only root and its members can give a
// file to it.
const noMembers = "no such group"

// TestListen: only a socket without a listener is replaced, and only its owner and the group may connect.
func TestListen(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(t *testing.T, path string)
		want string // part of the error; "" for none
	}{
		{"nothing", func(*testing.T, string) {}, ""},
		{"a stale socket", func(t *testing.T, path string) {
			l := socketAt(t, "unixpacket", path)
			l.SetUnlinkOnClose(false)
			l.Close()
		}, ""},
		{"a live one", func(t *testing.T, path string) { socketAt(t, "unixpacket", path) }, "another supervisor listens on "},
		{"another program's", func(t *testing.T, path string) { socketAt(t, "unix", path) }, "another program uses "},
		{"a datagram socket", func(t *testing.T, path string) {
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
		}, "another program uses "},
		{"a file", write, "exists and is not a socket\nhint: "},
		{"a link to a stale socket", func(t *testing.T, path string) {
			l := socketAt(t, "unixpacket", path+"-real")
			l.SetUnlinkOnClose(false)
			l.Close()
			if err := os.Symlink(path+"-real", path); err != nil {
				t.Fatal(err)
			}
		}, "exists and is not a socket"},
		{"a directory", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "exists and is not a socket"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "socket")
			tt.make(t, path)
			before, _ := os.Lstat(path)
			l, err := listen(path, noMembers)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
					t.Errorf("the file that was there is gone: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			checkMode(t, path, "")
		})
	}
	t.Run("a group", func(t *testing.T) {
		own, err := user.LookupGroupId(strconv.Itoa(os.Getegid()))
		if err != nil {
			t.Skip(err)
		}
		path := filepath.Join(t.TempDir(), "socket")
		l, err := listen(path, own.Name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		checkMode(t, path, own.Gid)
	})
	if _, err := listen(filepath.Join(t.TempDir(), "no", "directory"), noMembers); err == nil {
		t.Error("a socket in no directory")
	}
	if mask := syscall.Umask(0o022); mask == 0o177 {
		t.Errorf("the umask is left as %o", mask)
	} else {
		syscall.Umask(mask)
	}
}

// checkMode fails unless the socket is accessible to this user alone and, unless gid is empty, to that group.
func checkMode(t *testing.T, path, gid string) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	mode := os.FileMode(0o660)
	if gid == "" {
		mode, gid = 0o600, strconv.Itoa(os.Getegid())
	}
	if st := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != mode || strconv.Itoa(int(st.Gid)) != gid || int(st.Uid) != os.Geteuid() {
		t.Errorf("mode %v, owner %d:%d; want %v, %d:%s", info.Mode(), st.Uid, st.Gid, mode, os.Geteuid(), gid)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"--socket", "/s", "--repo", "/a", "--repo=/b", "--toolchain", "/t", "--config", "/c", "--instance", "x"})
	if err != nil {
		t.Fatal(err)
	}
	if o.socket != "/s" || o.config != "/c" || o.embedded != -1 || o.supervisor.Instance != "x" || len(o.supervisor.Repos) != 2 ||
		o.supervisor.Repos[1].Path != "/b" || len(o.supervisor.Toolchains) != 1 {
		t.Errorf("got %+v", o)
	}
	for _, args := range [][]string{{"x"}, {"--bogus"}, {"--socket"}, {"--embedded", "x"}, {"--images"}, {"--embedded", "3"}, {"--account", "1:1"}, {"--embedded", "3", "--account", "x"}, {"--owner", "1"}, {"--repo", "/a", "--owner", "-1"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
