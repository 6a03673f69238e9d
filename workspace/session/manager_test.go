package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

var _ job.SessionProvider = (*Manager)(nil)

// A host simulates the supervisor.
type host struct {
	mu      sync.Mutex
	n       int
	opened  []job.SessionSpec
	live    map[string]bool      // by id; kept ones stay live
	closed  []string             // "ID keep"
	changed bool                 // whether jobs changed the repository
	resting bool                 // the supervisor has ended sessions by itself and kept their layers
	lists   bool                 // ListSessions returns sessions
	fail    error                // returned by the next OpenSession
	full    func(open int) error // returns the error of OpenSession by the number of open sessions; nil is none
	hold    chan struct{}        // OpenSession waits until it is closed
}

func newHost() *host { return &host{live: map[string]bool{}} }

func (h *host) OpenSession(ctx context.Context, spec job.SessionSpec) (job.Session, error) {
	if h.hold != nil {
		select {
		case <-h.hold:
		case <-ctx.Done():
			return job.Session{}, ctx.Err()
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.fail; err != nil {
		h.fail = nil
		return job.Session{}, err
	}
	if h.full != nil {
		if err := h.full(h.n - len(h.closed)); err != nil {
			return job.Session{}, err
		}
	}
	h.n++
	h.opened = append(h.opened, spec)
	id := fmt.Sprint("s", h.n)
	h.live[id] = true
	return job.Session{ID: id}, nil
}

func (h *host) CloseSession(_ context.Context, id string, keep bool) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = append(h.closed, fmt.Sprint(id, " ", keep))
	if !h.live[id] || h.resting {
		return false, &job.Refusal{Step: "session", Message: "no session"}
	}
	kept := keep && h.changed
	h.live[id] = kept
	return kept, nil
}

func (h *host) ListSessions(context.Context) ([]job.Session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []job.Session
	for id, live := range h.live {
		if live && h.lists {
			list = append(list, job.Session{ID: id, Kept: slices.Contains(h.closed, id+" true")})
		}
	}
	return list, nil
}

// set sets a field that what a timer runs reads.
func (h *host) set(field *bool, value bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*field = value
}

// pass lets all idle timeouts expire.
func pass() {
	time.Sleep(time.Hour)
	synctest.Wait()
}

func (h *host) ended() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.closed)
}

func (h *host) manager(t *testing.T, o Options) *Manager {
	t.Helper()
	o.Sessions = h
	k := New(o)
	t.Cleanup(k.Close)
	return k
}

var (
	root    = &job.Request{Principal: "user:ada", Session: "c1", Root: true}
	overlay = &job.Request{Principal: "user:ada", Session: "c1"}
	direct  = job.Spec{Repo: "/srv/x", Profile: "default"}
	behind  = job.Spec{Repo: "/srv/x", Profile: "default", Workspace: job.Overlay}
)

func acquire(t *testing.T, k *Manager, r *job.Request, spec job.Spec) job.Lease {
	t.Helper()
	lease, err := k.Acquire(t.Context(), r, spec)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// use acquires a session and returns it at once.
func use(t *testing.T, k *Manager, r *job.Request, spec job.Spec) (id string, replaced bool) {
	t.Helper()
	lease := acquire(t, k, r, spec)
	lease.Return(false)
	return lease.ID, lease.Replaced != ""
}

// TestSharedPerClientAndKind: a session is shared per principal, client, repository and kind, and opened with the
// configured options.
func TestSharedPerClientAndKind(t *testing.T) {
	sandboxtest.Leaks(t)
	h := newHost()
	k := h.manager(t, Options{Root: job.SessionSpec{Image: "debian", Disk: 1 << 30, Inodes: 5}, RootIdle: time.Minute})
	if len(h.opened) != 0 {
		t.Error("opened without a job")
	}
	other, client := *root, *root
	other.Principal, client.Session = "user:bob", "c2"
	for _, tt := range []struct {
		name string
		r    *job.Request
		spec job.Spec
		id   string
	}{
		{"the first", root, direct, "s1"},
		{"again", root, direct, "s1"},
		{"another principal", &other, direct, "s2"},
		{"another client", &client, direct, "s3"},
		{"another repository", root, job.Spec{Repo: "/srv/y", Profile: "default"}, "s4"},
		{"behind an overlay", overlay, behind, "s5"},
		{"another network", overlay, job.Spec{Repo: "/srv/x", Profile: "default", Workspace: job.Overlay, Network: "npm", SessionNetwork: "npm pypi"}, "s6"},
		{"a job with less of it", overlay, job.Spec{Repo: "/srv/x", Profile: "default", Workspace: job.Overlay, Network: "none", SessionNetwork: "npm pypi"}, "s6"},
		{"the first is still there", root, direct, "s1"},
	} {
		if id, replaced := use(t, k, tt.r, tt.spec); id != tt.id || replaced {
			t.Errorf("%s: %s, replaced %t", tt.name, id, replaced)
		}
	}
	want := job.SessionSpec{
		Repo: "/srv/x", Profile: "default", Root: true, Image: "debian", Disk: 1 << 30, Inodes: 5, Idle: time.Minute + backstop,
	}
	if h.opened[0] != want {
		t.Errorf("opened with %+v", h.opened[0])
	}
	want = job.SessionSpec{Repo: "/srv/x", Profile: "default", Workspace: job.Overlay, Idle: Forever}
	if h.opened[4] != want {
		t.Errorf("opened with %+v", h.opened[4])
	}
	if want.Network = "npm pypi"; h.opened[5] != want {
		t.Errorf("opened with %+v", h.opened[5])
	}
}

// TestShare: a session whose first job asks for it shares the home directory and /tmp, and later jobs of the client use the same
// one, whether they ask for it or not.
func TestShare(t *testing.T) {
	sandboxtest.Leaks(t)
	h := newHost()
	k := h.manager(t, Options{})
	shared := *overlay
	shared.Share = true
	first, _ := use(t, k, &shared, behind)
	if again, _ := use(t, k, overlay, behind); again != first || !h.opened[0].Share {
		t.Errorf("%s, then %s; opened with %+v", first, again, h.opened[0])
	}
	use(t, k, &shared, direct)
	if got := h.opened[1]; !got.Share || got.Workspace != job.Direct {
		t.Errorf("opened with %+v", got)
	}
	system := *root
	system.Share = true
	use(t, k, &system, direct)
	if got := h.opened[2]; got.Share || !got.Root { // a root of its own is shared as a whole
		t.Errorf("opened with %+v", got)
	}
}

// TestOpenOf: the open sessions of a principal are its own, and none that has ended.
func TestOpenOf(t *testing.T) {
	k := newHost().manager(t, Options{})
	ids := map[string]string{}
	for _, who := range []string{"a", "b"} {
		l, err := k.Acquire(t.Context(), &job.Request{Principal: who, Session: "s", Root: true}, job.Spec{Repo: "/srv/" + who})
		if err != nil {
			t.Fatal(err)
		}
		l.Return(false)
		ids[who] = l.ID
	}
	if got := k.OpenOf("a"); len(got) != 1 || got[0] != (Open{ids["a"], "/srv/a", "s"}) {
		t.Errorf("%+v", got)
	}
	if got := k.OpenOf("c"); got != nil {
		t.Errorf("%+v", got)
	}
	k.End("a", "s")
	if got := k.OpenOf("a"); got != nil {
		t.Errorf("after its end: %+v", got)
	}
	if got := k.OpenOf("b"); len(got) != 1 {
		t.Errorf("of another: %+v", got)
	}
}

// TestReset: the sessions of a client in a repository end, and the next one is new even if changes of the last one are kept.
func TestReset(t *testing.T) {
	sandboxtest.Leaks(t)
	h := newHost()
	h.changed = true
	k := h.manager(t, Options{})
	other := *overlay
	other.Session = "c2"
	use(t, k, overlay, behind)
	use(t, k, root, direct)
	use(t, k, &other, behind)
	use(t, k, overlay, job.Spec{Repo: "/srv/y", Profile: "default", Workspace: job.Overlay})
	k.Reset("user:ada", "c1", "/srv/x")
	if got := h.ended(); !slices.Equal(got, []string{"s1 true"}) {
		t.Errorf("closed %q", got)
	}
	if id, replaced := use(t, k, overlay, behind); id != "s5" || replaced {
		t.Errorf("then %s, replaced %t", id, replaced)
	}
}

// TestRace: many first jobs at once share one OpenSession.
func TestRace(t *testing.T) {
	sandboxtest.Leaks(t)
	h := newHost()
	h.hold = make(chan struct{})
	k := h.manager(t, Options{})
	var work sync.WaitGroup
	ids := make([]string, 100)
	for n := range ids {
		work.Go(func() {
			lease, err := k.Acquire(t.Context(), root, direct)
			if err != nil {
				t.Error(err)
				return
			}
			ids[n] = lease.ID
			lease.Return(false)
			lease.Return(false) // the second call does nothing
		})
	}
	close(h.hold)
	work.Wait()
	if len(h.opened) != 1 || slices.ContainsFunc(ids, func(id string) bool { return id != "s1" }) {
		t.Errorf("%d openings, %q", len(h.opened), ids)
	}
}

// TestNotOpened: all waiters get the error of OpenSession, and the next job tries again.
func TestNotOpened(t *testing.T) {
	sandboxtest.Leaks(t)
	h := newHost()
	k := h.manager(t, Options{RootIdle: time.Minute})
	h.fail = errors.New("no loop device")
	if _, err := k.Acquire(t.Context(), root, direct); err == nil || err.Error() != "no loop device" {
		t.Errorf("%v", err)
	}
	if id, replaced := use(t, k, root, direct); id != "s1" || replaced {
		t.Errorf("%s, replaced %t", id, replaced)
	}
	// A waiter that is cancelled does not take the session from the others.
	h.hold = make(chan struct{})
	other := *root
	other.Session = "c2"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Acquire(ctx, &other, direct); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := k.Acquire(ctx, &other, direct)
		left <- err
	}()
	sandboxtest.Eventually(t, time.Second, "the session is not being opened", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.all) == 2
	})
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(h.hold)
	if id, _ := use(t, k, &other, direct); id != "s2" {
		t.Error(id)
	}
}

// TestIdle: a session expires after its idle timeout, but not while a job uses it.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		k := h.manager(t, Options{RootIdle: 5 * time.Minute})
		first, second := acquire(t, k, root, direct), acquire(t, k, root, direct)
		first.Return(false)
		pass()
		if got := h.ended(); len(got) != 0 {
			t.Errorf("closed in use: %q", got)
		}
		second.Return(false)
		time.Sleep(5*time.Minute - 1)
		third := acquire(t, k, root, direct) // stops the timer
		pass()
		third.Return(false)
		pass()
		if got := h.ended(); !slices.Equal(got, []string{"s1 false"}) {
			t.Errorf("closed %q", got)
		}
		for _, want := range []bool{true, false} { // Replaced is reported once
			if id, replaced := use(t, k, root, direct); id != "s2" || replaced != want {
				t.Errorf("%s, replaced %t", id, replaced)
			}
		}
		use(t, k, overlay, behind)
		pass()
		if got := h.ended(); !slices.Equal(got, []string{"s1 false", "s2 false"}) {
			t.Errorf("closed a session without an idle timeout: %q", got)
		}
	})
}

// TestKeptOverlayIsReused: changes behind an overlay are kept when the session expires, and a client that returns
// gets the same overlay.
func TestKeptOverlayIsReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		h.set(&h.changed, true)
		k := h.manager(t, Options{OverlayIdle: time.Minute})
		use(t, k, overlay, behind)
		pass()
		if id, replaced := use(t, k, overlay, behind); id != "s1" || replaced || len(h.opened) != 1 {
			t.Errorf("%s, replaced %t, opened %d", id, replaced, len(h.opened))
		}
		pass()
		h.set(&h.resting, true) // the supervisor also ends idle sessions by itself
		use(t, k, overlay, behind)
		pass()
		if id, replaced := use(t, k, overlay, behind); id != "s1" || replaced || len(h.opened) != 1 {
			t.Errorf("resting: %s, replaced %t, opened %d", id, replaced, len(h.opened))
		}
		h.set(&h.resting, false)
		pass()
		// If a user discards the layer, the supervisor no longer has it.
		lease := acquire(t, k, overlay, behind)
		lease.Return(true)
		if id, replaced := use(t, k, overlay, behind); id != "s2" || !replaced {
			t.Errorf("%s, replaced %t", id, replaced)
		}
		h.set(&h.changed, false)
		pass()
		if id, replaced := use(t, k, overlay, behind); id != "s3" || !replaced {
			t.Errorf("without changes: %s, replaced %t", id, replaced)
		}
		h.set(&h.changed, true)
		k.End("user:ada", "c1")
		if id, replaced := use(t, k, overlay, behind); id != "s4" || replaced {
			t.Errorf("another client with the same name: %s, replaced %t", id, replaced)
		}
		want := []string{"s1 true", "s1 true", "s1 true", "s1 true", "s1 true", "s2 true", "s3 true"}
		if got := h.ended(); !slices.Equal(got, want) {
			t.Errorf("closed %q", got)
		}
	})
}

// TestLostSessionIsReplacedOnce: all jobs whose session the supervisor has ended share one new session.
func TestLostSessionIsReplacedOnce(t *testing.T) {
	sandboxtest.Leaks(t)
	h := newHost()
	k := h.manager(t, Options{})
	first, second := acquire(t, k, root, direct), acquire(t, k, root, direct)
	h.live["s1"] = false
	first.Return(true)
	again := acquire(t, k, root, direct)
	second.Return(true)
	also := acquire(t, k, root, direct)
	if again.ID != "s2" || also.ID != "s2" || again.Replaced != job.SessionGone {
		t.Errorf("%+v, %+v", again, also)
	}
	again.Return(false)
	also.Return(false)
	if got := h.ended(); !slices.Equal(got, []string{"s1 false"}) {
		t.Errorf("closed %q", got)
	}
}

// TestEnd: a client's sessions end with it, those in use with their last job, and no other client's sessions do.
func TestEnd(t *testing.T) {
	sandboxtest.Leaks(t)
	h := newHost()
	k := h.manager(t, Options{})
	other := *root
	other.Session = "c2"
	use(t, k, &other, direct)
	use(t, k, overlay, behind)
	busy := acquire(t, k, root, direct)
	k.End("user:bob", "c1")
	k.End("user:ada", "c3")
	if got := h.ended(); len(got) != 0 {
		t.Errorf("closed %q", got)
	}
	k.End("user:ada", "c1")
	if got := h.ended(); !slices.Equal(got, []string{"s2 true"}) {
		t.Errorf("closed %q", got)
	}
	busy.Return(false)
	if got := h.ended(); !slices.Equal(got, []string{"s2 true", "s3 false"}) {
		t.Errorf("closed %q", got)
	}
	k.Close()
	k.Close()
	k.End("user:ada", "c2")
	if got := h.ended(); !slices.Equal(got, []string{"s2 true", "s3 false", "s1 false"}) {
		t.Errorf("closed %q", got)
	}
	if _, err := k.Acquire(t.Context(), root, direct); !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestCloseBusy: Close does not wait for jobs or openings; returning a lease afterwards closes nothing twice.
func TestCloseBusy(t *testing.T) {
	sandboxtest.Leaks(t)
	h := newHost()
	k := h.manager(t, Options{})
	busy := acquire(t, k, root, direct)
	h.hold = make(chan struct{}) // Close must not wait for an OpenSession
	opening := make(chan error)
	go func() {
		_, err := k.Acquire(t.Context(), overlay, behind)
		opening <- err
	}()
	sandboxtest.Eventually(t, time.Second, "the session is not being opened", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.all) == 2
	})
	k.Close()
	busy.Return(true)
	if err := <-opening; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if got := h.ended(); !slices.Equal(got, []string{"s1 false"}) {
		t.Errorf("closed %q", got)
	}
}

// TestBounds: a principal's least recently used idle session is evicted for its next one; another principal's is not.
func TestBounds(t *testing.T) {
	sandboxtest.Leaks(t)
	h := newHost()
	k := h.manager(t, Options{PerPrincipal: 2, InAll: 3})
	of := func(principal, client string) *job.Request {
		return &job.Request{Principal: principal, Session: client, Root: true}
	}
	use(t, k, of("a", "1"), direct)
	use(t, k, of("a", "2"), direct)
	use(t, k, of("a", "1"), direct)
	use(t, k, of("a", "3"), direct)
	if got := h.ended(); !slices.Equal(got, []string{"s2 false"}) {
		t.Errorf("closed %q", got)
	}
	busy := acquire(t, k, of("a", "1"), direct)
	also := acquire(t, k, of("a", "3"), direct)
	_, err := k.Acquire(t.Context(), of("a", "4"), direct)
	var refusal *job.Refusal
	if !errors.As(err, &refusal) || !strings.Contains(err.Error(), "open and busy") {
		t.Errorf("%v", err)
	}
	busy.Return(false)
	also.Return(false)
	use(t, k, of("b", "1"), direct)
	before := len(h.ended())
	use(t, k, of("b", "2"), direct) // there are 3 in all, and nobody has more than b would have
	use(t, k, of("c", "1"), direct) // a and b have more
	if got := h.ended()[before:]; !slices.Equal(got, []string{"s4 false", "s1 false"}) {
		t.Errorf("closed %q", got)
	}
	all := []job.Lease{acquire(t, k, of("a", "3"), direct), acquire(t, k, of("b", "2"), direct), acquire(t, k, of("c", "1"), direct)}
	if _, err := k.Acquire(t.Context(), of("d", "1"), direct); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "3 sessions are open") {
		t.Errorf("%v", err)
	}
	for _, lease := range all {
		lease.Return(false)
	}
	for n := range 3 * maxFormer { // the record of ended sessions is bounded as well
		k.mu.Lock()
		k.remember(&entry{key: key{client: fmt.Sprint(n)}}, job.SessionExpired)
		k.mu.Unlock()
	}
	if len(k.former) > maxFormer {
		t.Errorf("%d are remembered", len(k.former))
	}
}

// TestShareOfKeptLayers: the sessions of one principal cannot use up all kept layers, and a layer that is applied or
// discarded is free again.
func TestShareOfKeptLayers(t *testing.T) {
	h := newHost()
	h.changed, h.lists = true, true
	k := h.manager(t, Options{})
	client := 0
	open := func(principal string) (job.Lease, string, error) {
		client++
		name := fmt.Sprint(client)
		lease, err := k.Acquire(t.Context(), &job.Request{Principal: principal, Session: name}, behind)
		return lease, name, err
	}
	fill := func(principal string) (left int, err error) { // with as many at once as it may have
		for left < 2*job.MaxKeptLayers {
			var names []string
			for range DefaultPerPrincipal {
				lease, name, refused := open(principal)
				if err = refused; err != nil {
					break
				}
				lease.Return(false)
				names = append(names, name)
			}
			for _, name := range names {
				k.End(principal, name)
			}
			left += len(names)
			if err != nil {
				break
			}
		}
		return left, err
	}
	var refusal *job.Refusal
	left, err := fill("token:a")
	if left != job.MaxKeptLayers*3/4 || !errors.As(err, &refusal) || refusal.Step != "session" || !strings.Contains(refusal.Hint, "discard") {
		t.Errorf("one principal leaves %d layers, then %v", left, err)
	}
	if more, _ := fill("token:b"); more == 0 || left+more >= job.MaxKeptLayers {
		t.Errorf("another one leaves %d, all %d", more, left+more)
	}
	if lease, _, err := open("token:c"); err != nil {
		t.Errorf("a third one: %v", err)
	} else {
		lease.Return(false)
	}
	h.mu.Lock()
	for id := range h.live { // all are discarded
		h.live[id] = !slices.Contains(h.closed, id+" true")
	}
	h.mu.Unlock()
	if _, _, err := open("token:a"); err != nil {
		t.Errorf("after its layers were discarded: %v", err)
	}
	if _, err := k.Acquire(t.Context(), &job.Request{Principal: "token:a", Session: "root", Root: true}, direct); err != nil {
		t.Errorf("a session that leaves no layer: %v", err)
	}
}

// TestStorm: concurrent use, End, losses and expiry leave no session open and close none twice.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		h.changed = true
		k := h.manager(t, Options{RootIdle: time.Minute, OverlayIdle: time.Minute, PerPrincipal: 4})
		var work sync.WaitGroup
		for n := range 8 {
			work.Go(func() {
				r := &job.Request{Principal: fmt.Sprint(n % 2), Session: fmt.Sprint(n % 3), Root: n%4 == 0}
				spec := direct
				if !r.Root {
					spec = behind
				}
				for i := range 200 {
					lease, err := k.Acquire(t.Context(), r, spec)
					if err != nil {
						t.Error(err)
						return
					}
					lease.Return(i%17 == 0)
					switch {
					case i%13 == 0:
						k.End(r.Principal, r.Session)
					case i%7 == 0:
						time.Sleep(time.Hour)
					}
				}
			})
		}
		work.Wait()
		k.Close()
		if k.count != 0 || len(k.all) != 0 {
			t.Errorf("%d are counted, %d listed", k.count, len(k.all))
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for id, live := range h.live {
			if live && !slices.Contains(h.closed, id+" true") {
				t.Errorf("%s was not closed", id)
			}
		}
	})
}
