package main

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// jailServer serves files of the repository, adds the header lines of the query, answers with its status, and writes a line about each
// request to ~/seen-PORT.
const jailServer = `import http.server, os, sys, urllib.parse
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        with open(os.path.expanduser("~/seen-" + sys.argv[1]), "a") as f:
            f.write(self.command + " " + self.path + " " + repr(self.headers.items()) + "\n")
        at = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(at.query)
        body = b"served"
        if at.path.startswith("/pages/"):
            body = open("." + at.path, "rb").read()
        elif at.path == "/": # or the browser asks for /favicon.ico, at a time of its own
            body = b"<link rel=icon href=data:,>served"
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        for hint in query.get("hint", []):
            self.wfile.write(("HTTP/1.1 103 Early Hints\r\n" + hint + "\r\n\r\n").encode())
        self.send_response(int(query.get("status", ["200"])[0]))
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/javascript" if at.path.endswith(".js") else "text/html")
        for line in query.get("header", []):
            self.send_header(*line.split(": ", 1))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_HEAD = do_PUT = do_OPTIONS = do_GET
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
`

// A canary is a server on the loopback interface of this machine that no page of a preview may reach. It sings when one does.
type canary struct {
	address string // 127.0.0.1:PORT

	mu    sync.Mutex
	songs []string // guarded by mu
}

func (c *canary) heard(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.songs = append(c.songs, fmt.Sprintf(format, args...))
}

// silence returns what was heard since the last call.
func (c *canary) silence() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	songs := c.songs
	c.songs = nil
	return songs
}

// newCanary starts a canary. It hears TCP by both protocols and UDP, then calls h.
func newCanary(t *testing.T, h func(w http.ResponseWriter, r *http.Request)) *canary {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &canary{address: l.Addr().String()}
	s := &http.Server{
		ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		ConnState: func(_ net.Conn, state http.ConnState) { // a connection that a browser opens ahead is silent
			if state == http.StateActive {
				c.heard("bytes")
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.heard("%s %s%s %v", r.Method, r.Host, r.URL, r.Header)
			h(w, r)
		}),
	}
	list := []net.Listener{l}
	_, port, _ := net.SplitHostPort(c.address)
	if l6, err := net.Listen("tcp", "[::1]:"+port); err == nil { // a host may have no IPv6
		list = append(list, l6)
	}
	udp, err := net.ListenPacket("udp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	for _, l := range list {
		done.Go(func() { _ = s.Serve(l) })
	}
	done.Go(func() {
		for {
			if _, _, err := udp.ReadFrom(make([]byte, 2048)); err != nil {
				return
			}
			c.heard("a datagram")
		}
	})
	t.Cleanup(func() { s.Close(); udp.Close(); done.Wait() })
	return c
}

// An attack is a page of a server in a jail. The page's script sets result to a promise of what it got, which must be want. Words in
// braces are replaced by addresses; see scene.fill.
type attack struct {
	name  string
	query string // of the page: what its server adds
	page  string // what the script comes after
	code  string // the body of an asynchronous function
	want  string
	hears []string // what canaries may hear of it
}

// tries is what pages use: each calls functions and says which of them got something.
const tries = `
let patience = 1000
const settle = (ms) => new Promise((done) => setTimeout(done, ms))
const loaded = (frame) => Promise.race([new Promise((done) => { frame.onload = done }), settle(patience)])
const all = async (list) => (await Promise.all(Object.entries(list).map(async ([name, f]) => {
  try { const x = await Promise.race([f(), settle(2 * patience).then(() => '')]); return x ? name + '=' + x : '' } catch { return '' } }))).filter((x) => x).join(' ') || 'nothing'
const text = async (url, o) => { const r = await fetch(url, o); return r.type === 'opaque' ? 'opaque' : r.status + await r.text() }
const loads = (tag, more) => new Promise((done) => { const e = Object.assign(document.createElement(tag), more)
  e.onload = e.onloadeddata = () => done(tag); e.onerror = () => done(''); document.body.append(e) })
const socket = (url) => new Promise((done) => { const s = new WebSocket(url); s.onopen = () => done('open'); s.onerror = () => done('') })
const submit = async (action, method, enctype) => { const f = document.createElement('form'); const i = document.createElement('iframe')
  i.name = f.target = 'n' + Math.random(); Object.assign(f, { action, method, enctype: enctype || '' }); document.body.append(i, f)
  f.append(Object.assign(document.createElement('input'), { name: 'a', value: 'b' })); f.submit(); await loaded(i)
  let read = ''; try { read = i.contentDocument.body.innerText } catch {} return read }
const framed = async (src, more) => { const i = Object.assign(document.createElement('iframe'), { src }, more); document.body.append(i); await loaded(i)
  try { return i.contentDocument.body.innerText.includes('served') ? 'read' : '' } catch { return '' } }
`

// A scene is a browser that has opened previews of two principals and other servers of this machine.
type scene struct {
	*testing.T
	p                    *place
	w                    *web
	b                    *browser
	loopback, api        *canary
	token, session       string         // of the attacker
	victim, victims      string         // the token and the session of another principal
	own, sibling, others string         // the hosts of previews, with the port
	link                 string         // opened once
	lines                map[string]int // by session and port: how many of what a server got were returned
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, p: newPlace(t), lines: map[string]int{}}
	s.p.file(t, "server.py", jailServer)
	var hashA, hashB [32]byte
	s.token, hashA = config.NewToken()
	s.victim, hashB = config.NewToken()
	s.w = s.p.webAt(t, daemon(t), s.p.config(t, fmt.Sprintf("principals:\n  - {name: a, token_sha256: \"%x\", tools: [agent]}\n"+
		"  - {name: b, token_sha256: \"%x\", tools: [agent]}\n", hashA, hashB)), "--preview", "localhost:0")
	s.loopback = newCanary(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Add("Set-Cookie", "canary=hunter2-cookie")
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "canary "+r.URL.Query().Get("page"))
	})
	api, err := url.Parse(s.w.url)
	if err != nil {
		t.Fatal(err)
	}
	to := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", api.Host
		r.Out.Host = r.In.Host
	}}
	s.api = newCanary(t, to.ServeHTTP)
	_, s.session, _ = s.w.post(s.token, "", hello)
	_, s.victims, _ = s.w.post(s.victim, "", hello)
	s.w.run(s.token, s.session, "exec python3 server.py 8000", true)
	s.w.run(s.token, s.session, "exec python3 server.py 8001", true)
	s.w.run(s.victim, s.victims, "exec python3 server.py 8000", true)
	s.b = newBrowser(t)
	for _, address := range []string{s.loopback.address, strings.Replace(s.loopback.address, "127.0.0.1", "localhost", 1)} {
		s.b.open("http://" + address + "/")
	}
	s.link = s.w.link(s.token, 8000)
	s.own, s.sibling, s.others = s.opened(s.link), s.opened(s.w.link(s.token, 8001)), s.opened(s.w.link(s.victim, 8000))
	return s
}

// opened opens a link in the browser and returns the host of the preview.
func (s *scene) opened(link string) string {
	s.Helper()
	s.b.open(link)
	s.b.wait("document.body.innerText", "served")
	host, _, _ := strings.Cut(strings.TrimPrefix(link, "http://"), "/")
	return host
}

// fill puts addresses into a text.
func (s *scene) fill(text string) string {
	_, port, _ := net.SplitHostPort(s.loopback.address)
	_, preview, _ := net.SplitHostPort(s.own)
	return strings.NewReplacer("{loopback}", s.loopback.address, "{port}", port, "{api}", s.api.address, "{own}", s.own, "{sibling}", s.sibling,
		"{others}", s.others, "{preview}", preview, "{link}", s.link).Replace(text)
}

// page returns the document of an attack.
func (s *scene) page(a attack) string {
	return s.fill("<!doctype html><link rel=icon href=data:,><body>" + a.page + "<script>" + tries + "window.result = (async () => {" + a.code + "\n})()</script>")
}

// seen returns what a server in a jail got since the last call. It only reads: a line that the server adds while the file is emptied is lost.
func (s *scene) seen(token, session string, port int) string {
	s.Helper()
	at := fmt.Sprintf("%s:%d", session, port)
	count, text, _ := strings.Cut(s.w.run(token, session, fmt.Sprintf("cd; touch seen-%d; n=$(wc -l <seen-%[1]d); echo $n; head -n $n seen-%[1]d | tail -n +%d", port, s.lines[at]+1), false), "\n")
	n, err := strconv.Atoi(count)
	if err != nil {
		s.Fatalf("the first line must be the number of lines: %q", count)
	}
	s.lines[at] = n // the tool leaves out the middle of a long text
	return strings.TrimSuffix(text, "[exit 0]")
}

// check fails the test if anything of what an attack may not reach was reached.
func (s *scene) check(a attack) {
	s.Helper()
	for what, c := range map[string]*canary{"a server of this machine": s.loopback, "the API": s.api} {
		songs := slices.DeleteFunc(c.silence(), func(song string) bool { return slices.Contains(a.hears, song) })
		if len(songs) > 0 {
			s.Errorf("%s: %s got %.300s", a.name, what, songs)
		}
	}
}

// attacks are pages of a server in a jail that try to get more than this server. None of their requests may arrive anywhere else.
var attacks = []attack{
	{
		name: "the page itself, the control", want: "own=200served socket= form=served frame=read",
		code: `patience = 20_000; return 'own=' + await text('/x') + ' socket=' + await socket('ws://{own}/x') + ' form=' + await submit('/x', 'post') + ' frame=' + await framed('/x')`,
	},
	{name: "the API, without credentials", want: "nothing", code: `return all({
		get: () => text('http://{api}/healthz'), post: () => text('http://{api}/mcp', {method: 'POST', body: '{}'}),
		opaque: () => text('http://{api}/healthz', {mode: 'no-cors'}), metrics: () => text('http://{api}/metrics') })`},
	{name: "the API, with credentials", want: "nothing", code: `return all({
		include: () => text('http://{api}/previews', {method: 'POST', credentials: 'include'}),
		token: () => text('http://{api}/mcp', {method: 'POST', headers: {Authorization: 'Bearer corral_guess'}}),
		simple: () => text('http://{api}/mcp', {method: 'POST', mode: 'no-cors', credentials: 'include', headers: {'Content-Type': 'text/plain'}, body: '{}'}) })`},
	{name: "the API by forms", want: "nothing", code: `return all({
		mcp: () => submit('http://{api}/mcp', 'post', 'text/plain'), previews: () => submit('http://{api}/previews', 'post'), get: () => submit('http://{api}/healthz', 'get') })`},
	{name: "the API in a frame", want: "nothing", code: `return all({ frame: () => framed('http://{api}/healthz'),
		object: () => loads('object', {data: 'http://{api}/healthz'}), embed: () => loads('embed', {src: 'http://{api}/healthz'}) })`},
	{name: "the API as script, events and WebSocket", want: "nothing", code: `return all({ script: () => loads('script', {src: 'http://{api}/healthz'}),
		socket: () => socket('ws://{api}/mcp'), events: () => new Promise((done) => { const e = new EventSource('http://{api}/mcp'); e.onopen = () => done('open'); e.onerror = () => done('') }) })`},
	{name: "the API by names of another owner", want: "nothing", code: `const port = '{api}'.split(':')[1]
		return all(Object.fromEntries(['rebind.example.org', 'p1.localhost', 'localhost.', 'LOCALHOST', '127.1', '2130706433', '0x7f.1', '0.0.0.0', '[::1]', '[::ffff:127.0.0.1]']
			.map((name) => [name, () => text('http://' + name + ':' + port + '/healthz', {mode: 'no-cors'})])))`},
	{name: "another session's preview", want: "nothing", code: `return all({
		read: () => text('http://{others}/', {credentials: 'include'}), send: () => text('http://{others}/', {mode: 'no-cors', credentials: 'include', method: 'POST'}),
		socket: () => socket('ws://{others}/'), frame: () => framed('http://{others}/'), form: () => submit('http://{others}/', 'post'),
		image: () => loads('img', {src: 'http://{others}/'}), script: () => loads('script', {src: 'http://{others}/x.js'}) })`},
	{name: "another port's preview", want: "nothing", code: `return all({
		read: () => text('http://{sibling}/', {credentials: 'include'}), send: () => text('http://{sibling}/', {mode: 'no-cors', credentials: 'include', method: 'POST'}),
		socket: () => socket('ws://{sibling}/'), frame: () => framed('http://{sibling}/'), form: () => submit('http://{sibling}/', 'post'),
		image: () => loads('img', {src: 'http://{sibling}/'}), script: () => loads('script', {src: 'http://{sibling}/x.js'}) })`},
	{name: "cookies of others, and of the preview", want: "nothing", code: `return all({ document: () => document.cookie,
		store: async () => (await cookieStore.getAll()).map((c) => c.name).join() })`},
	{
		name: "cookies for others", want: "wide=1; corral-preview=x; mine=1", query: "header=" + url.QueryEscape("Set-Cookie: wide=1; Domain=localhost") + "&header=" + url.QueryEscape("Set-Cookie: corral-preview=header"),
		code: `for (const c of ['wide2=1; domain=localhost', 'corral-preview=x', 'corral-preview=x; path=/pages', 'mine=1']) document.cookie = c; return document.cookie`,
	},
	{name: "the link, again", want: "200 nothing", code: `const again = await fetch('{link}', {redirect: 'manual'})
		return (await fetch('/x')).status + ' ' + await all({ referrer: () => document.referrer.includes('token') && 'referrer', location: () => location.href.includes('token') && 'location',
			entries: () => JSON.stringify(performance.getEntries()).includes('token=') && !'{link}'.includes('token') && 'entries' })`},
	{name: "the host's loopback by fetch", want: "nothing", code: `const names = ['127.0.0.1', 'localhost', '127.1', '2130706433', '0x7f000001', '0.0.0.0', '[::1]', '[::ffff:127.0.0.1]', 'a.localhost', 'localhost.', 'rebind.example.org', '127.0.0.1.example.org']
		return all(Object.fromEntries(names.flatMap((name) => [[name, () => text('http://' + name + ':{port}/')], [name + ' opaque', () => text('http://' + name + ':{port}/', {mode: 'no-cors', method: 'POST', body: 'x'})]])))`},
	{name: "the host's loopback by WebSocket and events", want: "nothing", code: `return all({ address: () => socket('ws://127.0.0.1:{port}/'), name: () => socket('ws://localhost:{port}/'), six: () => socket('ws://[::1]:{port}/'),
		events: () => new Promise((done) => { const e = new EventSource('http://{loopback}/'); e.onopen = () => done('open'); e.onerror = () => done('') }) })`},
	{name: "the host's loopback by images and other content", want: "nothing", code: `const at = 'http://{loopback}/'
		const style = document.createElement('style'); style.textContent = "body { background: url(" + at + "css) } @import url(" + at + "import); @font-face { font-family: x; src: url(" + at + "font) } p { font-family: x }"
		document.head.append(style); document.body.append(Object.assign(document.createElement('p'), { textContent: 'x' }))
		return all({ img: () => loads('img', {src: at + 'img'}), script: () => loads('script', {src: at + 'js'}), module: () => loads('script', {src: at + 'mjs', type: 'module'}),
			video: () => loads('video', {src: at + 'video'}), audio: () => loads('audio', {src: at + 'audio'}), object: () => loads('object', {data: at}), embed: () => loads('embed', {src: at}),
			style: () => loads('link', {rel: 'stylesheet', href: at + 'css'}), icon: () => loads('link', {rel: 'icon', href: at + 'icon'}), manifest: () => loads('link', {rel: 'manifest', href: at + 'manifest'}),
			preload: () => loads('link', {rel: 'preload', as: 'fetch', href: at + 'preload'}), prefetch: () => loads('link', {rel: 'prefetch', href: at + 'prefetch'}), modulepreload: () => loads('link', {rel: 'modulepreload', href: at + 'mp'}),
			imported: () => import(at + 'import').then(() => 'module') })`},
	{name: "the host's loopback by forms", want: "nothing", code: `return all({ get: () => submit('http://{loopback}/', 'get'), post: () => submit('http://{loopback}/', 'post'), plain: () => submit('http://localhost:{port}/', 'post', 'text/plain') })`},
	{name: "the host's loopback in frames", want: "nothing", code: `const script = '<script>fetch("http://{loopback}/inner",{mode:"no-cors"});new Image().src="http://{loopback}/inner"</' + 'script>'
		return all({ frame: () => framed('http://{loopback}/'), srcdoc: () => framed('about:blank', {srcdoc: script}), data: () => framed('data:text/html,' + encodeURIComponent(script)),
			blob: () => framed(URL.createObjectURL(new Blob([script], {type: 'text/html'}))), sandbox: () => framed('/x', {sandbox: 'allow-scripts', srcdoc: script}),
			script: () => framed('javascript:' + JSON.stringify(script)), nested: () => framed('about:blank', {srcdoc: '<iframe src="http://{loopback}/"></iframe>'}) })`},
	{name: "the host's loopback by redirects", want: "nothing", code: `const r = (status) => '/x?status=' + status + '&header=' + encodeURIComponent('Location: http://{loopback}/r') + '&header=' + encodeURIComponent('Access-Control-Allow-Origin: *')
		return all({ fetch: () => text(r(302)), keeps: () => text(r(307), {method: 'POST', body: 'x', mode: 'no-cors'}), image: () => loads('img', {src: r(302)}), script: () => loads('script', {src: r(302)}),
			frame: () => framed(r(302)), form: () => submit(r(307), 'post') })`},
	{name: "the host's loopback by workers", want: "nothing", code: `const code = 'fetch("http://{loopback}/worker",{mode:"no-cors"}).then(()=>postMessage("got"),()=>postMessage(""))'
		const hear = (w) => new Promise((done) => { w.onmessage = (m) => done(m.data); w.onerror = () => done('') })
		return all({ blob: () => hear(new Worker(URL.createObjectURL(new Blob([code])))), data: () => hear(new Worker('data:text/javascript,' + encodeURIComponent(code))),
			file: () => hear(new Worker('/pages/worker.js')), foreign: () => hear(new Worker('http://{loopback}/worker.js')) })`},
	{
		name: "the host's loopback by beacons, pings and what outlives the page", want: "nothing", page: `<a id="a" href="#x" ping="http://{loopback}/ping">x</a>`,
		code: `document.getElementById('a').click(); return all({ beacon: () => { navigator.sendBeacon('http://{loopback}/beacon', 'x') },
			keepalive: () => text('http://{loopback}/keepalive', {keepalive: true, mode: 'no-cors', method: 'POST', body: 'x'}), later: () => settle(300) })`,
	},
	{
		name: "reports of a policy to the host's loopback", want: "nothing",
		query: "header=" + url.QueryEscape("Content-Security-Policy: img-src 'none'; report-uri http://{loopback}/csp") + "&header=" +
			url.QueryEscape("Content-Security-Policy: script-src 'self' 'unsafe-inline', img-src 'none';Report-URI http://{loopback}/csp2") + "&header=" +
			url.QueryEscape("Content-Security-Policy-Report-Only: img-src 'none'; report-uri http://{loopback}/only") + "&header=" +
			url.QueryEscape(`Reporting-Endpoints: x="http://{loopback}/x"`) + "&header=" + url.QueryEscape(`Report-To: {"group":"x","max_age":99,"endpoints":[{"url":"http://{loopback}/x"}]}`),
		code: `return all({ image: () => loads('img', {src: '/x'}), later: () => settle(1000) })`,
	},
	{
		name: "headers that load", want: "nothing", query: "header=" + url.QueryEscape("Link: <http://{loopback}/l>; rel=preload; as=image, <http://{loopback}/s>; rel=stylesheet, <http://{loopback}/p>; rel=prefetch") +
			"&hint=" + url.QueryEscape("Link: <http://{loopback}/hint>; rel=preload; as=image") + "&header=" + url.QueryEscape(`Speculation-Rules: "http://{loopback}/rules"`) + "&header=" + url.QueryEscape("SourceMap: http://{loopback}/map"),
		code: `return all({ later: () => settle(500) })`,
	},
	{
		name: "pages that are loaded ahead", want: "nothing", page: `<script type="speculationrules">{"prefetch":[{"source":"list","urls":["http://{loopback}/ahead"]}],"prerender":[{"source":"list","urls":["http://{loopback}/render"]}]}</script>
		<link rel="prerender" href="http://{loopback}/prerender"><link rel="dns-prefetch" href="http://rebind.example.org:{port}"><link rel="next" href="http://{loopback}/next">`,
		code: `return all({ later: () => settle(1000) })`,
	},
	{name: "WebTransport", want: "nothing", code: `return all({ transport: () => new WebTransport('https://{loopback}/').ready.then(() => 'open') })`},
	{name: "a service worker", want: "nothing", code: `return all({ root: () => navigator.serviceWorker.register('/pages/sw.js', {scope: '/pages/'}).then(() => 'registered'),
		module: () => navigator.serviceWorker.register('/pages/sw.js?2', {type: 'module'}).then(() => 'registered'), there: async () => (await navigator.serviceWorker.getRegistrations()).length || '' })`},
	{name: "another spelling of its own host", want: "nothing", code: `const at = '{own}'.split(':')[0]
		return all({ dot: () => text('http://' + at + '.:{preview}/x', {credentials: 'include'}), bare: () => text('http://localhost:{preview}/x'), address: () => text('http://127.0.0.1:{preview}/x', {mode: 'no-cors'}),
			rebind: () => text('http://rebind.example.org:{preview}/x', {mode: 'no-cors'}), user: () => text('http://x@' + at + ':{preview}/x', {headers: {Host: 'localhost'}}),
			header: async () => (await text('/x', {headers: {Host: '{others}', 'X-Forwarded-Host': '{others}', Forwarded: 'host={others}'}})) !== '200served' && 'other' })`},
	{name: "the window that opened it, and windows that it opens", want: "nothing", code: `const w = window.open('http://{api}/healthz')
		return all({ opener: () => window.opener && 'opener', top: () => window.top !== window && 'framed', popup: () => w && w.location && w.document.body.innerText })`},
	// No header forbids WebRTC: its first message, which a page does not write, goes to any address.
	{name: "a connection between browsers", want: "nothing", hears: []string{"a datagram", "bytes"}, code: `const c = new RTCPeerConnection({iceServers: [{urls: 'stun:{loopback}'}, {urls: 'turn:{loopback}?transport=tcp', username: 'x', credential: 'y'}]})
		c.createDataChannel('x'); await c.setLocalDescription(await c.createOffer()); await settle(1000); c.close(); return all({ later: () => settle(300) })`},
}

// TestPreviewOfAttacks: what pages of a server in a jail try in a person's browser gets nothing: no other server of the machine, neither the
// API nor another preview, hears of them.
func TestPreviewOfAttacks(t *testing.T) {
	needBrowser(t)
	sandboxtest.Require(t, sandboxtest.Program("python3"))
	s := newScene(t)
	s.p.file(t, "pages/worker.js", s.fill(`fetch("http://{loopback}/worker",{mode:"no-cors"}).then(()=>postMessage("got"),()=>postMessage(""))`))
	s.p.file(t, "pages/opened.html", `<script>fetch('/opener-' + window.opener)</script>`)
	s.p.file(t, "pages/sw.js", `self.addEventListener('fetch', (e) => e.respondWith(new Response('stayed')))`)
	s.seen(s.token, s.session, 8001)
	s.seen(s.victim, s.victims, 8000)
	s.loopback.silence()
	s.api.silence()
	for n, a := range attacks {
		s.p.file(t, fmt.Sprintf("pages/%d.html", n), s.page(a))
		s.b.open("http://" + s.own + fmt.Sprintf("/pages/%d.html?", n) + s.fillQuery(a.query))
		if got, err := s.b.value("window.result"); got != a.want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", a.name, got, err, a.want)
		}
		s.check(a)
	}
	for what, text := range map[string]string{
		"another port": s.seen(s.token, s.session, 8001), "another session": s.seen(s.victim, s.victims, 8000),
	} {
		if strings.Contains(text, "GET") || strings.Contains(text, "POST") {
			t.Errorf("%s got %.800s", what, text)
		}
	}
	s.b.open("http://" + s.sibling + "/")
	s.b.wait("document.cookie", "")
	own := s.seen(s.token, s.session, 8000)
	for _, word := range []string{"corral-preview=", "hunter2", "Bearer", s.link} {
		if own = strings.ReplaceAll(own, "corral-preview=x", ""); strings.Contains(own, word) {
			t.Errorf("the server saw %s: %s", word, own)
		}
	}
	s.foreign()
	s.after()
}

// TestPreviewCookieTaken: a page of a server in a jail leads its tab to the server of another user of this machine, at another port of its own
// host name. Browsers send that server the cookie of the preview. The other user sees no preview by it; the person
// does.
func TestPreviewCookieTaken(t *testing.T) {
	needBrowser(t)
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Program("python3"))
	s := newScene(t)
	got := make(chan string, 16)
	thief := newCanary(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/taken" {
			got <- r.Header.Get("Cookie")
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><link rel=icon href=data:,><title>taken</title>")
	})
	name, _, _ := strings.Cut(s.own, ":")
	_, port, _ := net.SplitHostPort(thief.address)
	s.p.file(t, "pages/lead.html", "<!doctype html><script>location = 'http://"+name+":"+port+"/taken'</script>")
	s.b.open("http://" + s.own + "/pages/lead.html")
	s.b.wait("document.title", "taken")
	cookies := <-got
	if !strings.Contains(cookies, "corral-preview=") {
		t.Fatalf("the server of another user got %q: it tries what it does not have", cookies)
	}
	s.seen(s.token, s.session, 8000)
	_, port, _ = net.SplitHostPort(s.own)
	use := func(user int, method string) (status int) {
		conn := sandboxtest.DialAs(t, user, "127.0.0.1:"+port)
		if _, err := fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\nContent-Length: 0\r\n\r\n", method, s.own, cookies); err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode
	}
	const other = 54321
	if get, post := use(other, "GET"), use(other, "POST"); get != http.StatusForbidden || post != http.StatusForbidden {
		t.Errorf("another user sees the preview by the cookie that the browser sent: %d, %d", get, post)
	}
	if text := s.seen(s.token, s.session, 8000); strings.Contains(text, "GET") || strings.Contains(text, "POST") {
		t.Errorf("the server in the jail got %.800s", text)
	}
	if get := use(os.Getuid(), "GET"); get != http.StatusOK {
		t.Errorf("the control: the person's own program gets %d by the same cookie", get)
	}
	s.b.open("http://" + s.own + "/")
	s.b.wait("document.body.innerText", "served")
}

// TestPreviewExceptions: the four things that a page of a preview can have a browser do elsewhere, as SECURITY.md lists them. No
// header forbids them; of the others in attacks, none does anything. If one of these does nothing any more, it leaves that list.
func TestPreviewExceptions(t *testing.T) {
	needBrowser(t)
	sandboxtest.Require(t, sandboxtest.Program("python3"))
	s := newScene(t)
	var mu sync.Mutex
	heard := map[string]bool{}
	hear := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		heard[what] = true
	}
	elsewhere := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hear(r.URL.Path)
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><link rel=icon href=data:,>elsewhere")
	}))
	elsewhere.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	elsewhere.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			hear("a connection")
		}
	}
	elsewhere.StartTLS() // browsers load no page ahead of another site without TLS
	defer elsewhere.Close()
	_, port, _ := net.SplitHostPort(elsewhere.Listener.Addr().String())
	at := "https://elsewhere.example.org:" + port
	for n, c := range []struct{ name, page, hears string }{
		{"preconnect", `<link rel=preconnect href="` + at + `">`, "a connection"},
		{"speculation rules", `<script type=speculationrules>{"prefetch":[{"source":"list","urls":["` + at + `/ahead"],"eagerness":"immediate"}]}</script>`, "/ahead"},
		{"leading the tab", `<script>location = "` + at + `/led"</script>`, "/led"},
	} {
		s.p.file(t, fmt.Sprintf("pages/exception-%d.html", n), "<!doctype html><link rel=icon href=data:,>"+c.page)
		mu.Lock()
		clear(heard)
		mu.Unlock()
		s.b.open("http://" + s.own + fmt.Sprintf("/pages/exception-%d.html", n))
		sandboxtest.Eventually(t, time.Minute, c.name, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return heard[c.hears]
		})
	}
}

// foreign tests pages of other sites, which have no policy of the preview: they get nothing of a preview that the browser has opened, also
// if their names are this machine's, and no handle of its window.
func (s *scene) foreign() {
	s.Helper()
	page := "<!doctype html><body><script>" + tries + "window.result = (async () => " + s.fill(`all({
		read: () => text('http://{own}/', {credentials: 'include'}), send: () => text('http://{own}/', {mode: 'no-cors', credentials: 'include', method: 'POST', body: 'x'}),
		socket: () => socket('ws://{own}/'), frame: () => framed('http://{own}/'), form: () => submit('http://{own}/', 'post'), get: () => submit('http://{own}/', 'get'),
		image: () => loads('img', {src: 'http://{own}/'}), script: () => loads('script', {src: 'http://{own}/x.js'}), link: () => framed('{link}') }))()</script>`)
	for _, origin := range []string{"http://rebind.example.org:{port}", "http://localhost:{port}", "http://evil.localhost:{port}"} {
		s.b.open(s.fill(origin) + "/?page=" + url.QueryEscape(page))
		if got, err := s.b.value("window.result"); strings.ReplaceAll(got, "send=opaque", "nothing") != "nothing" || err != nil {
			s.Errorf("%s: got %q, %v", origin, got, err)
		}
	}
	if text := s.seen(s.token, s.session, 8000); strings.Contains(text, "GET") || strings.Contains(text, "POST") {
		s.Errorf("a page of another site: the server got %.800s", text)
	}
	for at, want := range map[string]string{
		"http://rebind.example.org:{preview}/": "This is not the host name of a preview.", "http://localhost:{preview}/": "This is not the host name of a preview.",
		"http://rebind.example.org:{apiport}/mcp": "is not accepted",
	} {
		_, port, _ := net.SplitHostPort(s.api.address)
		s.b.open(strings.Replace(s.fill(at), "{apiport}", port, 1))
		if got, err := s.b.value("document.body.innerText"); err != nil || !strings.Contains(got, want) {
			s.Errorf("%s: %q, %v", at, got, err)
		}
	}
	s.b.open(s.fill("http://localhost:{port}/"))
	s.b.click("window.opened = window.open('http://" + s.own + "/pages/opened.html')")
	s.b.wait("String(window.opened.closed)", "true") // it is open, but no window of this one any more
	sandboxtest.Eventually(s.T, time.Minute, "the page has said what it knows of the window that opened it", func() bool {
		return strings.Contains(s.seen(s.token, s.session, 8000), "/opener-null")
	})
}

// after tests what stays when the session has ended: nothing.
func (s *scene) after() {
	s.Helper()
	s.b.open("http://" + s.own + "/x")
	s.b.wait("localStorage.stays = 'here'", "here")
	s.w.end(s.token, s.session)
	sandboxtest.Eventually(s.T, time.Minute, "the preview ends with the session", func() bool {
		s.b.open("http://" + s.own + "/pages/")
		shown, err := s.b.value("document.body.innerText")
		return err == nil && strings.HasPrefix(shown, "The session has ended")
	})
	s.b.wait("String(localStorage.stays)", "undefined")
	s.b.open(s.link)
	if shown, err := s.b.value("document.body.innerText"); err != nil || !strings.HasPrefix(shown, "The session has ended") {
		s.Errorf("the link, after the session: %q, %v", shown, err)
	}
}

// fillQuery puts addresses into a query whose values are escaped.
func (s *scene) fillQuery(query string) string {
	return strings.ReplaceAll(query, url.QueryEscape("{loopback}"), url.QueryEscape(s.loopback.address))
}
