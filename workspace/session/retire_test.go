package session

import (
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestRetire: the sessions in a repository end, those in use with their last job. Their changes are kept, and their clients get
// them back if the repository is served again.
func TestRetire(t *testing.T) {
	sandboxtest.Leaks(t)
	h := newHost()
	h.changed = true
	k := h.manager(t, Options{})
	elsewhere := behind
	elsewhere.Repo = "/srv/y"
	other := *overlay
	other.Session = "c2"
	idle, _ := use(t, k, overlay, behind)
	kept, _ := use(t, k, overlay, elsewhere)
	busy := acquire(t, k, &other, behind)
	if n := k.Retire("/srv/x"); n != 2 {
		t.Errorf("%d sessions", n)
	}
	if got := h.ended(); len(got) != 1 || got[0] != idle+" true" {
		t.Errorf("closed while one is in use: %q", got)
	}
	busy.Return(false)
	if got := h.ended(); len(got) != 2 || got[1] != busy.ID+" true" {
		t.Errorf("closed after its last job: %q", got)
	}
	if id, replaced := use(t, k, overlay, behind); id != idle || replaced {
		t.Errorf("when it is served again: %s, replaced %t", id, replaced)
	}
	if id, _ := use(t, k, overlay, elsewhere); id != kept {
		t.Errorf("another repository: %s", id)
	}
	k.Close()
	if n := k.Retire("/srv/y"); n != 0 {
		t.Errorf("%d sessions after Close", n)
	}
	if _, err := k.Acquire(t.Context(), overlay, job.Spec{Repo: "/srv/y"}); err == nil {
		t.Error("a session after Close")
	}
}
