package page

import (
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"corral/internal/gate"
	"corral/internal/test/sandboxtest"
)

// A reluctant client reads a response when it has done something else.
type reluctant struct {
	*httptest.ResponseRecorder
	before func()
}

func (r *reluctant) Write(p []byte) (int, error) {
	if f := r.before; f != nil {
		r.before = nil
		f()
	}
	return r.ResponseRecorder.Write(p)
}

// TestTurnsOfReaders: clients that do not read their responses take no turns of those that read the disk.
func TestTurnsOfReaders(t *testing.T) {
	g := newStage(t)
	people := []*person{g.person("me"), g.person("you"), g.person("op"), g.person("op")}
	targets := []string{"/api/history/of-me/stdout", "/api/history", "/api/history/of-me", "/api/history/of-you/stderr"}
	if len(people) <= maxReading {
		t.Fatal("there is a turn for each")
	}
	served, ctx := 0, gate.WithPeer(t.Context(), gate.PeerUser(uint32(os.Getuid())))
	var next func(n int)
	next = func(n int) {
		if n == len(people) {
			return
		}
		w := &reluctant{httptest.NewRecorder(), func() { next(n + 1) }}
		g.s.ServeHTTP(w, people[n].request(ctx, "GET", targets[n], "", people[n].headers()...))
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", targets[n], w.Code, w.Body)
		}
		served++
	}
	next(0)
	if served != len(people) {
		t.Errorf("%d of %d requests were answered", served, len(people))
	}
}

// TestTurnsOfOthers: one principal, however many requests it sends, leaves a turn to another one.
func TestTurnsOfOthers(t *testing.T) {
	g := newStage(t)
	me, you := g.person("me"), g.person("you")
	held := make(chan struct{})
	reading := 0
	g.change(func() {
		g.stream = func(principal string) {
			if principal == "me" {
				g.change(func() { reading++ })
				<-held
			}
		}
	})
	var all sync.WaitGroup
	for range 3 * maxReading {
		all.Go(func() { me.get("/api/history/of-me/stdout") })
	}
	sandboxtest.Eventually(t, time.Minute, "one of them reads", func() bool {
		g.s.rates.mu.Lock()
		left := g.s.rates.left["me"] // a copy, to which no time passes
		sent := rate.Burst - left.Left(rate, time.Time{})
		g.s.rates.mu.Unlock()
		g.mu.Lock()
		defer g.mu.Unlock()
		return reading > 0 && sent > 3*maxReading // with the one of person
	})
	if got := you.get("/api/history"); got.StatusCode != http.StatusOK {
		t.Errorf("another principal: %s %s", got.Status, got.body)
	}
	close(held)
	all.Wait()
}
