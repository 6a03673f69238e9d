package session

import (
	"testing"
	"testing/synctest"
	"time"

	"corral/job"
)

// TestOverlay checks that only a client's own session behind an overlay is found, while it is open and when its layer is kept.
func TestOverlay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		k := h.manager(t, Options{OverlayIdle: time.Minute})
		h.changed = true
		use(t, k, root, behind)
		use(t, k, &job.Request{Principal: "user:ada", Session: "c1", Share: true}, direct)
		use(t, k, &job.Request{Principal: "user:eve", Session: "c1"}, behind)
		use(t, k, &job.Request{Principal: "user:ada", Session: "c2"}, behind)
		if id := k.Overlay("user:ada", "c1", "/srv/x"); id != "" {
			t.Errorf("before the first: %q", id)
		}
		want, _ := use(t, k, overlay, behind)
		if id := k.Overlay("user:ada", "c1", "/srv/x"); id != want {
			t.Errorf("%q, want %q", id, want)
		}
		if id := k.Overlay("user:ada", "c1", "/srv/y"); id != "" {
			t.Errorf("in another repository: %q", id)
		}
		pass()
		if id := k.Overlay("user:ada", "c1", "/srv/x"); id != want {
			t.Errorf("when it expired: %q, want %q", id, want)
		}
	})
}
