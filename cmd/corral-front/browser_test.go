package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"corral/internal/config"
	"corral/internal/test/mcptest"
	"corral/internal/test/sandboxtest"
)

// A browser is a headless Chromium with an empty profile. Names in localhost are this machine's, as everywhere; those of example.org,
// too, as if their owner's name server said so; it finds no others.
type browser struct {
	t   *testing.T
	ctx context.Context
}

// tabPatience is how long a page may take to load, or to do what a test waits for.
const tabPatience = time.Minute

func newBrowser(t *testing.T) *browser {
	t.Helper()
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath("chromium"), chromedp.UserDataDir(t.TempDir())}
	for _, name := range []string{
		"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "no-default-browser-check", "disable-sync",
		"disable-background-networking", "disable-component-update", "ignore-certificate-errors", "disable-dev-shm-usage", "disable-extensions", "mute-audio",
	} {
		options = append(options, chromedp.Flag(name, true))
	}
	options = append(options, chromedp.Flag("host-resolver-rules", "MAP *.example.org 127.0.0.1, MAP * ~NOTFOUND, "+
		"EXCLUDE localhost, EXCLUDE *.localhost, EXCLUDE 127.0.0.1, EXCLUDE 0.0.0.0, EXCLUDE [::1], EXCLUDE [::ffff:7f00:1]"))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil { // starts it: it lives as long as the context of the first call
		t.Fatal(err)
	}
	return &browser{t, ctx}
}

// open shows a page.
func (b *browser) open(url string) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, sandboxtest.Slow(tabPatience))
	defer stop()
	if err := chromedp.Do(ctx, chromedp.Navigate(url)); err != nil {
		b.t.Fatalf("%s: %v", url, err)
	}
}

// value evaluates an expression of JavaScript as a string. If it is a promise, it waits for its value.
func (b *browser) value(expression string) (string, error) {
	ctx, stop := context.WithTimeout(b.ctx, sandboxtest.Slow(tabPatience))
	defer stop()
	return chromedp.Run(ctx, chromedp.Evaluate[string]("(async () => String(await ("+expression+")))()", chromedp.EvalAwaitPromise))
}

// click evaluates an expression as if a person had clicked on the page.
func (b *browser) click(expression string) {
	b.t.Helper()
	gesture := func(p *runtime.EvaluateParams) { yes := true; p.UserGesture = &yes }
	if err := chromedp.Do(b.ctx, chromedp.Evaluate[chromedp.Void](expression+"; undefined", gesture)); err != nil {
		b.t.Fatal(err)
	}
}

// wait waits until an expression has a value. Meanwhile, the page may be loaded again.
func (b *browser) wait(expression, want string) {
	b.t.Helper()
	sandboxtest.Eventually(b.t, tabPatience, fmt.Sprintf("%s is %q", expression, want), func() bool {
		got, err := b.value(expression)
		return err == nil && got == want
	})
}

// needBrowser requires Chromium.
func needBrowser(t *testing.T) {
	t.Helper()
	sandboxtest.RequireJails(t)
	sandboxtest.Require(t, sandboxtest.Program("chromium"))
}

// links returns links to the previews of a principal's sessions.
func (w *web) links(token, query string) (urls []string) {
	w.t.Helper()
	code, text := mcptest.Fetch(w.t, http.MethodPost, strings.TrimSuffix(w.url, "/mcp")+"/previews"+query, token)
	var l struct{ Previews []struct{ URL string } }
	if err := json.Unmarshal([]byte(text), &l); err != nil || code != http.StatusOK {
		w.t.Fatalf("%d %s %v", code, text, err)
	}
	for _, one := range l.Previews {
		urls = append(urls, one.URL)
	}
	return urls
}

// link returns a link to a port of the principal's session, when a server listens there.
func (w *web) link(token string, port int) (url string) {
	w.t.Helper()
	sandboxtest.Eventually(w.t, time.Minute, fmt.Sprintf("a server listens at port %d", port), func() bool {
		for _, one := range w.links(token, "") {
			if strings.HasPrefix(one, fmt.Sprintf("http://p%d-", port)) {
				url = one
			}
		}
		return url != ""
	})
	return url
}

// run runs code by the tool run, which must succeed.
func (w *web) run(token, session, code string, background bool) string {
	w.t.Helper()
	arguments, err := json.Marshal(map[string]any{"code": code, "background": background})
	if err != nil {
		w.t.Fatal(err)
	}
	a := w.call(token, session, "run", string(arguments))
	var text strings.Builder
	for _, block := range a.Result.Content {
		text.WriteString(block.Text)
	}
	if strings.Contains(text.String(), "[exit ") && !strings.Contains(text.String(), "[exit 0") || a.Result.IsError {
		w.t.Fatalf("%s: %s", code, text.String())
	}
	return text.String()
}

// viteModules are the packages of npm that vite needs, as scripts/setup-clients installs them, and a node that it runs on.
var viteModules = []string{
	"vite", "rollup", "@rollup", "@types", "esbuild", "@esbuild", "fdir", "picomatch", "tinyglobby", "postcss", "nanoid", "picocolors", "source-map-js",
}

// installVite copies vite into the repository, as npm install does, with node as node.
func (p *place) installVite(t *testing.T) {
	t.Helper()
	from := filepath.Join(sandboxtest.ModuleRoot(t), ".cache/clients/node_modules")
	node := filepath.Join(from, ".bin/node")
	sandboxtest.Require(t, func() error {
		_, err := os.Stat(filepath.Join(from, "vite"))
		_, err2 := os.Stat(node)
		if err = errors.Join(err, err2); err != nil {
			return fmt.Errorf("%w; run: scripts/setup-clients", err)
		}
		return nil
	})
	for _, name := range viteModules {
		if err := os.CopyFS(filepath.Join(p.repo, "node_modules", name), os.DirFS(filepath.Join(from, name))); err != nil {
			t.Fatal(err)
		}
	}
	if err := sandboxtest.CopyProgram(node, filepath.Join(p.repo, "node")); err != nil {
		t.Fatal(err)
	}
}

// TestPreviewOfVite: a person sees what vite serves in a jail. When a file of the repository changes, the page shows the change and keeps
// its state: it was not loaded again, so the message came by the WebSocket of the page.
func TestPreviewOfVite(t *testing.T) {
	needBrowser(t)
	p, d := newPlace(t), daemon(t)
	p.installVite(t)
	p.file(t, "index.html", `<!doctype html><p id="text">nothing</p><script type="module" src="/main.js"></script>`)
	p.file(t, "style.css", "p { color: rgb(1, 2, 3) }\n")
	p.file(t, "text.js", "export const text = 'before'\n")
	p.file(t, "main.js", `import './style.css'
import { text } from './text.js'
const show = (text) => { document.getElementById('text').textContent = text }
show(text)
import.meta.hot.accept('./text.js', (changed) => show(changed.text))
`)

	agent, hash := config.NewToken()
	w := p.webAt(t, d, p.config(t, fmt.Sprintf("principals:\n  - {name: a, token_sha256: \"%x\", tools: [agent]}\n", hash)), "--preview", "localhost:0")
	_, session, _ := w.post(agent, "", hello)
	w.run(agent, session, "exec ./node node_modules/vite/bin/vite.js --host 127.0.0.1 --port 5173 --strictPort", true)
	b := newBrowser(t)
	link := w.link(agent, 5173)
	b.open(link)
	const text, color = "document.getElementById('text').textContent", "getComputedStyle(document.getElementById('text')).color"
	b.wait(text, "before")
	b.wait(color, "rgb(1, 2, 3)")
	b.wait("window.state = 'kept'", "kept")
	w.run(agent, session, "sed -i s/before/after/ text.js", false)
	b.wait(text, "after")
	w.run(agent, session, "sed -i 's/1, 2, 3/4, 5, 6/' style.css", false)
	b.wait(color, "rgb(4, 5, 6)")
	b.wait("window.state", "kept")
	w.run(agent, session, `sed -i 's/show(text)$/show(text + " all")/' main.js`, false) // which nothing accepts: vite has the page loaded
	b.wait(text, "after all")
	b.wait("String(window.state)", "undefined")
	w.end(agent, session)
	host, _, _ := strings.Cut(strings.TrimPrefix(link, "http://"), "/")
	sandboxtest.Eventually(t, time.Minute, "the preview ends with the session", func() bool {
		b.open("http://" + host + "/")
		shown, err := b.value("document.body.innerText")
		return err == nil && strings.HasPrefix(shown, "The session has ended")
	})
}
