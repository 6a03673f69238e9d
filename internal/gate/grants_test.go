package gate

import (
	"strings"
	"testing"
	"time"
)

var (
	start   = time.Unix(1_800_000_000, 0)
	options = GrantOptions{Link: 5 * time.Minute, Cookie: 12 * time.Hour, Idle: 30 * time.Minute, Max: 8}
)

// Users of the machine.
var (
	me  = PeerUser(1000)
	you = PeerUser(1001)
)

// cookie returns the cookie that a link of principal "me" is exchanged for.
func cookie(t *testing.T, g *Grants[string], now time.Time) string {
	t.Helper()
	token, _ := g.Link(Holder{Principal: "me"}, "here", now)
	c, ok := g.Open(token, "here", me, now)
	if !ok {
		t.Fatal("the link cannot be opened")
	}
	return c
}

// holds reports whether a cookie is valid here.
func holds(g *Grants[string], cookie string, now time.Time) bool {
	_, ok := g.Owner(cookie, "here", me, now)
	return ok
}

// TestOnce: a link is opened once, in time and at its own place; neither a link is a cookie nor a cookie a link.
func TestOnce(t *testing.T) {
	g := NewGrants[string](options)
	token, expires := g.Link(Holder{Principal: "me"}, "here", start)
	if !expires.Equal(start.Add(options.Link)) || len(token) != 64 || strings.Contains(token, "me") {
		t.Errorf("%s until %v", token, expires)
	}
	if _, ok := g.Open(token, "there", me, start); ok {
		t.Error("opened at another place")
	}
	if _, ok := g.Use(token, "here", me, start); ok {
		t.Error("a link is taken as a cookie")
	}
	c, ok := g.Open(token, "here", me, start)
	if !ok || c == token {
		t.Fatal("it cannot be opened")
	}
	if _, ok := g.Open(token, "here", me, start); ok {
		t.Error("opened twice")
	}
	if _, ok := g.Open(c, "here", me, start); ok {
		t.Error("a cookie is taken as a link")
	}
	if p, ok := g.Use(c, "here", me, start); !ok || p.Principal != "me" {
		t.Errorf("the cookie is %q's, %v", p, ok)
	}
	if _, ok := g.Use(c, "there", me, start); ok {
		t.Error("the cookie is valid at another place")
	}
	late, _ := g.Link(Holder{Principal: "me"}, "here", start)
	if _, ok := g.Open(late, "here", me, start.Add(options.Link)); ok {
		t.Error("opened late")
	}
}

// TestPeers: a cookie is of no use on the connections of another user, and on those of nobody neither a cookie nor a link is.
func TestPeers(t *testing.T) {
	g := NewGrants[string](options)
	token, _ := g.Link(Holder{Principal: "me"}, "here", start)
	if _, ok := g.Open(token, "here", Peer{}, start); ok {
		t.Error("nobody opens a link")
	}
	c, ok := g.Open(token, "here", me, start)
	if !ok {
		t.Fatal("it cannot be opened afterwards")
	}
	for peer, want := range map[Peer]bool{me: true, you: false, {}: false, {uid: 1000}: false} {
		if _, ok := g.Use(c, "here", peer, start); ok != want {
			t.Errorf("%+v uses it: %v", peer, ok)
		}
		if _, ok := g.Owner(c, "here", peer, start); ok != want {
			t.Errorf("%+v owns it: %v", peer, ok)
		}
	}
}

// TestExpires: a cookie ends when it was not used for a while, at the latest after its life, and when it is ended. A look without use
// does not prolong it.
func TestExpires(t *testing.T) {
	g := NewGrants[string](options)
	idle := cookie(t, g, start)
	if !holds(g, idle, start.Add(options.Idle-1)) || holds(g, idle, start.Add(options.Idle)) {
		t.Error("a cookie that is not used does not end after its idle time")
	}
	used, now := cookie(t, g, start), start
	for ; now.Before(start.Add(options.Cookie)); now = now.Add(options.Idle - 1) {
		if _, ok := g.Use(used, "here", me, now); !ok {
			t.Fatalf("ended after %v of use", now.Sub(start))
		}
	}
	if _, ok := g.Use(used, "here", me, start.Add(options.Cookie)); ok {
		t.Error("a cookie that is used has no end")
	}
	gone := cookie(t, g, start)
	if g.End(gone); holds(g, gone, start) {
		t.Error("an ended cookie is valid")
	}
	forever := NewGrants[string](GrantOptions{Link: 1, Cookie: options.Cookie, Max: 1})
	if c := cookie(t, forever, start); !holds(forever, c, start.Add(options.Cookie-1)) {
		t.Error("a cookie without an idle time ends when it is not used")
	}
}

// TestBounded: the links and cookies of a principal are bounded, and those of others stay.
func TestBounded(t *testing.T) {
	g := NewGrants[string](options)
	other, _ := g.Link(Holder{Principal: "you"}, "there", start)
	first, _ := g.Link(Holder{Principal: "me"}, "here", start)
	for n := range options.Max {
		g.Link(Holder{Principal: "me"}, "here", start.Add(time.Duration(n+1)))
	}
	if len(g.links) != options.Max+1 {
		t.Errorf("%d links", len(g.links))
	}
	if _, ok := g.Open(first, "here", me, start); ok {
		t.Error("the oldest link stays")
	}
	if _, ok := g.Open(other, "there", me, start); !ok {
		t.Error("another principal's link was replaced")
	}
	g.Link(Holder{Principal: "me"}, "here", start.Add(2*options.Link))
	if len(g.links) != 1 {
		t.Errorf("%d links when all but one have expired", len(g.links))
	}
	for n := range 3 * options.Max {
		cookie(t, g, start.Add(time.Duration(n)))
	}
	if len(g.cookies) != options.Max+1 {
		t.Errorf("%d cookies, one of them another principal's", len(g.cookies))
	}
}
