package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/config"
	"corral/internal/test/mcptest"
	"corral/internal/test/sandboxtest"
)

// dialAs connects to a unix socket as another user, which the calling thread becomes for that time.
func dialAs(t *testing.T, uid int, path string) (net.Conn, error) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(uid int) {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			panic(errno) // this thread would keep the other user's rights
		}
	}
	become(uid)
	defer become(0)
	return net.Dial("unix", path)
}

// TestExecPeers checks that clients of a unix socket are identified by the kernel, and that other users are refused.
func TestExecPeers(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	dir := filepath.Join(p.dir, "sockets")
	if err := errors.Join(os.Mkdir(dir, 0o711), os.Chown(dir, p.uid, p.uid)); err != nil {
		t.Fatal(err)
	}
	for n, tt := range []struct {
		sections string
		mode     os.FileMode
		served   map[int]bool
	}{
		{"", 0o600, map[int]bool{0: true, p.uid: true, 61301: false}},
		{"exec_server: {peers: [61301]}\n", 0o666, map[int]bool{0: true, p.uid: true, 61301: true, 61302: false}},
	} {
		s := &execSite{t: t, p: p, over: overUnix, args: []string{"exec-server", "--config", p.config(t, tt.sections), "--supervisor", d.Socket}}
		path := filepath.Join(dir, itoa(n))
		s.listen("unix://" + path)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != tt.mode {
			t.Errorf("%v, %v", info, err)
		}
		for uid, want := range tt.served {
			conn, err := dialAs(t, uid, path)
			if err == nil {
				_, _ = io.WriteString(conn, `{"id":1,"method":"initialize","params":{"clientInfo":{"name":"t","version":"1"}}}`+"\n")
				_ = conn.SetReadDeadline(time.Now().Add(sandboxtest.Slow(20 * time.Second)))
				_, err = conn.Read(make([]byte, 1))
				_ = conn.Close()
			}
			if got := err == nil; got != want || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%q: user %d: %v", tt.sections, uid, err)
			}
		}
		if c := s.client(); *c.shell("true").ExitCode != 0 {
			t.Error("root's command failed")
		}
	}
	if log := audited(t, d); !strings.Contains(log, `"principal":"user:root"`) {
		t.Errorf("the log has no principal: %s", log)
	}
}

// TestExecWeb checks that over HTTP clients with a token for command_exec are served, and browsers are not.
func TestExecWeb(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	var sections strings.Builder
	sections.WriteString("principals:\n")
	tokens := map[string]string{}
	for name, more := range map[string]string{"all": "", "other": ", repos: [other]", "reader": ", tools: [runtime_query_output]", "runner": ", tools: [command_exec]"} {
		token, hash := config.NewToken()
		tokens[name] = token
		fmt.Fprintf(&sections, "  - {name: %s, token_sha256: \"%x\"%s}\n", name, hash, more)
	}
	s := &execSite{t: t, p: p, over: overWeb, args: []string{"exec-server", "--config", p.config(t, sections.String()), "--supervisor", d.Socket}}
	s.listen("ws://127.0.0.1:0")
	for name, want := range map[string]string{"all": "ok\n", "runner": "ok\n", "other": ""} {
		s.token = tokens[name]
		c := s.client()
		if want == "" {
			c.refused("command/exec", `{"command":["true"]}`, "…")
		} else if r := c.shell("echo ok"); *r.Stdout != want {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for token, want := range map[string]int{
		tokens["all"]: http.StatusUpgradeRequired, tokens["reader"]: http.StatusUnauthorized, "": http.StatusUnauthorized,
	} {
		if got, _ := mcptest.Fetch(t, http.MethodGet, "http"+strings.TrimPrefix(s.address, "ws")+"/", token); got != want {
			t.Errorf("token %q: %d, want %d", token, got, want)
		}
	}
	if log := audited(t, d); !strings.Contains(log, `"principal":"token:runner"`) {
		t.Errorf("the log has no principal: %s", log)
	}
}

// TestExecSignal checks that a server that is told to end ends all its processes and removes its socket.
func TestExecSignal(t *testing.T) {
	sandboxtest.RequireJails(t)
	s := newPlace(t).execSite(t, daemon(t), overUnix, "")
	c := s.client()
	mark := fmt.Sprintf("mark-%d-%d", os.Getpid(), serial.Add(1))
	c.start(object{"disableTimeout": true}, "bash", "-c", "trap '' TERM; exec -a "+mark+" sleep 600")
	sandboxtest.Eventually(t, 20*time.Second, "it runs", func() bool { return marked(mark) > 0 })
	_ = s.server.Process.Signal(syscall.SIGTERM)
	<-s.server.Ended
	if code := s.server.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if marked(mark) > 0 {
		t.Error("its process still runs")
	}
	<-c.ended
	if _, err := os.Stat(strings.TrimPrefix(s.address, "unix://")); err == nil {
		t.Error("the socket is left")
	}
}

// TestExecEmbedded checks that root's server starts a supervisor, drops root, and runs commands where it was started.
func TestExecEmbedded(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	p.file(t, "sub/here", "x\n")
	for dir, want := range map[string]string{"/": p.repo, p.repo + "/sub": p.repo + "/sub"} {
		s := &execSite{t: t, p: p, over: overStdio}
		c := &execClient{t: t, ended: make(chan struct{}), pending: map[string]chan<- *execMessage{}, streams: map[string]*deltas{}}
		cmd := p.front("exec-server", "--repo", p.repo)
		cmd.Path, cmd.Dir = sandboxtest.Bin(t, "corral-front"), dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		s.run(c, cmd)
		t.Cleanup(c.close)
		go c.receive()
		c.must("initialize", object{"clientInfo": object{"name": "test", "version": "1"}})
		if r := c.shell("pwd"); *r.Stdout != want+"\n" {
			t.Errorf("%s: %+v", dir, *r.Stdout)
		}
		b, err := os.ReadFile("/proc/" + itoa(s.pid()) + "/status")
		if err != nil || !strings.Contains(string(b), "NoNewPrivs:\t1\n") || strings.Contains(string(b), "\nUid:\t0\t") {
			t.Errorf("it is root: %v\n%s", err, b)
		}
	}
}
