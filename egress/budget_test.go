package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// TestShare: one user of a budget has a part of it at most, and all together leave some to those who have few.
func TestShare(t *testing.T) {
	const total = 800
	b := newBudget(total)
	greedy := make([]*share, 4)
	for n := range greedy {
		greedy[n] = newShare(b, total, 0)
		for greedy[n].take(1) {
		}
		if used := greedy[n].used.Load(); used > total/4 || n == 0 && used != total/4 {
			t.Errorf("share %d has %d of %d", n, used, total)
		}
	}
	if left := b.left.Load(); left != total/32 {
		t.Errorf("%d are left", left)
	}
	fresh := newBudget(total)
	for range 3 {
		s := newShare(fresh, total, 0)
		for s.take(1) {
		}
	}
	late := newShare(fresh, total, 0)
	if !late.take(few) {
		t.Error("after three greedy users, another one does not get few")
	}
	late.give(few)
	for _, s := range greedy {
		for s.used.Load() > 0 {
			s.give(1)
		}
	}
	if b.left.Load() != total {
		t.Errorf("%d of %d were given back", b.left.Load(), total)
	}
	if one := newShare(newBudget(total), total, total/2); !one.take(total/2) || one.take(1) {
		t.Error("a share that needs half of the budget has another part of it")
	}
}

// TestGate: as many requests are served at once as the bounds of a door and of all doors say, others wait for their turn, and more are
// refused at once.
func TestGate(t *testing.T) {
	all := make(chan struct{}, 3)
	newGate := func() *gate { return &gate{make(chan struct{}, 2), nil, all, newBudget(1)} }
	one, two := newGate(), newGate()
	enter := func(g *gate) func() {
		t.Helper()
		leave, err := g.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	first, second, third := enter(one), enter(one), enter(two)
	entered := make(chan func())
	wait := func(g *gate) {
		go func() {
			leave, err := g.enter(context.Background())
			if err != nil {
				t.Error(err)
			}
			entered <- leave
		}()
		sandboxtest.Eventually(t, 20*time.Second, "one waits", func() bool { return g.waiting.left.Load() == 0 })
	}
	wait(one) // for the door
	wait(two) // for all
	for _, g := range []*gate{one, two} {
		if _, err := g.enter(t.Context()); !errors.Is(err, errBusy) {
			t.Errorf("one more than may wait: %v", err)
		}
	}
	first()
	fourth := <-entered
	second()
	fifth := <-entered
	third()
	sixth := enter(one)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, g := range []*gate{one, two} {
		if _, err := g.enter(ended); !errors.Is(err, errBusy) {
			t.Errorf("a request that has ended: %v", err)
		}
	}
	fourth()
	fifth()
	sixth()
	if len(all) != 0 || len(one.door) != 0 || len(two.door) != 0 || one.waiting.left.Load() != 1 || two.waiting.left.Load() != 1 {
		t.Errorf("%d, %d, %d are still served", len(all), len(one.door), len(two.door))
	}
}

// TestGateOwn: doors that have all requests keep no other door from a few.
func TestGateOwn(t *testing.T) {
	all := make(chan struct{}, maxAllRequests)
	enter := func(g *gate, n int) (leave []func()) {
		for range n {
			done, err := g.enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, done)
		}
		return leave
	}
	var gates []gate
	var leave []func()
	for len(all) < cap(all) {
		g := newGate(all)
		leave = append(leave, enter(&g, min(maxRequests, ownRequests+cap(all)-len(all)))...)
		gates = append(gates, g)
	}
	other := newGate(all)
	leave = append(leave, enter(&other, ownRequests)...)
	gates = append(gates, other)
	for _, done := range leave {
		done()
	}
	for _, g := range gates {
		if len(g.door)+len(g.own)+len(g.all) != 0 {
			t.Errorf("%d, %d, %d are still served", len(g.door), len(g.own), len(g.all))
		}
	}
}

// TestRequestsBounded: of the requests that a job makes at once, by connections of HTTP/2, as many reach the host as the maximum, some
// wait, and more are answered with 503. Another job's are served.
func TestRequestsBounded(t *testing.T) {
	w := newWorld(t, plenty)
	pool := w.authorize()
	more := make(chan struct{})
	var mu sync.Mutex
	most, now := 0, 0
	w.serve(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/open/slow" {
			_, _ = io.WriteString(rw, "quick")
			return
		}
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		<-more
		mu.Lock()
		now--
		mu.Unlock()
	})
	d, other := w.open(inspecting, ""), w.open(inspecting, "")
	const clients, each = 16, 32
	results := make(chan string, clients*each)
	for range clients {
		tr := d.transport(pool)
		tr.ForceAttemptHTTP2 = true
		tr.MaxConnsPerHost = 1
		t.Cleanup(tr.CloseIdleConnections)
		c := &http.Client{Transport: tr}
		for range each {
			go func() {
				reply, err := c.Get("https://alpha.example.org/open/slow")
				if err != nil {
					results <- err.Error()
					return
				}
				defer reply.Body.Close()
				body, _ := io.ReadAll(reply.Body)
				results <- fmt.Sprint(reply.StatusCode, reply.Header.Get("Retry-After"), " ", string(body))
			}()
		}
	}
	const refused = clients*each - maxRequests - maxWaiting
	for range refused {
		if got := <-results; !strings.HasPrefix(got, "5035 corral: ") || !strings.Contains(got, "128 requests at once") {
			t.Fatalf("%q", got)
		}
	}
	if got, err := other.get(pool, "GET", "/open/quick", ""); err != nil || !strings.HasPrefix(got, "200") {
		t.Errorf("another job: %q, %v", got, err)
	}
	close(more)
	for range clients*each - refused {
		if got := <-results; !strings.HasPrefix(got, "200") {
			t.Errorf("%q", got)
		}
	}
	if most != maxRequests {
		t.Errorf("%d at once", most)
	}
}
