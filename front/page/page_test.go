package page

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
	"corral/job"
	"corral/store/audit"
)

// TestLogin: a link is exchanged for a cookie once, by the page itself, in time.
func TestLogin(t *testing.T) {
	g := newStage(t)
	login := func(token string, headers ...string) reply {
		return g.send("POST", "/api/login", fmt.Sprintf(`{"token":%q}`, token), headers...)
	}
	used := g.token("me")
	got := login(used, g.own("me")...)
	set := got.Header.Get("Set-Cookie")
	if got.StatusCode != 204 || !strings.HasPrefix(set, "__Host-corral-page=") {
		t.Fatalf("%s %q", got.Status, set)
	}
	for _, want := range []string{"HttpOnly", "Secure", "SameSite=Strict", "Path=/", "Max-Age=43200"} {
		if !strings.Contains(set, want) || strings.Contains(strings.ToLower(set), "domain") {
			t.Errorf("cookie %q, want %s and no domain", set, want)
		}
	}
	late := g.token("me")
	fresh := g.token("me")
	for name, c := range map[string]struct {
		token   string
		headers []string
		status  int
	}{
		"used":                 {used, g.own("me"), 403},
		"unknown":              {strings.Repeat("0", 64), g.own("me"), 403},
		"empty":                {"", g.own("me"), 403},
		"long":                 {strings.Repeat("0", 600), g.own("me"), 400},
		"longer than a body":   {strings.Repeat("0", 60_000), g.own("me"), 400},
		"another site":         {fresh, []string{"Sec-Fetch-Site: cross-site", "Origin: http://evil.example"}, 403},
		"another port":         {fresh, []string{"Sec-Fetch-Site: same-site", "Origin: http://localhost:1"}, 403},
		"no Origin":            {fresh, []string{"Sec-Fetch-Site: same-origin"}, 403},
		"no Sec-Fetch-Site":    {fresh, []string{"Origin: http://" + g.host("me")}, 403},
		"a false Origin":       {fresh, []string{"Sec-Fetch-Site: same-origin", "Origin: http://evil.example"}, 403},
		"Origin of another's":  {fresh, []string{"Sec-Fetch-Site: same-origin", "Origin: null"}, 403},
		"a cookie as a token":  {strings.TrimPrefix(strings.Split(set, ";")[0], "__Host-corral-page="), g.own("me"), 403},
		"two values of Origin": {fresh, append(g.own("me"), "Origin: http://evil.example"), 403},
	} {
		if got := login(c.token, c.headers...); got.StatusCode != c.status || got.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %s %q", name, got.Status, got.Header)
		}
	}
	if got := login(fresh, g.own("me")...); got.StatusCode != 204 {
		t.Errorf("refused requests have used the link up: %s", got.Status)
	}
	g.change(func() { g.now = g.now.Add(linkTime) })
	if got := login(late, g.own("me")...); got.StatusCode != 403 {
		t.Errorf("late: %s", got.Status)
	}
	if got := g.send("GET", "/api/login?token="+g.token("me"), "", g.own("me")...); got.StatusCode != 405 {
		t.Errorf("GET: %s", got.Status)
	}
	if link, _, err := g.s.Link(by("none")); err == nil {
		t.Errorf("a principal without the right got %s", link)
	}
}

// TestHost: another host name gets nothing, whatever the browser sends with it. The name differs for each server.
func TestHost(t *testing.T) {
	g := newStage(t)
	p := g.person("me")
	if got := p.get("/api/me"); got.StatusCode != 200 {
		t.Fatalf("the control: %s", got.Status)
	}
	_, port, _ := net.SplitHostPort(g.address)
	bare := strings.TrimSuffix(g.host("me"), ":"+port)
	for _, host := range []string{
		"evil.example:" + port, g.address, "localhost:" + port, bare, bare + ":1", "x." + g.host("me"), bare + ".:" + port, bare + ".evil.example:" + port, "page-0000000000000000.localhost:" + port,
	} {
		for _, target := range []string{"/", "/page.js", "/api/me", "/api/login", "/nothing"} {
			if got := p.send("GET", target, "", p.headers("Host: "+host)...); got.StatusCode != 421 || got.Header.Get("Set-Cookie") != "" {
				t.Errorf("%s%s: %s", host, target, got.Status)
			}
		}
	}
	if host := g.host("me"); New(g.s.c).hosts.of("me", g.s.c.Port) == host || g.host("you") == host {
		t.Error("two servers, or two principals, have one name")
	}
}

// TestHostOfAnother: a principal learns no name to which a browser sends the cookie of another one, and nobody can have a browser log in
// as another principal in place of the one that it is: neither a cookie nor a link is valid at the name of another.
func TestHostOfAnother(t *testing.T) {
	g := newStage(t)
	p, other := g.person("op"), g.person("me")
	if p.host("op") == other.host("me") {
		t.Fatal("one name")
	}
	for _, target := range []string{"/api/me", "/api/events", "/api/audit", "/api/history"} {
		if got := g.send("GET", target, "", append(g.own("me"), p.cookie)...); got.StatusCode != 401 {
			t.Errorf("the cookie of an operator at another's name: %s: %s", target, got.Status)
		}
	}
	token := g.token("me")
	login := func(at string) int {
		return g.send("POST", "/api/login", fmt.Sprintf(`{"token":%q}`, token), g.own(at)...).StatusCode
	}
	if got := login("op"); got != 403 {
		t.Errorf("a link at another's name: %d", got)
	}
	for range 2 * burst() { // cost another principal nothing
		login("op")
	}
	if got := login("me"); got != 204 {
		t.Errorf("at its own name: %d", got)
	}
}

// TestForged: requests of other pages, and of browsers that have not logged in, get nothing and end no job.
func TestForged(t *testing.T) {
	g := newStage(t)
	me, you := g.person("me"), g.person("you")
	origin := "Origin: http://" + g.host("me")
	same := "Sec-Fetch-Site: same-origin"
	for name, c := range map[string]struct {
		method  string
		headers []string
		status  int
	}{
		"no cookie":                      {"GET", []string{same}, 401},
		"an invented cookie":             {"GET", []string{same, "Cookie: " + cookieName + "=" + strings.Repeat("0", 64)}, 401},
		"a cookie without the prefix":    {"GET", []string{same, strings.Replace(me.cookie, "__Host-", "", 1)}, 401},
		"a cookie behind many others":    {"GET", []string{same, "Cookie: " + strings.Repeat(cookieName+"=x; ", maxCookies) + strings.TrimPrefix(me.cookie, "Cookie: ")}, 401},
		"a link's token as a cookie":     {"GET", []string{same, "Cookie: " + cookieName + "=" + g.token("me")}, 401},
		"a script of another site":       {"GET", []string{"Sec-Fetch-Site: cross-site", me.cookie}, 403},
		"a page of another port":         {"GET", []string{"Sec-Fetch-Site: same-site", me.cookie}, 403},
		"a person who opens the address": {"GET", []string{"Sec-Fetch-Site: none", me.cookie}, 403},
		"nothing of where it comes from": {"GET", []string{me.cookie}, 403},
		"two values":                     {"GET", []string{same, "Sec-Fetch-Site: none", me.cookie}, 403},
		"an Origin of another site":      {"GET", []string{same, "Origin: http://evil.example", me.cookie}, 403},
		"a sandboxed page":               {"GET", []string{same, "Origin: null", me.cookie}, 403},
		"a form of another site":         {"POST", []string{"Sec-Fetch-Site: cross-site", "Origin: http://evil.example", me.cookie, tokenHeader + ": " + me.token}, 403},
		"no token":                       {"POST", []string{same, origin, me.cookie}, 403},
		"another person's token":         {"POST", []string{same, origin, me.cookie, tokenHeader + ": " + you.token}, 403},
		"no Origin":                      {"POST", []string{same, me.cookie, tokenHeader + ": " + me.token}, 403},
		"the cookie as the token":        {"POST", []string{same, origin, me.cookie, tokenHeader + ": " + strings.SplitN(me.cookie, "=", 2)[1]}, 403},
	} {
		targets := []string{"/api/me", "/api/events", "/api/jobs/job-mine", "/api/jobs/job-mine/output", "/api/history", "/api/history/of-me", "/api/history/of-me/stdout", "/api/audit"}
		if c.method == "POST" {
			targets = []string{"/api/jobs/job-mine/end", "/api/logout"}
		}
		for _, target := range targets {
			if got := g.send(c.method, target, "", c.headers...); got.StatusCode != c.status || got.Header.Get("Access-Control-Allow-Origin") != "" || strings.Contains(got.body, "job-mine") {
				t.Errorf("%s: %s %s: %s %s", name, c.method, target, got.Status, got.body)
			}
		}
	}
	for _, c := range []struct{ method, target string }{{"GET", "/api/jobs/job-mine/end"}, {"PUT", "/api/jobs/job-mine/end"}, {"OPTIONS", "/api/jobs/job-mine/end"}, {"POST", "/api/jobs/job-mine"}, {"GET", "/api/logout"}} {
		if got := g.send(c.method, c.target, "", me.headers(tokenHeader+": "+me.token)...); got.StatusCode != 405 {
			t.Errorf("%s %s: %s", c.method, c.target, got.Status)
		}
	}
	if len(g.killed) != 0 {
		t.Errorf("ended %q", g.killed)
	}
	if got := me.get("/api/me"); got.StatusCode != 200 {
		t.Errorf("logged out: %s", got.Status)
	}
}

// TestPrincipals: a principal sees and ends its own jobs, and an operator all. A job of another looks as if there were none.
func TestPrincipals(t *testing.T) {
	g := newStage(t)
	for principal, sees := range map[string][]string{"me": {"job-mine"}, "you": {"job-yours"}, "op": {"job-mine", "job-yours", "job-other"}} {
		p := g.person(principal)
		f := p.feed("/api/events")
		text := f.until(t, "\n\n")
		f.stop()
		none := p.get("/api/jobs/job-none")
		for _, id := range []string{"job-mine", "job-yours", "job-other"} {
			want := strings.Contains(strings.Join(sees, " "), id)
			if strings.Contains(text, id) != want {
				t.Errorf("%s is told %s", principal, text)
			}
			if want {
				if got := p.get("/api/jobs/" + id); got.StatusCode != 200 {
					t.Errorf("%s, %s: %s %s", principal, id, got.Status, got.body)
				}
				if got := p.post("/api/jobs/" + id + "/end"); got.StatusCode != 204 {
					t.Errorf("%s cannot end %s: %s %s", principal, id, got.Status, got.body)
				}
				continue
			}
			for _, got := range []reply{p.get("/api/jobs/" + id), p.get("/api/jobs/" + id + "/output"), p.post("/api/jobs/" + id + "/end")} {
				if got.StatusCode != 404 || got.body != none.body {
					t.Errorf("%s, %s: %s %s", principal, id, got.Status, got.body)
				}
			}
		}
	}
	slices.Sort(g.killed)
	if want := []string{"job-mine", "job-mine", "job-other", "job-yours", "job-yours"}; !slices.Equal(g.killed, want) {
		t.Errorf("ended %q, want %q", g.killed, want)
	}
}

// TestStored: stored output is shown to those who may read it: of a principal, in its repositories.
func TestStored(t *testing.T) {
	g := newStage(t)
	for principal, want := range map[string][]string{"me": {"of-me"}, "you": {"of-you"}, "op": {"of-me", "of-me-elsewhere", "of-you"}} {
		p := g.person(principal)
		var list struct{ Jobs []endedView }
		if err := json.Unmarshal([]byte(p.get("/api/history").body), &list); err != nil || len(list.Jobs) != len(want) {
			t.Fatalf("%s: %+v, %v", principal, list, err)
		}
		for _, handle := range []string{"of-me", "of-me-elsewhere", "of-you", "..%2f..%2fetc%2fpasswd"} {
			status := 404
			for _, w := range want {
				if w == handle {
					status = 200
				}
			}
			for _, target := range []string{"/api/history/" + handle, "/api/history/" + handle + "/stdout"} {
				if got := p.get(target); got.StatusCode != status {
					t.Errorf("%s, %s: %s", principal, target, got.Status)
				}
			}
		}
	}
	p := g.person("me")
	var out outputView
	got := p.get("/api/history/of-me/stdout")
	if err := json.Unmarshal([]byte(got.body), &out); err != nil || !strings.HasPrefix(out.Text, "a line\n") || out.Lost == 0 || len(out.Text) > 2*maxOutput {
		t.Errorf("%v, %d bytes lost, %d shown", err, out.Lost, len(out.Text))
	}
	if got := p.get("/api/history/of-me/manifest"); got.StatusCode != 404 {
		t.Errorf("another file: %s", got.Status)
	}
}

// TestTexts: texts that jobs and clients chose arrive with nothing that is not printable, and never as HTML: responses are JSON, which
// browsers neither render nor run.
func TestTexts(t *testing.T) {
	g := newStage(t)
	g.output = hostile + "\n" + strings.Repeat("é", 10) + "\xff\xc3"
	p := g.person("op")
	f := p.feed("/api/jobs/job-mine/output")
	output := f.until(t, "xff")
	e := p.feed("/api/events")
	for name, c := range map[string]struct{ body, media string }{
		"output": {output, f.Header.Get("Content-Type")}, "events": {e.until(t, "job-mine"), e.Header.Get("Content-Type")},
		"job": {p.get("/api/jobs/job-mine").body, ""}, "history": {p.get("/api/history").body, ""}, "ended": {p.get("/api/history/of-me").body, ""},
		"stored": {p.get("/api/history/of-me/stdout").body, ""},
	} {
		if strings.ContainsAny(c.body, "<>\x1b\a\u202e") || strings.ContainsFunc(strings.ReplaceAll(c.body, "\n", ""), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: %.300q", name, c.body)
		}
		if !strings.Contains(c.body, `script`) {
			t.Errorf("%s has no text: %.300s", name, c.body)
		}
		if c.media != "" && c.media != "text/event-stream" {
			t.Errorf("%s is %s", name, c.media)
		}
	}
	if !strings.Contains(output, `"lost":10`) || !strings.Contains(output, `\\x1b]0;evil\\a`) {
		t.Errorf("%s", output)
	}
}

// TestHeaders: every response has the policies, and no file of the page has a script or a style in it.
func TestHeaders(t *testing.T) {
	g := newStage(t)
	p := g.person("me")
	for _, target := range []string{"/", "/page.js", "/page.css", "/icon.svg", "/api/me", "/api/history", "/nothing", "/api/nothing", "/page.html"} {
		got := p.get(target)
		policy := got.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") || len(got.Header.Values("Content-Security-Policy")) != 1 {
				t.Errorf("%s: %q has no %s", target, policy, want)
			}
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store", "X-Frame-Options": "DENY",
		} {
			if got.Header.Get(name) != want {
				t.Errorf("%s: %s is %q", target, name, got.Header.Get(name))
			}
		}
	}
	html := g.send("GET", "/", "").body
	for _, no := range []string{"<style", "style=", "onclick", "onload", "javascript:", "http://", "https://"} {
		if strings.Contains(html, no) {
			t.Errorf("page.html has %s", no)
		}
	}
	script := g.send("GET", "/page.js", "").body
	for _, no := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "localStorage", "https://"} {
		if strings.Contains(script, no) {
			t.Errorf("page.js has %s", no)
		}
	}
}

// TestEnds: a person is logged out by themselves, when they do nothing, after twelve hours, and with the right of the principal, whose
// streams end, too. A stream keeps nobody logged in.
func TestEnds(t *testing.T) {
	g := newStage(t)
	p := g.person("me")
	if got := p.post("/api/logout"); got.StatusCode != 204 || p.get("/api/me").StatusCode != 401 {
		t.Errorf("logged out: %s", got.Status)
	}
	p = g.person("me")
	f := p.feed("/api/events")
	f.until(t, "job-mine")
	g.change(func() { g.now = g.now.Add(idleTime) })
	f.until(t, "event: end")
	if got := p.get("/api/me"); got.StatusCode != 401 {
		t.Errorf("after an idle hour: %s", got.Status)
	}
	p = g.person("me")
	f = p.feed("/api/events")
	f.until(t, "job-mine")
	g.change(func() { g.revoked = map[[32]byte]bool{by("me").Token: true} })
	f.until(t, "event: end")
	if got := p.get("/api/me"); got.StatusCode != 401 {
		t.Errorf("after the token was revoked: %s", got.Status)
	}
	g.change(func() { g.revoked = nil })
	p = g.person("me")
	for range int(cookieTime/(idleTime-time.Minute)) + 1 {
		g.change(func() { g.now = g.now.Add(idleTime - time.Minute) })
		p.get("/api/me")
	}
	if got := p.get("/api/me"); got.StatusCode != 401 {
		t.Errorf("after its life: %s", got.Status)
	}
	p, op := g.person("me"), g.person("op")
	f, all := p.feed("/api/events"), op.feed("/api/events")
	f.until(t, "job-mine")
	all.until(t, "job-other")
	g.change(func() { delete(g.access, "me"); g.access["op"] = Access{} })
	f.until(t, "event: end")
	all.until(t, "event: end")
	if got := p.get("/api/me"); got.StatusCode != 401 {
		t.Errorf("without the right: %s", got.Status)
	}
}

// TestAudit: operators search the newest records; others, and queries that say nothing valid, are refused.
func TestAudit(t *testing.T) {
	g := newStage(t)
	g.audit = t.TempDir() + "/audit"
	log, err := audit.Open(g.audit, audit.Options{Instance: "main", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for n := range maxRecords + 50 {
		if err := log.Denied(audit.Who{Instance: "main", Peer: 1000}, job.Claim{Tool: "run", Principal: fmt.Sprintf("token:%d", n), Request: fmt.Sprintf("%032x", n), Reason: hostile}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	op := g.person("op")
	search := func(q string) (found []recordView) {
		t.Helper()
		var a struct {
			Records []recordView
			Whole   bool
		}
		got := op.get("/api/audit" + q)
		if err := json.Unmarshal([]byte(got.body), &a); err != nil || got.StatusCode != 200 || !a.Whole {
			t.Fatalf("%s: %s %s", q, got.Status, got.body)
		}
		if strings.ContainsAny(got.body, "<>\x1b\u202e") {
			t.Errorf("%s: %.300s", q, got.body)
		}
		return a.Records
	}
	all := search("")
	if len(all) != maxRecords || all[0].Seq < all[1].Seq || all[0].Event != "denied" || !strings.Contains(all[0].Text, "claimed.principal=token:249") {
		t.Fatalf("%d, %+v", len(all), all[0])
	}
	for q, want := range map[string]int{
		"?principal=token:7": 1, "?request=00000000000000000000000000000007": 1, "?request=7": 0, "?principal=token:none": 0, "?outcome=denied&tool=run": maxRecords, "?outcome=success": 0, "?text=TOKEN:123": 1, "?since=1h": 0, "?user=0": 0,
	} {
		if got := search(q); len(got) != want {
			t.Errorf("%s: %d records, want %d", q, len(got), want)
		}
	}
	for _, q := range []string{"?outcome=x", "?since=x", "?user=no-such-user", "?text=a&text=b", "?text=" + strings.Repeat("x", maxField+1)} {
		if got := op.get("/api/audit" + q); got.StatusCode != 400 {
			t.Errorf("%.20s: %s %s", q, got.Status, got.body)
		}
	}
	if got := g.person("me").get("/api/audit"); got.StatusCode != 403 || strings.Contains(got.body, "token:") {
		t.Errorf("another principal: %s %s", got.Status, got.body)
	}
	g.change(func() { g.audit = "" })
	if got := op.get("/api/audit"); got.StatusCode != 502 {
		t.Errorf("without a log: %s", got.Status)
	}
}

// TestSessionsAndDenials: a principal is told of its own sessions and denied requests, and an operator of all, in text that is safe to show.
func TestSessionsAndDenials(t *testing.T) {
	g := newStage(t)
	for principal, sees := range map[string]string{"me": "session-mine cwd-mine", "you": "job-refused", "op": "session-mine session-yours job-refused cwd-mine"} {
		p := g.person(principal)
		text := ""
		for _, target := range []string{"/api/sessions", "/api/denied"} {
			got := p.get(target)
			if text += got.body; got.StatusCode != 200 || strings.ContainsAny(got.body, "<>\x1b\u202e") {
				t.Errorf("%s: %s: %s %s", principal, target, got.Status, got.body)
			}
		}
		for _, one := range []string{"session-mine", "session-yours", "job-refused", "cwd-mine"} {
			if strings.Contains(text, one) != strings.Contains(sees, one) {
				t.Errorf("%s, %s: %s", principal, one, text)
			}
		}
	}
}

// TestCommand: the command of a job is told to those who see the job: its beginning in a list, more of it with the job. The first event of a
// stream has the samples until then, and no other has any.
func TestCommand(t *testing.T) {
	g := newStage(t)
	g.change(func() { g.jobs[0].Command = strings.Repeat("x", maxLine) + "yz" })
	p := g.person("me")
	f := p.feed("/api/events")
	first := f.until(t, "\n\n")
	if strings.Count(first, "x") < maxName || strings.Contains(first, strings.Repeat("x", maxName+1)) || !strings.Contains(first, `"samples":{"job-mine":[`) {
		t.Errorf("the first event: %s", first)
	}
	if next := f.until(t, "\n\n"); strings.Contains(next, `"samples"`) || !strings.Contains(next, "xxx") {
		t.Errorf("the next event: %s", next)
	}
	if got := p.get("/api/jobs/job-mine"); !strings.Contains(got.body, `"command":"`+strings.Repeat("x", maxLine)+"…") {
		t.Errorf("the job: %.100s", got.body)
	}
	if got := g.person("you").get("/api/jobs/job-mine"); strings.Contains(got.body, "xxx") {
		t.Errorf("another principal: %s", got.body)
	}
}

// TestManyStreams: of 1,000 streams, those within the bounds are served, the others are refused, and the page answers meanwhile. Streams
// of clients that do not read hold up nothing.
func TestManyStreams(t *testing.T) {
	g := newStage(t)
	g.change(func() { // a list that fills the buffers of a client that does not read
		for n := range maxJobs {
			g.jobs = append(g.jobs, wire.Entry{Job: fmt.Sprintf("job-%d", n), Repo: strings.Repeat("x", 4000), Tool: strings.Repeat("y", 200), Principal: "me"})
		}
	})
	people := []*person{g.person("me"), g.person("you"), g.person("op")}
	var wg sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for n := range 1000 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			ctx, stop := context.WithCancel(t.Context())
			t.Cleanup(stop)
			p := people[n%len(people)]
			r, err := p.client().Do(p.request(ctx, "GET", "/api/events", "", p.headers()...))
			mu.Lock()
			defer mu.Unlock()
			if err != nil { // its connection made room for another
				statuses[0]++
				return
			}
			t.Cleanup(func() { r.Body.Close() })
			statuses[r.StatusCode]++
		}()
	}
	wg.Wait()
	if statuses[200] == 0 || statuses[200] > maxStreamsEach*len(people) || statuses[200]+statuses[503]+statuses[0] != 1000 {
		t.Errorf("%v", statuses)
	}
	g.change(func() { g.now = g.now.Add(time.Minute) }) // requests are bounded, too
	if got := g.send("GET", "/", ""); got.StatusCode != 200 {
		t.Errorf("the page: %s", got.Status)
	}
	if got := people[0].get("/api/history"); got.StatusCode != 200 {
		t.Errorf("a request: %s %s", got.Status, got.body)
	}
}

// TestRate: a principal sends no more requests than it may, which costs others nothing.
func TestRate(t *testing.T) {
	g := newStage(t)
	me, you := g.person("me"), g.person("you")
	statuses := map[int]int{}
	for range 2 * burst() {
		statuses[me.get("/api/me").StatusCode]++
	}
	if statuses[200] >= burst() || statuses[503] < burst() || statuses[200]+statuses[503] != 2*burst() {
		t.Errorf("%v", statuses)
	}
	if got := you.get("/api/me"); got.StatusCode != 200 {
		t.Errorf("another principal: %s", got.Status)
	}
	g.change(func() { g.now = g.now.Add(time.Second) })
	if got := me.get("/api/me"); got.StatusCode != 200 {
		t.Errorf("a second later: %s", got.Status)
	}
}

// TestTail: all that look at a job's output share one follower, which ends with the last of them; what is kept is bounded, and who comes
// late is told what is missing. A character is never split.
func TestTail(t *testing.T) {
	g := newStage(t)
	one, leave := g.s.tails.use("handle")
	two, leaveToo := g.s.tails.use("handle")
	if one != two {
		t.Error("two followers")
	}
	g.change(func() { g.output = "" })
	big := strings.Repeat("0123456789", maxKept/5)
	if n, err := io.WriteString(one, big); n != len(big) || err != nil {
		t.Fatal(n, err)
	}
	sandboxtest.Eventually(t, time.Minute, "the follower has said what it skipped", func() bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		return one.from >= int64(len(big)-maxKept+10)
	})
	p, from, ended, news, _ := one.next(0)
	if len(p) != maxKept || from != int64(len(big)-maxKept+10) || ended {
		t.Errorf("%d bytes from %d, %v", len(p), from, ended)
	}
	at := from + int64(len(p))
	_, _ = io.WriteString(one, "a\xe2\x82")
	<-news
	if p, from, _, _, _ = one.next(at); string(p) != "a" || from != at {
		t.Errorf("%q from %d", p, from)
	}
	_, _ = io.WriteString(one, "\xac")
	if p, _, _, _, _ = one.next(at + 1); string(p) != "€" {
		t.Errorf("%q", p)
	}
	leave()
	leaveToo()
	sandboxtest.Eventually(t, time.Minute, "the follower has ended", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.follows == 0
	})
	if len(g.s.tails.open) != 0 {
		t.Errorf("%v", g.s.tails.open)
	}
}

// TestLastBytes: the end of what was written is kept, in whatever pieces.
func TestLastBytes(t *testing.T) {
	all := strings.Repeat("0123456789abcde\n", maxOutput/4)
	for _, piece := range []int{1 << 10, 100_003, maxOutput, maxOutput + 1, len(all)} {
		var l lastBytes
		for rest := all; rest != ""; rest = rest[min(piece, len(rest)):] {
			p := rest[:min(piece, len(rest))]
			if n, err := l.Write([]byte(p)); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		shown, left := l.lines()
		if !strings.HasSuffix(all, shown) || !strings.HasPrefix(shown, "0123") || int64(len(shown))+left != int64(len(all)) || len(shown) < maxOutput-16 || len(l.kept) > 2*maxOutput {
			t.Errorf("pieces of %d: %d bytes, %d left", piece, len(shown), left)
		}
	}
	short := lastBytes{}
	_, _ = short.Write([]byte("no newline"))
	if shown, left := short.lines(); shown != "no newline" || left != 0 {
		t.Errorf("%q, %d", shown, left)
	}
}
