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
			Has: func(principal, id string) bool {
				return slices.ContainsFunc(open[principal], func(o session.Open) bool { return o.ID == id })
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

// TestPrincipalHasToken: previews of a principal end when it has no valid token any more.
func TestPrincipalHasToken(t *testing.T) {
	tokens := &tokens{
		after: time.Now().Add(time.Hour), log: slog.New(slog.DiscardHandler),
		now: config.Principals{{Name: "me"}, {Name: "late", Expires: config.At(time.Now()) - 1}},
	}
	for name, want := range map[string]bool{"token:me": true, "token:late": false, "token:gone": false, "me": false} {
		if got := tokens.has(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
