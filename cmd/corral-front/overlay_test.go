package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// An overlay is the part of a reply of runtime_execute about an overlay.
type overlay struct {
	ChangesHandle, ChangesReason, Message string
	Changes                               []struct {
		Path, Kind, Type string
		Bytes            int64
	}
}

// behind runs a shell script in mode summary, in a repository whose workspace is overlay.
func (h *host) behind(code string) (*outcome, *overlay) {
	h.t.Helper()
	a := h.must("tools/call", object{"name": "runtime_execute", "arguments": object{
		"repoId": "app", "runtime": "shell", "code": code, "outputMode": "summary",
	}})
	return h.outcome(a), overlayOf(h.t, a)
}

func overlayOf(t *testing.T, a *response) *overlay {
	t.Helper()
	v := &overlay{}
	if err := json.Unmarshal(a.Result.Structured, v); err != nil {
		t.Fatalf("%s: %v", a.Result.Structured, err)
	}
	return v
}

// overlaid writes a configuration in which app's workspace is overlay.
func (p *place) overlaid(t *testing.T) string {
	t.Helper()
	path := filepath.Join(p.dir, fmt.Sprintf("overlay-%d.yaml", serial.Add(1)))
	text := fmt.Sprintf("version: 1\nrepos:\n  - {id: app, path: %s, workspace: overlay}\n", p.repo)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// kept returns the ids of the sessions whose changes are kept.
func (p *place) kept(t *testing.T, d *sandboxtest.Supervisor) []string {
	t.Helper()
	var ids []string
	for _, line := range p.sessions(t, d) {
		var s struct {
			ID   string
			Kept bool
		}
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		if s.Kept {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// TestOverlay checks that later calls of a client see the writes of earlier ones, that others and the repository do
// not, and that the changes are reported, and kept at the end.
func TestOverlay(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	p.file(t, "a", "before\n")
	file := p.overlaid(t)
	h := connect(t, p.front("mcp", "--config", file, "--supervisor", d.Socket))
	other := connect(t, p.front("mcp", "--config", file, "--supervisor", d.Socket))
	o, v := h.behind("cat a; echo after > a; echo new > b")
	if o.out() != "before\n" || v.ChangesHandle == "" || v.Message != "" {
		t.Fatalf("%+v, %+v", o, v)
	}
	handle := v.ChangesHandle
	if o, v = h.behind("cat a b"); o.out() != "after\nnew\n" || v.ChangesHandle != handle {
		t.Errorf("%+v, %+v", o, v)
	}
	if o, v = other.behind("cat a; ls"); o.out() != "before\na\n" || v.ChangesHandle == handle || len(v.Changes) != 0 {
		t.Errorf("another client: %+v, %+v", o, v)
	}
	b, err := os.ReadFile(filepath.Join(p.repo, "a"))
	_, made := os.Stat(filepath.Join(p.repo, "b"))
	if string(b) != "before\n" || err != nil || !errors.Is(made, os.ErrNotExist) {
		t.Errorf("the repository has %q, %v, %v", b, err, made)
	}
	for _, one := range []*host{h, other} {
		one.to.Close()
		<-one.ended
	}
	if got := p.kept(t, d); !slices.Equal(got, []string{handle}) {
		t.Errorf("kept %q, want %q", got, handle)
	}
}

// TestOverlayOfOperator checks that a repository which the operator serves with workspace overlay is served without a
// warning, and that one which the front-end would use directly is named.
func TestOverlayOfOperator(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{
		Everyone: true, Config: fmt.Sprintf("repos:\n  - {path: %s, workspace: overlay, users: [%d]}\n", p.repo, p.uid),
	})
	h := connect(t, p.front("mcp", "--supervisor", d.Socket, "--config", p.overlaid(t)))
	if o, v := h.behind("echo x >made"); o.Status != "success" || v.ChangesHandle == "" {
		t.Errorf("%+v %+v", o, v)
	}
	if log := h.log.String(); strings.Contains(log, "not served") {
		t.Error(log)
	}
	direct := filepath.Join(p.dir, "direct.yaml")
	if err := os.WriteFile(direct, fmt.Appendf(nil, "version: 1\nrepos:\n  - {id: app, path: %s}\n", p.repo), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := p.front("mcp", "--supervisor", d.Socket, "--config", direct).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "workspace is overlay") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestOverlayKilled checks that the changes of a client are kept if its server is killed, or the supervisor stops, before
// the session was closed in order.
func TestOverlayKilled(t *testing.T) {
	sandboxtest.RequireJails(t)
	for name, end := range map[string]func(*host, *sandboxtest.Supervisor){
		"the server is killed": func(h *host, _ *sandboxtest.Supervisor) { _ = h.cmd.Process.Kill() },
		"the supervisor stops": func(_ *host, d *sandboxtest.Supervisor) { d.Stop(t); d.Start(t) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			d := daemon(t)
			h := connect(t, p.front("mcp", "--supervisor", d.Socket, "--config", p.overlaid(t)))
			_, v := h.behind("echo precious >made")
			end(h, d)
			sandboxtest.Eventually(t, time.Minute, "the changes are kept", func() bool {
				return slices.Equal(p.kept(t, d), []string{v.ChangesHandle})
			})
			diff := p.front("changes", "diff", "--supervisor", d.Socket, v.ChangesHandle)
			diff.Path = filepath.Join(p.dir, "corral")
			out, err := diff.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "+precious") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
