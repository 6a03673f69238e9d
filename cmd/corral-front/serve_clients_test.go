package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// onDisk starts a supervisor whose state directory is on a new file system of that size, which may be larger than what is free: its file is sparse.
func onDisk(t *testing.T, size, sections string) (d *sandboxtest.Supervisor) {
	t.Helper()
	sandboxtest.RequireJails(t)
	sandboxtest.Require(t, sandboxtest.Program("mkfs.ext4"))
	dir := sandboxtest.OpenDirIn(t, "/var/tmp")
	mounted := filepath.Join(dir, "mounted")
	out, err := exec.Command("sh", "-ec", `mkdir -m 0700 "$1/mounted"; truncate -s "$2" "$1/image"
		mkfs.ext4 -q -O ^has_journal -m 0 "$1/image"; mount -o loop "$1/image" "$1/mounted"`, "sh", dir, size).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mounted, unix.UMOUNT_NOFOLLOW); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(dir, "supervisor.yaml")
	if err := os.WriteFile(file, []byte("version: 1\n"+sections), 0o600); err != nil { // with layers as large as usual
		t.Fatal(err)
	}
	return sandboxtest.Daemon(t, sandboxtest.DaemonOptions{
		Everyone: true, Args: []string{"--config", file, "--state", filepath.Join(mounted, "state")},
	})
}

// A webClient is a client of corral serve with a repository of its own.
type webClient struct {
	name, token, session, repo string
	wrote                      bool
}

// clients starts corral serve for n clients, each with a repository, and a token unless one is for all.
func (p *place) clients(t *testing.T, d *sandboxtest.Supervisor, n int, one bool, sections string) (*web, []*webClient) {
	t.Helper()
	var list []*webClient
	var repos, principals strings.Builder
	for i := range n {
		c := &webClient{name: fmt.Sprintf("c%d", i), repo: filepath.Join(p.dir, fmt.Sprintf("repo-%d", i))}
		if err := errors.Join(os.Mkdir(c.repo, 0o755), os.Chown(c.repo, p.uid, p.uid)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&repos, "  - {id: %s, path: %s, workspace: overlay}\n", c.name, c.repo)
		if one && i > 0 {
			c.token = list[0].token
		} else {
			var hash [32]byte
			c.token, hash = config.NewToken()
			fmt.Fprintf(&principals, "  - {name: %s, token_sha256: \"%x\"}\n", c.name, hash)
		}
		list = append(list, c)
	}
	file := filepath.Join(p.dir, "clients.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nrepos:\n"+repos.String()+"principals:\n"+principals.String()+sections), 0o644); err != nil {
		t.Fatal(err)
	}
	w := p.webAt(t, d, file)
	for _, c := range list {
		if _, c.session, _ = w.post(c.token, "", hello); c.session == "" {
			t.Fatalf("%s has no session", c.name)
		}
	}
	return w, list
}

// script runs a shell script in the client's session.
func (w *web) script(c *webClient, code string) *response {
	return w.call(c.token, c.session, "runtime_execute",
		fmt.Sprintf(`{"repoId":%q,"runtime":"shell","code":%q,"outputMode":"summary"}`, c.name, code))
}

// each runs a script for all clients, a few at a time, as a server runs jobs.
func (w *web) each(list []*webClient, code string) (failed []string) {
	var mu sync.Mutex
	var work sync.WaitGroup
	slots := make(chan bool, 8)
	for _, c := range list {
		slots <- true
		work.Go(func() {
			defer func() { <-slots }()
			o := overlayOutcome{}
			a := w.script(c, code)
			if err := json.Unmarshal(a.Result.Structured, &o); err == nil && o.Status == "success" {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, fmt.Sprintf("%s: %.500s", c.name, a.Result.Structured))
		})
	}
	work.Wait()
	return failed
}

type overlayOutcome struct{ Code, Status, Message string }

const (
	write = "yes $$-$0 | head -c %dM >big && sha256sum <big >sum"
	same  = "sha256sum <big | cmp - sum"
)

// TestManyClients: each of many clients of corral serve has a session whose layer is as large as usual on 40 GiB, with a token for each
// and with one for all, and reads back what it has written when all are open.
func TestManyClients(t *testing.T) {
	for _, one := range []bool{false, true} {
		t.Run(fmt.Sprintf("one token %v", one), func(t *testing.T) {
			p, d := newPlace(t), onDisk(t, "43G", "")
			w, list := p.clients(t, d, sandboxtest.Scale(100), one, "")
			for _, code := range []string{fmt.Sprintf(write, 4), same} {
				if failed := w.each(list, code); len(failed) > 0 {
					t.Errorf("%d of %d: %s", len(failed), len(list), failed[0])
				}
			}
			if log := w.Err.String(); strings.Contains(log, "is ended") {
				t.Errorf("a session has ended: %s", log)
			}
		})
	}
}

// TestRoomEnds: when the clients of one user need more room than there is, that is said before, and idle ones give way. A client that
// returns reads what it has written, or is told that there is no room for it; none finds another session in place of its own.
func TestRoomEnds(t *testing.T) {
	p, d := newPlace(t), onDisk(t, "400M", "layers: {disk: 256MiB}\n")
	w, list := p.clients(t, d, 8, true, "")
	warned, wrote, again := 0, 0, 0
	for _, code := range []string{fmt.Sprintf(write, 48), same} {
		for _, c := range list {
			a := w.script(c, code)
			var o overlayOutcome
			if err := json.Unmarshal(a.Result.Structured, &o); err != nil {
				t.Fatal(err)
			}
			full := o.Code == "UNAVAILABLE" && strings.Contains(o.Message, "no room for a layer")
			switch {
			case strings.Contains(o.Message, "previous session"):
				t.Errorf("%s has lost its session: %s", c.name, a.Result.Structured)
			case code == same && c.wrote && o.Status == "success":
				again++
			case code == same && c.wrote && !full:
				t.Errorf("%s: %s", c.name, a.Result.Structured)
			case o.Status == "success":
				c.wrote = true
				wrote++
			}
			if strings.Contains(o.Message, "little room left") {
				warned++
			}
		}
	}
	t.Logf("of %d clients, %d have written, and %d of these read it again; %d replies warn", len(list), wrote, again, warned)
	if warned == 0 || wrote < 3 || again < 3 || !strings.Contains(d.Log(), "little room for sessions") {
		t.Errorf("the supervisor's log: %s", d.Log())
	}
	if log := w.Err.String(); !strings.Contains(log, `"level":"WARN","msg":"a client's session is ended"`) || !strings.Contains(log, "(layers.reserve)") {
		t.Errorf("the server's log: %s", log)
	}
}
