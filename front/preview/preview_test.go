package preview

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"corral/internal/gate"
	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestPreview: a person opens a link, and sees what the server in the session serves, with its methods, bodies and queries.
func TestPreview(t *testing.T) {
	g := newStage(t, nil)
	link := g.link("me", mine, 8000)
	if want := fmt.Sprintf("http://p8000-%s.localhost:%d/.corral/open?token=", mine, g.port); !strings.HasPrefix(link, want) {
		t.Errorf("%s, want %s…", link, want)
	}
	r, err := g.browser().Get(link)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	set := r.Header.Get("Set-Cookie")
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/" || r.Header.Get("Cache-Control") != "no-store" ||
		r.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%s %q", r.Status, r.Header)
	}
	for _, want := range []string{"HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=43200"} {
		if !strings.Contains(set, want) || strings.Contains(strings.ToLower(set), "domain") {
			t.Errorf("cookie %q, want %s, no domain", set, want)
		}
	}
	cookie, _, _ := strings.Cut(set, ";")
	host := g.name(mine, 8000)
	for _, c := range []struct{ method, target, body string }{
		{"GET", "/", ""}, {"POST", "/a%2fb?x=1;y=%zz&&", "a body"}, {"GET", "//double", ""}, {"DELETE", "/.corral/other", ""},
	} {
		got := g.send(c.method, host, c.target, c.body, "Cookie: "+cookie, "Origin: http://"+host)
		if got.StatusCode != 200 || got.body != "app "+c.target+" "+c.body {
			t.Errorf("%+v: %s %q", c, got.Status, got.body)
		}
	}
	if r := g.requests(); r[0].Host != host {
		t.Errorf("the app sees the host %s", r[0].Host)
	}
}

// TestLinkRefused: a link is opened once, in time, at its own host, by GET.
func TestLinkRefused(t *testing.T) {
	g := newStage(t, nil)
	host := g.name(mine, 8000)
	used := g.link("me", mine, 8000)
	g.cookie(used)
	token := g.tokenOf(g.link("me", mine, 8000))
	open := openPath + "?token="
	for name, c := range map[string]struct {
		method, host, target string
		status               int
	}{
		"used":            {"GET", host, open + g.tokenOf(used), 403},
		"unknown":         {"GET", host, open + strings.Repeat("0", 64), 403},
		"empty":           {"GET", host, open, 403},
		"none":            {"GET", host, openPath, 403},
		"two":             {"GET", host, open + token + "&token=" + token, 403},
		"long":            {"GET", host, open + strings.Repeat("0", 60_000), 403},
		"another port":    {"GET", g.name(mine, 8001), open + token, 403},
		"another session": {"GET", g.name(theirs, 8000), open + token, 403},
		"HEAD":            {"HEAD", host, open + token, 405},
		"POST":            {"POST", host, open + token, 405},
	} {
		got := g.send(c.method, c.host, c.target, "")
		if got.StatusCode != c.status || got.Header.Get("Set-Cookie") != "" || got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %s %q", name, got.Status, got.Header)
		}
	}
	for _, next := range []string{"&next=//evil.example", "&next=https://evil.example/", "#//evil.example", "&url=%2f%2fevil.example"} {
		got := g.send("GET", host, open+g.tokenOf(g.link("me", mine, 8000))+next, "")
		if got.StatusCode != 303 || got.Header.Get("Location") != "/" {
			t.Errorf("%s redirects to %q", next, got.Header.Get("Location"))
		}
	}
	late := g.tokenOf(g.link("me", mine, 8000))
	g.mu.Lock()
	g.now = g.now.Add(linkTime)
	g.mu.Unlock()
	if got := g.send("GET", host, open+late, ""); got.StatusCode != 403 {
		t.Errorf("late: %s", got.Status)
	}
	if _, _, err := g.s.Link(gate.Holder{Principal: "me"}, theirs, 8000); err == nil {
		t.Error("a link to the session of another principal")
	}
	for _, session := range []string{"", "x", mine + "0", strings.ToUpper(mine), strings.Repeat(".", 32), "../" + mine[3:]} {
		if link, _, err := g.s.Link(gate.Holder{Principal: "me"}, session, 8000); err == nil {
			t.Errorf("%q: %s", session, link)
		}
	}
	if link, _, err := g.s.Link(gate.Holder{Principal: "me"}, mine, 0); err == nil {
		t.Error(link)
	}
	if n := len(g.requests()); n != 0 {
		t.Errorf("the app got %d requests", n)
	}
}

// TestAttacks: pages of other sites and other previews, programs that lie about names, and requests that are not what they seem get
// nothing of a preview: each is refused for its own reason, and the server in the session gets none.
func TestAttacks(t *testing.T) {
	g := newStage(t, nil)
	host, cookie := g.name(mine, 8000), g.cookie(g.link("me", mine, 8000))
	your := g.cookie(g.link("you", theirs, 8000))
	bare := place{mine, 8000}.host()
	if got := g.send("GET", host, "/", "", "Cookie: "+cookie); got.StatusCode != 200 {
		t.Fatalf("the control: %s", got.Status)
	}
	g.requests()
	for name, c := range map[string]struct {
		method, host string
		status       int
		headers      []string
	}{
		"no cookie":                         {"GET", host, 403, nil},
		"an invented cookie":                {"GET", host, 403, []string{cookieName + "=" + strings.Repeat("0", 64)}},
		"the cookie of another principal":   {"GET", host, 403, []string{your}},
		"the cookie of another port":        {"GET", g.name(mine, 8001), 403, []string{cookie}},
		"the cookie of another session":     {"GET", g.name(theirs, 8000), 403, []string{cookie}},
		"the link's token as cookie":        {"GET", host, 403, []string{cookieName + "=" + g.tokenOf(g.link("me", mine, 8000))}},
		"a cookie behind many others":       {"GET", host, 403, []string{strings.Repeat(cookieName+"=x; ", maxCookies) + cookie}},
		"a page of the API":                 {"GET", host, 403, []string{cookie, "Origin: http://localhost:7070"}},
		"a page of another preview":         {"GET", host, 403, []string{cookie, "Origin: http://" + g.name(theirs, 8000)}},
		"a page of another port":            {"GET", host, 403, []string{cookie, "Origin: http://" + g.name(mine, 8001)}},
		"a page of the same name elsewhere": {"GET", host, 403, []string{cookie, "Origin: http://" + bare + ":9999"}},
		"a page over https":                 {"GET", host, 403, []string{cookie, "Origin: https://" + host}},
		"a sandboxed page":                  {"GET", host, 403, []string{cookie, "Origin: null"}},
		"two origins":                       {"GET", host, 403, []string{cookie, "Origin: http://" + host, "Origin: http://evil.example"}},
		"a form of another site":            {"POST", host, 403, []string{cookie, "Origin: http://evil.example"}},
		"a script of another site":          {"GET", host, 403, []string{cookie, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"}},
		"a frame of another site":           {"GET", host, 403, []string{cookie, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}},
		"a form of another site, no Origin": {"POST", host, 403, []string{cookie, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}},
		"an image of another preview":       {"GET", host, 403, []string{cookie, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"}},
		"a WebSocket of another site":       {"GET", host, 403, []string{cookie, "Origin: http://evil.example", "Connection: Upgrade", "Upgrade: websocket"}},
		"a preflight of another site":       {"OPTIONS", host, 403, []string{cookie, "Origin: http://evil.example", "Access-Control-Request-Method: PUT"}},
		"DNS rebinding":                     {"GET", fmt.Sprintf("evil.example:%d", g.port), 421, []string{cookie}},
		"a name below":                      {"GET", "x." + host, 421, []string{cookie}},
		"a name above":                      {"GET", fmt.Sprintf("%s.evil.example:%d", bare, g.port), 421, []string{cookie}},
		"a final dot":                       {"GET", fmt.Sprintf("%s.:%d", bare, g.port), 421, []string{cookie}},
		"another port in Host":              {"GET", bare + ":7070", 421, []string{cookie}},
		"no port in Host":                   {"GET", bare, 421, []string{cookie}},
		"the host's loopback":               {"GET", g.address, 421, []string{cookie}},
		"localhost":                         {"GET", fmt.Sprintf("localhost:%d", g.port), 421, []string{cookie}},
		"a port with zeros":                 {"GET", fmt.Sprintf("p08000-%s.localhost:%d", mine, g.port), 421, []string{cookie}},
		"port 0":                            {"GET", fmt.Sprintf("p0-%s.localhost:%d", mine, g.port), 421, []string{cookie}},
		"a large port":                      {"GET", fmt.Sprintf("p73536-%s.localhost:%d", mine, g.port), 421, []string{cookie}},
		"an upgrade to h2c":                 {"GET", host, 400, []string{cookie, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"}},
		"an upgrade to two protocols":       {"GET", host, 400, []string{cookie, "Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c"}},
		"an upgrade in a list":              {"GET", host, 400, []string{cookie, "Connection: Upgrade", "Upgrade: websocket, h2c"}},
		"an upgrade by POST":                {"POST", host, 400, []string{cookie, "Connection: Upgrade", "Upgrade: websocket"}},
		"TRACE":                             {"TRACE", host, 405, []string{cookie}},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			for _, h := range c.headers {
				if !strings.Contains(h, ": ") {
					h = "Cookie: " + h
				}
				headers = append(headers, h)
			}
			got := g.send(c.method, c.host, "/", "", headers...)
			if got.StatusCode != c.status || got.Header.Get("Cache-Control") != "no-store" || got.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s %q %s", got.Status, got.Header, got.body)
			}
			if n := len(g.requests()); n != 0 {
				t.Errorf("the app got %d requests", n)
			}
		})
	}
	if got := g.send("GET", strings.ToUpper(bare)+fmt.Sprintf(":%d", g.port), "/", "", "Cookie: "+cookie,
		"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"); got.StatusCode != 200 {
		t.Errorf("a person who follows a link: %s", got.Status)
	}
	for _, d := range g.dialed {
		if d != mine+":8000" {
			t.Errorf("connected to %s", d)
		}
	}
}

// TestRawAttacks: requests with two meanings, and HTTP/2 without TLS.
func TestRawAttacks(t *testing.T) {
	g := newStage(t, nil)
	host, cookie := g.name(mine, 8000), g.cookie(g.link("me", mine, 8000))
	head := "Host: " + host + "\r\nCookie: " + cookie + "\r\n"
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, c := range map[string]struct {
		text     string
		statuses []int
	}{
		"two hosts":           {"GET / HTTP/1.1\r\n" + head + "Host: evil.example\r\n\r\n", []int{400}},
		"no host":             {"GET / HTTP/1.1\r\nCookie: " + cookie + "\r\n\r\n", []int{400}},
		"a host in the line":  {"GET http://evil.example/ HTTP/1.1\r\n" + head + "\r\n", []int{421}},
		"two lengths":         {"POST / HTTP/1.1\r\n" + head + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", []int{400}},
		"an unknown encoding": {"POST / HTTP/1.1\r\n" + head + "Transfer-Encoding: xchunked\r\nContent-Length: 4\r\n\r\nabcd", []int{400, 501}},
		"a space in a name":   {"POST / HTTP/1.1\r\n" + head + "Content-Length : 4\r\n\r\nabcd", []int{400}},
		"a folded header":     {"GET / HTTP/1.1\r\n" + head + "X: a\r\n Y: b\r\n\r\n", []int{400, 200}},
		"CONNECT":             {"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\nCookie: " + cookie + "\r\n\r\n", []int{421}},
		"CONNECT of a name":   {"CONNECT " + host + " HTTP/1.1\r\n" + head + "\r\n", []int{405}},
		"HTTP/2":              {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{400, 421, 505, 0}},
		"a body of two":       {"POST / HTTP/1.1\r\n" + head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, []int{400, 200}},
	} {
		got := g.raw(c.text)
		if !slices.Contains(c.statuses, got) {
			t.Errorf("%s: %d", name, got)
		}
		for _, r := range g.requests() {
			if r.URL.Path != "/" || r.Host != host {
				t.Errorf("%s: the app got %s of %s", name, r.URL, r.Host)
			}
		}
	}
}

// TestOtherUsers: browsers send the cookie of a preview to every port of its host name, where a server of another user can listen. It is of
// no use to that user, nor for a WebSocket.
func TestOtherUsers(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	g := newStage(t, nil)
	host, cookie := g.name(mine, 8000), g.cookie(g.link("me", mine, 8000))
	for _, c := range []struct{ user, status int }{{os.Getuid(), 200}, {54321, 403}} {
		for _, more := range []string{"", "Connection: Upgrade\r\nUpgrade: websocket\r\n"} {
			conn := sandboxtest.DialAs(t, c.user, g.address)
			if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n%s\r\n", host, cookie, more); err != nil {
				t.Fatal(err)
			}
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if seen := len(g.requests()); r.StatusCode != c.status || seen > 0 != (c.status == 200) {
				t.Errorf("user %d, %q: %s, the app got %d requests", c.user, more, r.Status, seen)
			}
		}
	}
}

// TestSecretsStay: the server in the session sees neither our cookie nor a token of the API nor that of a link.
func TestSecretsStay(t *testing.T) {
	g := newStage(t, nil)
	link := g.link("me", mine, 8000)
	host, cookie := g.name(mine, 8000), g.cookie(link)
	g.send("GET", host, "/", "", "Cookie: a=1; "+cookie+"; b=2", "Cookie: "+cookie, "Cookie: Corral-Preview=x;c=3",
		"Authorization: Bearer api-token", "Referer: "+link, "Proxy-Authorization: Basic x", "X-Forwarded-For: 8.8.8.8", "Forwarded: for=x")
	r := g.requests()[0]
	if got := fmt.Sprint(r.Header["Cookie"]); got != "[a=1; b=2 c=3]" {
		t.Errorf("cookies %s", got)
	}
	for _, name := range []string{"Authorization", "Referer", "Proxy-Authorization", "X-Forwarded-For", "Forwarded"} {
		if got := r.Header.Get(name); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if all := fmt.Sprint(r.Header, r.URL); strings.Contains(all, strings.TrimPrefix(cookie, cookieName+"=")) || strings.Contains(all, g.tokenOf(link)) {
		t.Errorf("a secret in %s", all)
	}
	g.send("GET", host, "/", "", "Cookie: "+cookie, "Authorization: Bearer of-the-app", "Referer: http://"+host+"/page")
	if r := g.requests()[0]; r.Header.Get("Authorization") != "Bearer of-the-app" || r.Header.Get("Referer") != "http://"+host+"/page" || r.Header["Cookie"] != nil {
		t.Errorf("%q", r.Header)
	}
}

// TestResponsesCleaned: what a server in a session sends applies to its own origin, and to no later time.
func TestResponsesCleaned(t *testing.T) {
	g := newStage(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range []string{
			"a=1; Domain=localhost; Path=/x", "b=2;domain=.localhost;HttpOnly", "c=3; \tDOMAIN = localhost ; Secure", "d=4; Domain", "e=domain=1",
			cookieName + "=mine", " Corral-Preview =mine; Path=/", "f",
		} {
			w.Header().Add("Set-Cookie", line)
		}
		w.Header().Set("Alt-Svc", `h2="evil.example:443"`)
		w.Header().Set("Clear-Site-Data", `"*"`)
		w.Header().Set("Strict-Transport-Security", "max-age=99999999; includeSubDomains")
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		w.Header().Set("X-App", "1")
	})
	got := g.send("GET", g.name(mine, 8000), "/", "", "Cookie: "+g.cookie(g.link("me", mine, 8000)))
	want := []string{"a=1; Path=/x", "b=2;HttpOnly", "c=3; Secure", "d=4", "e=domain=1", "f"}
	if lines := got.Header["Set-Cookie"]; !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
	for name, want := range map[string]string{
		"Alt-Svc": "", "Clear-Site-Data": "", "Strict-Transport-Security": "", "Cache-Control": "no-store", "X-App": "1",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		if value := got.Header.Get(name); value != want {
			t.Errorf("%s: %q, want %q", name, value, want)
		}
	}
}

// TestPagesConfined: a page loads from its own origin alone, and has no report sent elsewhere, whatever policy its server sends. What is
// sent before a response, and scripts that outlast the session, do not arrive.
func TestPagesConfined(t *testing.T) {
	own := []string{
		"img-src *", "default-src 'none'; report-uri http://evil.example/", " ;Report-To x;\tREPORT-URI\thttp://evil.example/ ;; font-src x , report-uri y,media-src z",
		"report-uri http://evil.example/",
	}
	g := newStage(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "<http://evil.example/>; rel=preload; as=image")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.Header()["Content-Security-Policy"] = own
		w.Header().Set("Content-Security-Policy-Report-Only", "img-src 'none'; report-uri http://evil.example/")
		w.Header().Set("Cross-Origin-Opener-Policy", "unsafe-none")
		w.WriteHeader(http.StatusAccepted)
	})
	host, cookie := g.name(mine, 8000), g.cookie(g.link("me", mine, 8000))
	hints := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { hints++; return nil }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", cookie)
	got, err := g.browser().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	if got.StatusCode != http.StatusAccepted || hints != 0 || got.Header.Get("Cross-Origin-Opener-Policy") != "same-origin" ||
		got.Header.Get("Content-Security-Policy-Report-Only") != "" || got.Header.Get("Link") != "" {
		t.Errorf("%s, %d informational, %q", got.Status, hints, got.Header)
	}
	policies := got.Header.Values("Content-Security-Policy")
	if n := len(policies) - 1; n < 0 || !slices.Equal(policies[:n], []string{"img-src *", "default-src 'none'", "font-src x", "media-src z"}) ||
		!strings.HasPrefix(policies[n], "default-src 'self' data: blob:") || !strings.Contains(policies[n], " ws://"+host+" ") {
		t.Errorf("%q", policies)
	}
	g.requests()
	for _, header := range []string{"Service-Worker: script", "Sec-Fetch-Dest: serviceworker"} {
		if got := g.send("GET", host, "/sw.js", "", "Cookie: "+cookie, "Sec-Fetch-Site: same-origin", header); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", header, got.Status)
		}
	}
	if r := g.requests(); len(r) != 0 {
		t.Errorf("the app got %d requests", len(r))
	}
	if got := g.send("GET", "localhost", "/", ""); !strings.HasPrefix(got.Header.Get("Content-Security-Policy"), "default-src 'none';") {
		t.Errorf("a page of the preview's own: %q", got.Header)
	}
}

// TestAfterwards: when the session has ended, when nobody listens, and when the cookie is old, a page says so.
func TestAfterwards(t *testing.T) {
	g := newStage(t, nil)
	host, cookie := g.name(mine, 8000), g.cookie(g.link("me", mine, 8000))
	other := g.cookie(g.link("me", mine, 9000))
	page := func(host, cookie string, status int, text string) {
		t.Helper()
		got := g.send("GET", host, "/", "", "Cookie: "+cookie)
		if got.StatusCode != status || !strings.Contains(got.body, text) {
			t.Errorf("%s %q, want %d, %q", got.Status, got.body, status, text)
		}
		if forgets := got.Header.Get("Clear-Site-Data") != ""; forgets != (status == http.StatusGone) {
			t.Errorf("%s: the browser keeps what pages have stored: %v", got.Status, !forgets)
		}
	}
	page(host, cookie, 200, "app")
	page(g.name(mine, 9000), other, 502, "Nothing listens at port 9000 of the session.")
	g.app.CloseClientConnections()
	g.mu.Lock()
	g.refuse = &job.Refusal{Step: "session", Message: "no session"}
	g.mu.Unlock()
	g.s.pool.CloseIdleConnections()
	page(host, cookie, 410, "The session has ended")
	g.mu.Lock()
	g.refuse = nil
	g.ended[mine] = true
	g.mu.Unlock()
	page(host, cookie, 410, "The session has ended")
	page(host, "a=b", 403, "A link can be opened once")
	g.mu.Lock()
	g.ended[mine] = false
	g.now = g.now.Add(grantTime)
	g.mu.Unlock()
	page(host, cookie, 403, "or long ago")
}

// TestAnsweredEarly: a response arrives whole that comes before the request has been sent, or as soon as it has.
func TestAnsweredEarly(t *testing.T) {
	early := strings.Repeat("early", 1000)
	g := newStage(t, func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		if r.URL.Path == "/late" {
			_, _ = io.ReadFull(r.Body, make([]byte, r.ContentLength))
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(early)))
		_, _ = io.WriteString(w, early)
	})
	host := g.name(mine, 8000)
	cookie := g.cookie(g.link("me", mine, 8000))
	c, err := net.Dial("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(sandboxtest.Slow(20 * time.Second))); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\nContent-Length: 100\r\n\r\nbegin", host, cookie); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r.Body); err != nil || string(b) != early {
		t.Errorf("before the body was sent: %d bytes, %v", len(b), err)
	}
	for range 100 {
		if got := g.send(http.MethodPost, host, "/late", "a=b", "Cookie: "+cookie); got.body != early {
			t.Fatalf("%d bytes", len(got.body))
		}
	}
}

// TestWebSocket: both directions of a WebSocket pass, as a server with hot reload needs, and end with the server.
func TestWebSocket(t *testing.T) {
	g := newStage(t, func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSet-Cookie: a=b; Domain=localhost\r\n\r\n", r.Header.Get("Upgrade"))
		line, _ := rw.ReadString('\n')
		_, _ = fmt.Fprintf(c, "echo %s", line)
	})
	c, read, r := g.upgrade(g.cookie(g.link("me", mine, 8000)))
	if r.StatusCode != http.StatusSwitchingProtocols || r.Header.Get("Set-Cookie") != "a=b" {
		t.Fatalf("%v", r)
	}
	_, _ = fmt.Fprint(c, "changed\n")
	if b, err := io.ReadAll(read); err != nil || string(b) != "echo changed\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// upgrade sends a request for a WebSocket, and returns the connection.
func (g *stage) upgrade(cookie string) (net.Conn, *bufio.Reader, *http.Response) {
	g.Helper()
	c, err := net.Dial("tcp", g.address)
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(sandboxtest.Slow(30 * time.Second)))
	_, _ = fmt.Fprintf(c, "GET /hmr HTTP/1.1\r\nHost: %s\r\nOrigin: http://%[1]s\r\nCookie: %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Key: x\r\n\r\n", g.name(mine, 8000), cookie)
	read := bufio.NewReader(c)
	r, err := http.ReadResponse(read, nil)
	if err != nil {
		g.Fatal(err)
	}
	return c, read, r
}

// TestOpenEnds: a WebSocket, and a response that goes on, end soon after the browser may see the preview no longer: the session is another's
// or its principal has no token any more, or the cookie is old.
func TestOpenEnds(t *testing.T) {
	for name, change := range map[string]func(g *stage){
		"revoked": func(g *stage) { g.revoked = map[[32]byte]bool{{}: true} }, "ended": func(g *stage) { g.ended[mine] = true },
		"an old cookie": func(g *stage) { g.now = g.now.Add(grantTime) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newStage(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Upgrade") == "" {
					_, _ = io.WriteString(w, "begun")
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
					return
				}
				c, rw, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_, _ = fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello\n")
				_, _ = rw.ReadString('\n') // until the other end closes
			})
			cookie := g.cookie(g.link("me", mine, 8000))
			_, socket, _ := g.upgrade(cookie)
			ctx, stop := context.WithTimeout(t.Context(), sandboxtest.Slow(30*time.Second))
			defer stop()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.name(mine, 8000), http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Cookie", cookie)
			response, err := g.browser().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			begun := make([]byte, 5)
			if _, err := io.ReadFull(response.Body, begun); err != nil || string(begun) != "begun" {
				t.Fatalf("%q, %v", begun, err)
			}
			g.mu.Lock()
			change(g)
			g.mu.Unlock()
			if b, err := io.ReadAll(socket); string(b) != "hello\n" || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the WebSocket: %q, %v", b, err)
			}
			if _, err := io.ReadAll(response.Body); errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the response: %v", err)
			}
		})
	}
}
