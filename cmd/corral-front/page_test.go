package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"corral/internal/config"
	"corral/internal/test/mcptest"
	"corral/internal/test/sandboxtest"
)

// pageLink returns a link to the page, for a principal.
func (w *web) pageLink(token string) string {
	w.t.Helper()
	code, text := mcptest.Fetch(w.t, http.MethodPost, strings.TrimSuffix(w.url, "/mcp")+"/page", token)
	var link struct{ URL string }
	if err := json.Unmarshal([]byte(text), &link); err != nil || code != http.StatusOK {
		w.t.Fatalf("%d %s %v", code, text, err)
	}
	return link.URL
}

// do has the browser do something.
func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, sandboxtest.Slow(tabPatience))
	defer stop()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// look sets the size of the window and the colors that the person prefers.
func (b *browser) look(width int64, colors string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, 900), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colors}},
		})
		return err
	}))
}

// looks checks that a view fits into narrow and wide windows, and is legible in both colors. With PAGE_PICTURES, it writes pictures
// of all four to that directory.
func (b *browser) looks(view string) {
	b.t.Helper()
	for _, width := range []int64{360, 1280} {
		for _, colors := range []string{"light", "dark"} {
			b.look(width, colors)
			b.wait("String(document.documentElement.scrollWidth <= innerWidth)", "true")
			b.wait("String("+contrast+")", "true")
			dir := os.Getenv("PAGE_PICTURES")
			if dir == "" {
				continue
			}
			ctx, stop := context.WithTimeout(b.ctx, sandboxtest.Slow(tabPatience))
			defer stop()
			png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", view, width, colors)), png, 0o644)
			}
			if err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// contrast is whether text has a contrast of at least 4.5 with the ground, as WCAG 2.1 (1.4.3) asks for.
const contrast = `(() => {
	const light = (c) => {
		const [r, g, b] = c.match(/[\d.]+/g).slice(0, 3).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 });
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const ground = (e) => {
		for (; e; e = e.parentElement) {
			const c = getComputedStyle(e).backgroundColor;
			if (!/, 0\)$/.test(c)) return c;
		}
		return 'rgb(255, 255, 255)';
	};
	const texts = document.evaluate('//body//text()[normalize-space()]', document, null, XPathResult.ORDERED_NODE_SNAPSHOT_TYPE, null);
	for (let n = 0; n < texts.snapshotLength; n++) {
		const e = texts.snapshotItem(n).parentElement;
		if (!e.checkVisibility() || e instanceof SVGElement || e.closest('button:disabled')) continue;
		const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
		if ((a + 0.05) / (b + 0.05) < 4.5) return e.outerHTML;
	}
	return true;
})()`

// noisy writes what would run in a page that took it for HTML, uses a CPU now and then, and runs on.
const noisy = `printf '%s\n' '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>' 'grüße, 日本'
while :; do i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; date +tick-%s; sleep 0.4; done`

// TestPageInBrowser: a person logs in by a link, looks at a running job and its output, ends it with the keyboard, and sees what is stored
// of it. What a job writes is text. All views fit into windows of 360 and 1280 pixels, and are legible in light and dark.
func TestPageInBrowser(t *testing.T) {
	needBrowser(t)
	p, d := newPlace(t), daemon(t)
	token, hash := config.NewToken()
	w := p.webAt(t, d, p.config(t, fmt.Sprintf("principals:\n  - {name: a, token_sha256: \"%x\", tools: [agent, operator]}\n", hash)), "--page", "localhost:0")
	_, session, _ := w.post(token, "", hello)
	b := newBrowser(t)
	link := w.pageLink(token)
	b.open(link)
	const title = "document.querySelector('h1')?.textContent"
	b.wait(title, "Running jobs")
	b.wait("location.hash + document.cookie", "")
	b.wait("document.querySelector('.empty strong')?.textContent", "Nothing runs")
	b.looks("nothing")
	w.call(token, session, "run", `{"code": "echo wrong >&2; exit 3"}`)
	w.run(token, session, noisy, true)
	b.wait("document.querySelectorAll('tr[data-job]').length", "1")
	b.wait("document.querySelector('tr[data-job]').textContent.includes('token:a')", "true")
	b.wait("document.querySelector('tr[data-job] code.command').textContent.includes('/tmp/job/')", "true")
	b.wait("document.querySelectorAll('tr[data-job] .spark path.stroke').length", "2")
	b.do(chromedp.Focus("#filter"), chromedp.SendKeys("#filter", "NO such job"))
	b.wait("document.querySelector('.count').textContent + document.querySelectorAll('tbody tr:not([hidden])').length", "0 of 1 job0")
	b.click("document.getElementById('filter').value = ''; document.getElementById('filter').dispatchEvent(new Event('input'))")
	b.wait("document.querySelector('.count').textContent + document.querySelectorAll('tbody tr:not([hidden])').length", "1 job1")
	b.looks("jobs")
	b.click("document.querySelector('nav [data-view=sessions]').click()")
	b.wait("document.querySelector('h1').textContent + document.querySelectorAll('tbody tr').length", "Sessions1")
	b.wait("document.querySelector('td.first code').textContent.length + document.querySelector('.badge').textContent", "321 job")
	b.looks("sessions")
	b.click("document.querySelector('nav [data-view=jobs]').click()")
	b.wait("document.querySelectorAll('tr[data-job]').length", "1")
	b.do(chromedp.Focus("td.first a"), chromedp.KeyEvent("\r"))
	b.wait("document.querySelector('.badge')?.textContent", "running")
	b.wait("document.querySelector('pre').textContent.includes('onerror=\"window.hacked=1\"') && document.querySelector('pre').textContent.includes('grüße, 日本')", "true")
	b.wait("document.querySelectorAll('.curve path.stroke').length", "2")
	b.wait("(document.querySelector('.curve.cpu path.stroke').getAttribute('d').match(/L/g) || []).length > 3", "true")
	b.wait("document.querySelector('pre img, pre script') === null && window.hacked === undefined", "true")
	b.looks("job")
	b.do(chromedp.Focus("#end"), chromedp.KeyEvent("\r"))
	b.wait("document.getElementById('confirm').open && document.activeElement.id", "confirm-no")
	b.looks("confirm")
	b.do(chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r"))
	b.wait("location.hash.startsWith('#/ended/') && document.querySelector('.badge')?.textContent", "cancelled")
	b.wait("document.querySelector('pre').textContent.includes('grüße, 日本') && document.querySelectorAll('.life li').length", "5")
	b.wait("document.querySelectorAll('.curve path.stroke').length", "2")
	b.looks("ended")
	b.do(chromedp.Navigate("http://" + strings.Split(link, "/")[2] + "/#/history"))
	b.wait("document.querySelectorAll('tbody tr').length", "2")
	b.wait("[...document.querySelectorAll('.badge')].map((e) => e.textContent).join()", "cancelled,exit 3")
	b.looks("history")
	b.click("location.hash = '" + link[strings.Index(link, "#"):] + "'")
	b.wait("document.getElementById('notice').textContent + (window.hacked || '')", "")
	b.click("document.getElementById('logout').click()")
	b.wait("document.querySelector('.empty strong')?.textContent", "You are not logged in")
	b.looks("out")
	b.open("about:blank")
	b.open(link)
	b.wait("document.querySelector('.empty strong')?.textContent", "You are not logged in")
	b.wait("document.getElementById('notice').textContent", "this link was opened before, or is too old: ask for a new one")
}

// TestPageAuditInBrowser: an operator finds the records of one request by its trace id, and those of an outcome. What a client sent is text.
// The view fits into windows of 360 and 1280 pixels, and is legible in light and dark, with records, without, and with an error.
func TestPageAuditInBrowser(t *testing.T) {
	needBrowser(t)
	p, d := newPlace(t), daemon(t)
	d.Stop(t)
	audit := filepath.Join(d.State, "audit")
	if err := errors.Join(os.Chown(audit, -1, p.uid), os.Chmod(audit, 0o750)); err != nil {
		t.Fatal(err)
	}
	d.Start(t)
	token, hash := config.NewToken()
	w := p.webAt(t, d, p.config(t, fmt.Sprintf("principals:\n  - {name: a, token_sha256: \"%x\", tools: [runtime_execute, operator]}\n", hash)),
		"--page", "localhost:0", "--state", d.State)
	_, session, _ := w.post(token, "", hello)
	for _, dir := range []string{".", "../<img src=x onerror='window.hacked=1'>\u202e"} {
		arguments, _ := json.Marshal(map[string]string{"repoId": "app", "runtime": "shell", "code": "true", "relativeCwd": dir})
		w.call(token, session, "runtime_execute", string(arguments))
	}
	b := newBrowser(t)
	b.open(w.pageLink(token))
	b.wait("document.querySelector('h1')?.textContent", "Running jobs")
	b.click("document.querySelector('nav [data-view=denied]').click()")
	b.wait("document.querySelector('h1')?.textContent + document.querySelectorAll('tbody tr').length", "Denied lately1")
	b.wait("document.querySelector('td.wide').textContent.includes('<img src=x') && document.querySelector('td img') === null", "true")
	b.looks("denied")
	b.click("document.querySelector('td a').click()")
	b.wait("document.querySelector('.count')?.textContent", "1 record")
	b.do(chromedp.Focus("#audit-link"), chromedp.KeyEvent("\r"))
	const records, count = "String(document.querySelectorAll('.records tbody tr').length)", "document.querySelector('.count')?.textContent"
	b.wait("document.querySelector('h1')?.textContent", "Audit log")
	b.wait("[...document.querySelectorAll('.records b')].filter((e) => e.textContent === 'finished').length", "1")
	const finished = "[...document.querySelectorAll('.records tbody tr')].find((e) => e.querySelector('b').textContent === 'finished')"
	cells, err := b.value("[..." + finished + ".cells].map((c) => c.innerText.replace(/\\s+/g, ' ').trim()).join('|')")
	if want := regexp.MustCompile(`^[^|]+\|finished success\|job-[0-9a-z]{10}\|` + fmt.Sprint(p.uid) + ` token:a\|app\|runtime_execute · shell\|exit 0 record \d+\|\d+ ms$`); err != nil || !want.MatchString(cells) {
		t.Errorf("the record of an end: %q, %v", cells, err)
	}
	b.wait("document.querySelector('.records').textContent.includes('<img src=x')", "true")
	b.wait("document.querySelector('.records img') === null && window.hacked === undefined && !document.body.textContent.includes('\u202e')", "true")
	b.looks("audit")
	const decided = "[...document.querySelectorAll('.records tbody tr')].find((e) => e.querySelector('b').textContent === 'decided')"
	trace, err := b.value(decided + ".textContent.match(/request=([0-9a-f]{32})/)[1]")
	if err != nil {
		t.Fatal(err)
	}
	search := func(field, text string) { // and wait for the next form: the page shows each search in a new one
		b.click(fmt.Sprintf("document.querySelector('#search').old = true; document.querySelector('#search [name=%s]').value = %q", field, text))
		b.do(chromedp.Focus("#search button"), chromedp.KeyEvent("\r"))
		b.wait("document.querySelector('#search')?.old === undefined", "true")
	}
	search("request", trace)
	b.wait(count, "2 records")
	b.wait(records, "2")
	b.wait("location.hash", "#/audit?request="+trace)
	search("request", strings.Repeat("0", 32))
	b.wait("document.querySelector('.empty strong')?.textContent", "No record matches")
	b.looks("audit-none")
	search("request", "")
	b.wait("location.hash", "#/audit?")
	search("outcome", "denied")
	b.wait("location.hash", "#/audit?outcome=denied")
	b.wait(records, "1")
	search("since", "soon")
	b.wait("document.getElementById('notice').textContent.startsWith('since: must be a time')", "true")
	b.looks("audit-error")
}

// TestPageCookieStays: browsers send a cookie to all ports of its host. A principal that knows its own name of the page, and has a server at
// another port of this machine, gets no cookie of another person whose browser it leads there.
func TestPageCookieStays(t *testing.T) {
	needBrowser(t)
	p, d := newPlace(t), daemon(t)
	operator, hashA := config.NewToken()
	other, hashB := config.NewToken()
	w := p.webAt(t, d, p.config(t, fmt.Sprintf("principals:\n  - {name: a, token_sha256: \"%x\", tools: [operator]}\n"+
		"  - {name: b, token_sha256: \"%x\", tools: [page]}\n", hashA, hashB)), "--page", "localhost:0")
	got := make(chan string, 16)
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/next" { // sent by a page of the same host, to which browsers send cookies that are SameSite=Strict, too
			got <- r.Header.Get("Cookie")
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><script>fetch('/next').then(() => { document.title = 'taken' })</script>`)
	}))
	defer thief.Close()
	_, port, _ := net.SplitHostPort(thief.Listener.Addr().String())
	at := func(link string) string {
		u, err := url.Parse(link)
		if err != nil {
			t.Fatal(err)
		}
		return "http://" + u.Hostname() + ":" + port + "/"
	}
	b := newBrowser(t)
	mine := w.pageLink(operator)
	b.open(mine)
	b.wait("document.querySelector('h1')?.textContent", "Running jobs")
	for who, link := range map[string]string{"the person's own name, the control": mine, "the name of another principal": w.pageLink(other)} {
		b.open(at(link))
		b.wait("document.title", "taken")
		if cookie := <-got; strings.Contains(cookie, "corral-page=") != (link == mine) {
			t.Errorf("%s: the server at another port got the cookies %q", who, cookie)
		}
	}
}

// TestPageRight: a principal without the right gets no link, and neither does a request without a token or a GET.
func TestPageRight(t *testing.T) {
	sandboxtest.RequireJails(t)
	p, d := newPlace(t), daemon(t)
	agent, hash := config.NewToken()
	w := p.webAt(t, d, p.config(t, fmt.Sprintf("http: {page: \"localhost:0\"}\nprincipals:\n  - {name: a, token_sha256: \"%x\"}\n", hash)))
	path := strings.TrimSuffix(w.url, "/mcp") + "/page"
	if code, text := mcptest.Fetch(t, http.MethodPost, path, agent); code != http.StatusForbidden || strings.Contains(text, "login") {
		t.Errorf("without the right: %d %s", code, text)
	}
	if code, _ := mcptest.Fetch(t, http.MethodPost, path, "x"); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", code)
	}
	if code, _ := mcptest.Fetch(t, http.MethodGet, path, agent); code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", code)
	}
}
