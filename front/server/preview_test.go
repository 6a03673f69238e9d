package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/front/preview"
	"corral/internal/config"
	"corral/internal/gate"
	"corral/workspace/session"
)

// TestPreviewLinks: a principal gets links to the ports at which its own sessions listen, and to one that it names.
func TestPreviewLinks(t *testing.T) {
	web, db, ended, other := strings.Repeat("1", 32), strings.Repeat("2", 32), strings.Repeat("3", 32), strings.Repeat("4", 32)
	open := map[string][]session.Open{
		"token:me":  {{ID: web, Repo: "/srv/app"}, {ID: db, Repo: "/srv/app"}, {ID: ended, Repo: "/srv/app"}},
		"token:you": {{ID: other, Repo: "/srv/other"}},
	}
	listening := map[string][]uint16{web: {5173, 8000}, db: {}, other: {80}}
	p := &previewer{
		server: preview.New(preview.Config{
			Port: 7071, Log: slog.New(slog.DiscardHandler), Connect: func(context.Context, string, uint16) (net.Conn, error) { return nil, errors.ErrUnsupported },
			Has: func(by gate.Holder, id string) bool {
				return slices.ContainsFunc(open[by.Principal], func(o session.Open) bool { return o.ID == id })
			},
		}),
		open: func(principal string) []session.Open { return open[principal] },
		ports: func(_ context.Context, id string) ([]uint16, bool, error) {
			if id == ended {
				return nil, false, errors.New("no session")
			}
			return listening[id], false, nil
		},
		repos: map[string]string{"/srv/app": "app"},
	}
	ask := func(principal, query string, status int) links {
		t.Helper()
		got, data := p.answer(principal, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/previews"+query, http.NoBody))
		var l links
		if err := json.Unmarshal(data, &l); err != nil || got != status || l.Previews == nil {
			t.Fatalf("%s%s: %d %s, %v", principal, query, got, data, err)
		}
		return l
	}
	for _, c := range []struct {
		principal, query string
		want             []string // session and port
	}{
		{"token:me", "", []string{web + " 5173", web + " 8000"}},
		{"token:me", "?session=" + web + "&port=9000", []string{web + " 9000"}},
		{"token:me", "?port=9000", []string{web + " 9000", db + " 9000"}},
		{"token:me", "?session=" + other, nil},
		{"token:me", "?session=" + other + "&port=80", nil},
		{"token:nobody", "", nil},
	} {
		l := ask(c.principal, c.query, http.StatusOK)
		var got []string
		for _, one := range l.Previews {
			port := strings.TrimPrefix(strings.Split(one.URL, "-")[0], "http://p")
			got = append(got, one.Session+" "+port)
			if one.Repo != "app" || !strings.HasPrefix(one.URL, "http://p"+port+"-"+one.Session+".localhost:7071/") || one.Expires.IsZero() {
				t.Errorf("%+v", one)
			}
		}
		if !slices.Equal(got, c.want) || (l.Hint != "") != (got == nil) {
			t.Errorf("%s%s: %q, hint %q, want %q", c.principal, c.query, got, l.Hint, c.want)
		}
	}
	for _, query := range []string{"?port=0", "?port=x", "?port=65536", "?port="} {
		ask("token:me", query, http.StatusBadRequest)
	}
	for port := range uint16(60) {
		listening[web] = append(listening[web], 20_000+port)
	}
	if l := ask("token:me", "", http.StatusOK); len(l.Previews) != maxLinks || !l.More {
		t.Errorf("%d links, more %v", len(l.Previews), l.More)
	}
}

// TestHolds: whoever has logged in by a token stays logged in for as long as that is valid, also as the former one of a rotation, and not
// by another one of the same principal or as another principal.
func TestHolds(t *testing.T) {
	now := config.At(time.Now())
	hash := func(n byte) [32]byte { return [32]byte{n} }
	tokens := &tokens{
		after: time.Now().Add(time.Hour), log: slog.New(slog.DiscardHandler),
		now: config.Principals{
			{Name: "me", Hash: hash(1), Previous: hash(2), PreviousExpires: now + 1000, Tools: []string{"page"}},
			{Name: "late", Hash: hash(3), Expires: now - 1, Tools: []string{"operator"}},
			{Name: "rotated", Hash: hash(4), Previous: hash(5), PreviousExpires: now - 1, Tools: []string{"operator"}},
			{Name: "agent", Hash: hash(6)},
		},
	}
	for _, tt := range []struct {
		by         gate.Holder
		holds, may bool
	}{
		{gate.Holder{Principal: "token:me", Token: hash(1)}, true, true},
		{gate.Holder{Principal: "token:me", Token: hash(2)}, true, true},
		{gate.Holder{Principal: "token:me", Token: hash(4)}, false, false},
		{gate.Holder{Principal: "token:me", Token: hash(9)}, false, false},
		{gate.Holder{Principal: "token:me"}, false, false},
		{gate.Holder{Principal: "me", Token: hash(1)}, false, false},
		{gate.Holder{Principal: "token:late", Token: hash(3)}, false, false},
		{gate.Holder{Principal: "token:rotated", Token: hash(4)}, true, true},
		{gate.Holder{Principal: "token:rotated", Token: hash(5)}, false, false},
		{gate.Holder{Principal: "token:agent", Token: hash(6)}, true, false},
		{gate.Holder{Principal: "token:gone", Token: hash(1)}, false, false},
	} {
		_, holds := tokens.holds(tt.by)
		if _, may := tokens.accessOf(tt.by); holds != tt.holds || may != tt.may {
			t.Errorf("%s, token %x: %v, %v", tt.by.Principal, tt.by.Token[0], holds, may)
		}
	}
}
