package rpc

import (
	"strings"
	"sync/atomic"
	"testing"
)

// TestReplace: a running server serves other repositories from the next request on. A client in one that was removed is told, and
// what it started runs on. Without the token, nothing more is started.
func TestReplace(t *testing.T) {
	w := &world{run: shell}
	s := w.server()
	var revoked atomic.Bool
	s.Current = func(who Caller) (Caller, bool) { return who, !revoked.Load() }
	p := initialized(t, s)
	running := p.running()
	echo := func(dir string) arrival {
		return p.answer(p.ask("command/exec", `{"command":["echo","x"],"cwd":"`+dir+`"}`))
	}
	if a := echo("/srv/other"); a.Error != nil {
		t.Fatalf("%s", a.raw)
	}
	w.mu.Lock()
	w.deny = denials
	w.mu.Unlock()
	s.Replace(Access{Engine: s.Engine, Repos: []Repo{{ID: "new", Path: "/srv/new"}}, Removed: s.Repos})
	if a := echo("/srv/new/sub"); a.Error != nil {
		t.Errorf("an added repository: %s", a.raw)
	}
	w.mu.Lock()
	if last := w.reqs[len(w.reqs)-1]; last.Repo != "new" || last.Dir != "sub" {
		t.Errorf("%+v", last)
	}
	w.mu.Unlock()
	if a := echo("/srv/other"); a.Error == nil || !strings.Contains(a.Error.Message, "the operator has removed it from the configuration") {
		t.Errorf("a removed repository: %s", a.raw)
	}
	if a := echo("/srv/none"); a.Error == nil || strings.Contains(a.Error.Message, "removed") {
		t.Errorf("one that was never served: %s", a.raw)
	}
	revoked.Store(true)
	if a := echo("/srv/new"); a.Error == nil || !strings.Contains(a.Error.Message, "revoked") {
		t.Errorf("a revoked token: %s", a.raw)
	}
	p.must("command/exec/terminate", `{"processId":"`+running+`"}`)
}
