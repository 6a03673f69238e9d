package packages

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha1" //nolint:gosec // old packages of npm have no other digest
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/egress/relay"
	"corral/egress/store"
	"corral/internal/test/sandboxtest"
	"corral/policy/network"
)

// A world is a cache and the registries that it requests from, by host.
type world struct {
	t     *testing.T
	dir   string
	cache *Cache
	hosts map[string]http.Handler
	off   bool
	now   time.Time

	mu   sync.Mutex
	seen []*http.Request // guarded by mu: by the registries
	open map[string]int  // guarded by mu: bodies of responses that were not closed, by path
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), hosts: map[string]http.Handler{}, now: time.Now(), open: map[string]int{}}
	w.restart()
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for path, n := range w.open {
			if n != 0 { // each keeps one of the few connections to a host
				t.Errorf("%d responses of %s were not closed", n, path)
			}
		}
	})
	return w
}

// restart is a new process with the same store.
func (w *world) restart() {
	w.t.Helper()
	dir, err := os.Open(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { dir.Close() })
	s, err := store.Open(dir, 64<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	w.cache = New(s)
	w.cache.now = func() time.Time { return w.now }
}

// RoundTrip implements http.RoundTripper: it is the registries.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.seen = append(w.seen, r)
	w.mu.Unlock()
	h := w.hosts[r.URL.Host]
	if h == nil || w.off {
		return nil, errors.New("connection refused")
	}
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, r)
	reply := recorder.Result()
	w.opened(r.URL.Path, 1)
	reply.Body = &body{reply.Body, sync.OnceFunc(func() { w.opened(r.URL.Path, -1) })}
	return reply, nil
}

// opened counts the bodies of responses that are open.
func (w *world) opened(path string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[path] += n
}

// A body is that of a response, which must be closed.
type body struct {
	io.ReadCloser
	closed func()
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

// files serves contents by escaped path, as a registry does that compresses what it can.
func files(contents map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := contents[r.URL.EscapedPath()]
		if !ok {
			http.Error(w, "no such package", http.StatusNotFound)
			return
		}
		tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(content)))
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", tag)
		w.Header().Set("Content-Type", "application/octet-stream")
		if strings.HasPrefix(content, "{") {
			w.Header().Set("Content-Type", "application/json")
			if strings.Contains(r.Header.Get("Accept"), SimpleJSON) {
				w.Header().Set("Content-Type", SimpleJSON)
			}
		}
		if r.Header.Get("Accept-Encoding") == "gzip" {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, content)
			_ = z.Close()
			return
		}
		_, _ = io.WriteString(w, content)
	})
}

// A got is what a job gets.
type got struct {
	status int
	body   string
	header http.Header
	err    error
}

// get makes a request of a job.
func (w *world) get(r Registry, path string, change ...func(*http.Request)) got {
	w.t.Helper()
	r.Scheme, r.Rule = orDefault(r.Scheme, "https"), orDefault(r.Rule, "rule")
	in := httptest.NewRequest(http.MethodGet, r.Scheme+"://"+r.Host+path, nil)
	for _, f := range change {
		f(in)
	}
	recorder := httptest.NewRecorder()
	err := w.cache.Serve(recorder, in, r, w)
	return got{recorder.Code, recorder.Body.String(), recorder.Header(), err}
}

func orDefault(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// is requires a whole answer.
func (g got) is(t *testing.T, what, want string) {
	t.Helper()
	if g.err != nil || g.status != http.StatusOK || g.body != want {
		t.Errorf("%s: %d %.200q, %v, want %.200q", what, g.status, g.body, g.err, want)
	}
}

// denied requires a denial with a part of its reason.
func (g got) denied(t *testing.T, what, why string) {
	t.Helper()
	if d := (*relay.Denied)(nil); !errors.As(g.err, &d) || !strings.Contains(d.Why, why) {
		t.Errorf("%s: %+v, want a denial because of %q", what, g, why)
	}
}

// kept returns the names of entries in the store, and searches all files for a text that must not be there.
func (w *world) kept(never string) map[string]*store.Entry {
	w.t.Helper()
	all, err := os.ReadDir(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	names := map[string]*store.Entry{}
	for _, f := range all {
		b, err := os.ReadFile(filepath.Join(w.dir, f.Name()))
		if err != nil || never != "" && bytes.Contains(b, []byte(never)) {
			w.t.Errorf("%s has %q, %v", f.Name(), never, err)
		}
		if f.Name() == store.Journal {
			for _, e := range store.ReadEntries(bytes.NewReader(b)) {
				names[e.Name] = e
			}
		}
	}
	return names
}

func integrity(content string) string {
	sum := sha512.Sum512([]byte(content))
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

func sumOf(content string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(content))) }

var npm = Registry{Kind: network.NPM, Host: "npm.example.org"}

func aged(r Registry) Registry { r.MinAge = 7 * 24 * time.Hour; return r }

// packument is the index of a package with an old and a young version.
func (w *world) packument() string {
	stamp := func(days int) string {
		return w.now.Add(-time.Duration(days) * 24 * time.Hour).UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf(`{"name":"demo","dist-tags":{"latest":"2.0.0"},"time":{"1.0.0":%q,"2.0.0":%q},"versions":{
		"1.0.0":{"dist":{"tarball":"https://npm.example.org/demo/-/demo-1.0.0.tgz","integrity":%q}},
		"2.0.0":{"dist":{"tarball":"https://npm.example.org/demo/-/demo-2.0.0.tgz","integrity":%q}}}}`,
		stamp(30), stamp(2), integrity("the old one"), integrity("the young one"))
}

func (w *world) npm() map[string]string {
	contents := map[string]string{"/demo": w.packument(), "/demo/-/demo-1.0.0.tgz": "the old one", "/demo/-/demo-2.0.0.tgz": "the young one"}
	w.hosts["npm.example.org"] = files(contents)
	return contents
}

// TestTwice: what a job got, the next one gets while the registry is off, also of another process.
func TestTwice(t *testing.T) {
	w := newWorld(t)
	contents := w.npm()
	for range 3 {
		w.get(npm, "/demo").is(t, "index", contents["/demo"])
		w.get(npm, "/demo/-/demo-1.0.0.tgz").is(t, "file", "the old one")
		w.off = true
	}
	w.restart()
	w.get(npm, "/demo").is(t, "index, after a restart", contents["/demo"])
	w.get(npm, "/demo/-/demo-1.0.0.tgz").is(t, "file, after a restart", "the old one")
	if len(w.seen) != 2 {
		t.Errorf("%d requests to the registry", len(w.seen))
	}
	if g := w.get(npm, "/demo/-/demo-2.0.0.tgz"); g.err == nil || g.body != "" {
		t.Errorf("%+v", g)
	}
	tag := w.get(npm, "/demo").header.Get("ETag")
	if g := w.get(npm, "/demo", func(r *http.Request) { r.Header.Set("If-None-Match", tag) }); g.status != http.StatusNotModified || g.err != nil {
		t.Errorf("%+v", g)
	}
	// Without a store, everything is requested again, and verified.
	w.off, w.seen = false, nil
	w.cache = New(nil)
	for range 2 {
		w.get(npm, "/demo").is(t, "index, without a store", contents["/demo"])
		w.get(npm, "/demo/-/demo-1.0.0.tgz").is(t, "file, without a store", "the old one")
	}
	contents["/demo/-/demo-1.0.0.tgz"] = "another"
	w.get(npm, "/demo/-/demo-1.0.0.tgz").denied(t, "without a store", "another digest")
	if len(w.seen) != 5 {
		t.Errorf("%d requests to the registry", len(w.seen))
	}
}

// TestWrongDigest: a file with another digest is cut off and not kept, whether its index was requested before or not.
func TestWrongDigest(t *testing.T) {
	w := newWorld(t)
	contents := w.npm()
	right := strings.Repeat("right", 30_000)
	contents["/demo"] = strings.Replace(contents["/demo"], integrity("the old one"), integrity(right), 1)
	contents["/demo/-/demo-1.0.0.tgz"] = "wrong" + right[5:]
	for range 2 {
		g := w.get(npm, "/demo/-/demo-1.0.0.tgz") // as with a lock file: its index is read first
		g.denied(t, "wrong", "with another digest than sha512:")
		if len(g.body) >= len(right) || g.header.Get("Content-Length") == fmt.Sprint(len(g.body)) {
			t.Errorf("the job got all %d bytes of it", len(g.body))
		}
		w.get(npm, "/demo")
	}
	if kept := w.kept(""); kept["demo-1.0.0.tgz"] != nil || kept["demo"] == nil {
		t.Errorf("%v", kept)
	}
	contents["/demo/-/demo-1.0.0.tgz"] = right
	w.get(npm, "/demo/-/demo-1.0.0.tgz").is(t, "right", right)
	if e := w.kept("")["demo-1.0.0.tgz"]; e == nil || e.Digest == "" || e.SHA256 != sumOf(right) {
		t.Errorf("%+v", e)
	}
	// What was damaged in the store is cut off, and requested again.
	if err := os.WriteFile(filepath.Join(w.dir, sumOf(right)), []byte("wrong"+right[5:]), 0o600); err != nil {
		t.Fatal(err)
	}
	if g := w.get(npm, "/demo/-/demo-1.0.0.tgz"); !errors.Is(g.err, store.ErrDigest) || len(g.body) >= len(right) {
		t.Errorf("%d bytes, %v", len(g.body), g.err)
	}
	w.get(npm, "/demo/-/demo-1.0.0.tgz").is(t, "again", right)
	// The index has another digest now: what is kept is not used.
	contents["/demo"] = strings.Replace(contents["/demo"], integrity(right), integrity("replaced"), 1)
	contents["/demo/-/demo-1.0.0.tgz"] = "replaced"
	w.now = w.now.Add(2 * fresh)
	w.get(npm, "/demo").is(t, "changed index", contents["/demo"])
	w.get(npm, "/demo/-/demo-1.0.0.tgz").is(t, "replaced", "replaced")
	// What was verified with a weak digest alone is not used where the index has a strong one.
	strong := contents["/demo"]
	weak := strings.Replace(strong, `"integrity":"`+integrity("replaced")+`"`, fmt.Sprintf(`"shasum":"%x"`, sha1.Sum([]byte("weak"))), 1)
	for _, index := range []string{weak, strong} {
		content := "replaced"
		if index == weak {
			content = "weak"
		}
		contents["/demo"], contents["/demo/-/demo-1.0.0.tgz"] = index, content
		w.now = w.now.Add(2 * fresh)
		w.get(npm, "/demo").is(t, "an index", index)
		w.get(npm, "/demo/-/demo-1.0.0.tgz").is(t, "a file of it", content)
	}
}

// TestMinAge: what is younger is not there, neither in the index nor by its address, and a version of unknown age is denied.
func TestMinAge(t *testing.T) {
	w := newWorld(t)
	contents := w.npm()
	contents["/none"] = `{"versions":{"1.0.0":{}}}`
	contents["/other"] = `{"version":"1.0.0"}`
	for range 2 {
		g := w.get(aged(npm), "/demo")
		if g.err != nil || strings.Contains(g.body, "2.0.0") || !strings.Contains(g.body, `"latest":"1.0.0"`) {
			t.Errorf("%+v", g)
		}
		w.get(aged(npm), "/demo/-/demo-2.0.0.tgz").denied(t, "young", "was published on")
		w.get(aged(npm), "/demo/-/demo-1.0.0.tgz").is(t, "old", "the old one")
		w.off = true
		w.restart() // of the young one, the kept index is read
	}
	w.off = false
	for path, why := range map[string]string{
		"/demo/-/demo-3.0.0.tgz": "nobody knows when", "/-/v1/search": "does not know how old", "/demo/-/demo-1.0.0.tgz?x": "does not know how old",
		"/none": "does not say when", "/other": "not an index",
	} {
		w.get(aged(npm), path).denied(t, path, why)
	}
	head := func(r *http.Request) { r.Method = http.MethodHead }
	w.get(aged(npm), "/demo/-/demo-2.0.0.tgz", head).denied(t, "HEAD of a young one", "was published on")
	if g := w.get(aged(npm), "/demo/-/demo-1.0.0.tgz", head); !errors.Is(g.err, relay.ErrPass) {
		t.Errorf("HEAD of an old one: %v", g.err)
	}
	// Without a minimum age, all of it is there.
	w.get(npm, "/demo/-/demo-2.0.0.tgz").is(t, "young, without min_age", "the young one")
	w.get(npm, "/other").is(t, "no index", contents["/other"])
	for _, path := range []string{"/-/v1/search", "/demo?write=true"} {
		if g := w.get(npm, path); !errors.Is(g.err, relay.ErrPass) {
			t.Errorf("%s: %+v", path, g)
		}
	}
	// It becomes old enough.
	w.get(aged(npm), "/demo/-/demo-2.0.0.tgz").denied(t, "still young", "was published on")
	w.now = w.now.Add(6 * 24 * time.Hour)
	w.get(aged(npm), "/demo/-/demo-2.0.0.tgz").is(t, "old enough", "the young one")
}

// TestFresh: an index is asked for again after a while, and used longer if the registry cannot be reached.
func TestFresh(t *testing.T) {
	w := newWorld(t)
	contents := w.npm()
	before := contents["/demo"]
	w.get(npm, "/demo").is(t, "first", before)
	contents["/demo"] = strings.Replace(before, "demo", "changed", 1)
	w.get(npm, "/demo").is(t, "fresh", before)
	w.now = w.now.Add(fresh)
	w.get(npm, "/demo").is(t, "changed", contents["/demo"])
	w.now = w.now.Add(fresh)
	w.get(npm, "/demo").is(t, "unchanged", contents["/demo"])
	if last := w.seen[len(w.seen)-1]; last.Header.Get("If-None-Match") == "" || len(w.seen) != 3 {
		t.Errorf("%d requests, the last with %v", len(w.seen), last.Header)
	}
	w.get(npm, "/demo").is(t, "renewed", contents["/demo"])
	if len(w.seen) != 3 {
		t.Errorf("%d requests", len(w.seen))
	}
	w.now = w.now.Add(stale - time.Hour)
	w.hosts["npm.example.org"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", http.StatusBadGateway) })
	w.get(npm, "/demo").is(t, "502", contents["/demo"])
	w.off = true
	w.get(npm, "/demo").is(t, "unreachable", contents["/demo"])
	w.now = w.now.Add(2 * time.Hour)
	if g := w.get(npm, "/demo"); g.err == nil {
		t.Errorf("too old: %+v", g)
	}
	w.off = false
	w.hosts["npm.example.org"] = files(nil)
	if g := w.get(npm, "/demo"); g.err != nil || g.status != http.StatusNotFound || !strings.Contains(g.body, "no such package") {
		t.Errorf("a package that was removed: %+v", g)
	}
}

// TestCredentials: what a secret opened is found by requests with it alone, and what credentials of a job opened by nobody.
func TestCredentials(t *testing.T) {
	const token = "t0ken-of-acme"
	w := newWorld(t)
	contents := w.npm()
	open := w.hosts["npm.example.org"]
	w.hosts["npm.example.org"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(rw, "who are you?", http.StatusUnauthorized)
			return
		}
		open.ServeHTTP(rw, r)
	})
	with := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	private := npm
	private.Secret, private.Header = "acme", "authorization"
	// A job with a token of its own.
	w.get(npm, "/demo", with).is(t, "own token", contents["/demo"])
	w.get(npm, "/demo/-/demo-1.0.0.tgz", with).is(t, "own token", "the old one")
	if kept := w.kept(""); len(kept) != 0 {
		t.Errorf("kept with a job's own token: %v", kept)
	}
	// The operator's.
	w.get(private, "/demo", with).is(t, "secret", contents["/demo"])
	w.get(private, "/demo/-/demo-1.0.0.tgz", with).is(t, "secret", "the old one")
	w.off = true
	w.get(private, "/demo/-/demo-1.0.0.tgz", with).is(t, "secret, off", "the old one")
	other := private
	other.Secret = "other"
	for name, g := range map[string]got{
		"none": w.get(npm, "/demo/-/demo-1.0.0.tgz"), "another secret": w.get(other, "/demo/-/demo-1.0.0.tgz", with), "own token": w.get(npm, "/demo", with),
	} {
		if g.err == nil {
			t.Errorf("%s: %+v", name, g)
		}
	}
	w.off = false
	if g := w.get(npm, "/demo"); g.err != nil || g.status != http.StatusUnauthorized {
		t.Errorf("without a token: %+v", g)
	}
	if kept := w.kept(token); len(kept) != 2 {
		t.Errorf("%v", kept)
	}
	// What was requested where nobody looked for a secret is not what jobs get where somebody does.
	guarded := private
	guarded.Guarded = "acme,other"
	w.off = true
	if g := w.get(guarded, "/demo/-/demo-1.0.0.tgz", with); g.err == nil {
		t.Errorf("guarded: %+v", g)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	g := w.get(private, "/demo/-/demo-1.0.0.tgz", with, func(r *http.Request) { *r = *r.WithContext(ended) })
	if !errors.Is(g.err, context.Canceled) || g.body != "" {
		t.Errorf("ended: %+v", g)
	}
	for name, want := range map[string]bool{"Cookie": true, "Private-Token": true, "X-Api-Key": true, "Proxy-Authorization": true, "User-Agent": false, "Npm-Session": false} {
		if got := len(credentials(http.Header{name: {"x"}}, npm)) > 0; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestOwn: what a registry says to a job's own user, or with headers of a job, is not what other jobs' files are measured by.
func TestOwn(t *testing.T) {
	for name, keeps := range map[string]bool{"with a store": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			contents := w.npm()
			if !keeps {
				w.cache.store = nil
			}
			var hosts []string
			w.hosts["npm.example.org"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				hosts = append(hosts, r.Host)
				if r.Header.Get("Authorization") != "" || r.Header.Get("X-Forwarded-Host") != "" { // the job's own packages
					_, _ = io.WriteString(rw, `{"versions":{"1":{"dist":{"tarball":"/demo/-/demo-1.0.0.tgz","integrity":"`+integrity("of the job")+`"}},
						"2":{"dist":{"tarball":"/demo/-/demo-2.0.0.tgz"}}},"time":{"1":"2001-01-01T00:00:00Z","2":"2001-01-01T00:00:00Z"}}`)
					return
				}
				files(contents).ServeHTTP(rw, r)
			})
			for _, header := range []string{"X-Forwarded-Host", "Authorization"} {
				w.get(npm, "/demo", func(r *http.Request) { r.Header.Set(header, "of.the.job"); r.Host = "NPM.example.org:443" })
				w.get(aged(npm), "/demo", func(r *http.Request) { r.Header.Set(header, "of.the.job") })
			}
			w.get(npm, "/demo/-/demo-1.0.0.tgz").is(t, "the file", "the old one")
			w.get(aged(npm), "/demo/-/demo-2.0.0.tgz").denied(t, "a young one", "was published on")
			for _, host := range hosts {
				if host != "npm.example.org" {
					t.Errorf("requested of %q", host)
				}
			}
		})
	}
}

// TestLogin: what a registry says to a user whom a job chose is not what jobs get with the same secret alone.
func TestLogin(t *testing.T) {
	w := newWorld(t)
	contents := w.npm()
	w.hosts["npm.example.org"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if user, _, _ := r.BasicAuth(); user != "" {
			_, _ = io.WriteString(rw, `{"versions":{"1":{"dist":{"tarball":"/demo/-/demo-1.0.0.tgz","integrity":"`+integrity("of the job")+`"}}}}`)
			return
		}
		files(contents).ServeHTTP(rw, r)
	})
	private := npm
	private.Secret, private.Header = "acme", "Authorization"
	chosen := private
	chosen.Login = "token of the job:{}"
	w.get(chosen, "/demo", func(r *http.Request) { r.SetBasicAuth("token of the job", "t0ken") })
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer t0ken") }
	w.get(private, "/demo/-/demo-1.0.0.tgz", bearer).is(t, "the file", "the old one")
	w.get(private, "/demo", bearer).is(t, "the index", contents["/demo"])
	w.kept("token of the job")
}

// TestHeaders: no header of a job has an influence on what is kept.
func TestHeaders(t *testing.T) {
	w := newWorld(t)
	w.npm()
	w.get(npm, "/demo", func(r *http.Request) {
		for _, name := range []string{"X-Forwarded-Host", "Accept-Language", "Range", "If-Modified-Since", "X-Http-Method-Override", "Accept", "Accept-Encoding", "User-Agent"} {
			r.Header.Set(name, "of the job")
		}
	})
	for name, values := range w.seen[0].Header {
		if strings.Contains(strings.Join(values, " "), "of the job") {
			t.Errorf("the registry got %s: %q", name, values)
		}
	}
	g := w.get(npm, "/demo/-/demo-1.0.0.tgz", func(r *http.Request) { r.Header.Set("Range", "bytes=1-2") })
	g.is(t, "a part", "the old one")
}

// TestForms: the short form of an index of npm, which has no dates, is kept beside the long one.
func TestForms(t *testing.T) {
	w := newWorld(t)
	w.hosts["npm.example.org"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(rw, `{"versions":{},"accept":%q}`, r.Header.Get("Accept"))
	})
	short := func(r *http.Request) {
		r.Header.Set("Accept", "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*")
	}
	for range 2 {
		w.get(npm, "/demo").is(t, "long", `{"versions":{},"accept":"application/json"}`)
		w.get(npm, "/demo", short).is(t, "short", `{"versions":{},"accept":"application/vnd.npm.install-v1+json, application/json;q=0.8"}`)
	}
	if g := w.get(aged(npm), "/demo", short); g.err != nil || !strings.Contains(g.body, `"accept":"application/json"`) {
		t.Errorf("with min_age: %+v", g)
	}
	if len(w.seen) != 2 {
		t.Errorf("%d requests", len(w.seen))
	}
}

// TestHosts: what an index says applies to files at another host of the same rule, and of no other.
func TestHosts(t *testing.T) {
	w := newWorld(t)
	old := w.now.Add(-30 * 24 * time.Hour).UTC().Format(time.RFC3339)
	index := `{"files":[{"filename":"demo-1.0.zip","url":"https://files.example.org/a/demo-1.0.zip","hashes":{"sha256":"` + sumOf("a file") + `"},"upload-time":"` + old + `"}]}`
	w.hosts["pypi.example.org"] = files(map[string]string{"/simple/demo/": index})
	contents := map[string]string{"/a/demo-1.0.zip": "another file"}
	w.hosts["files.example.org"] = files(contents)
	at := Registry{Kind: network.PyPI, Host: "files.example.org"}
	w.get(at, "/a/demo-1.0.zip").is(t, "unknown", "another file")
	if kept := w.kept(""); len(kept) != 0 {
		t.Errorf("a file without a known digest is kept: %v", kept)
	}
	w.get(aged(at), "/a/demo-1.0.zip").denied(t, "unknown, with min_age", "nobody knows")
	lists := Registry{Kind: network.PyPI, Host: "pypi.example.org"}
	g := w.get(lists, "/simple/demo/")
	if g.header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(g.body, "demo-1.0.zip#sha256=") {
		t.Errorf("%+v", g)
	}
	w.get(lists, "/simple/demo/", func(r *http.Request) { r.Header.Set("Accept", SimpleJSON) }).is(t, "JSON", index)
	if len(w.seen) != 2 {
		t.Errorf("%d requests", len(w.seen))
	}
	w.get(at, "/a/demo-1.0.zip").denied(t, "wrong", "another digest")
	other := at
	other.Rule = "another rule"
	w.get(other, "/a/demo-1.0.zip").is(t, "of another rule", "another file")
	contents["/a/demo-1.0.zip"] = "a file"
	w.get(aged(at), "/a/demo-1.0.zip").is(t, "right", "a file")
	w.restart()
	w.off = true
	w.get(aged(at), "/a/demo-1.0.zip").is(t, "kept, with its date", "a file")
}

// TestCargo: crates are where config.json says, which is read with the index.
func TestCargo(t *testing.T) {
	w := newWorld(t)
	line := func(version string, days int) string {
		return fmt.Sprintf(`{"name":"demo","vers":%q,"cksum":%q,"pubtime":%q}`, version, sumOf("a crate"), w.now.Add(-time.Duration(days)*24*time.Hour).UTC().Format(time.RFC3339)) + "\n"
	}
	w.hosts["index.example.org"] = files(map[string]string{"/config.json": `{"dl":"https://static.example.org/{crate}/{version}"}`, "/de/mo/demo": line("1.0.0", 30) + line("2.0.0", 2)})
	w.hosts["static.example.org"] = files(map[string]string{"/demo/1.0.0": "a crate", "/demo/2.0.0": "a crate"})
	index, static := Registry{Kind: network.Cargo, Host: "index.example.org"}, Registry{Kind: network.Cargo, Host: "static.example.org"}
	for range 2 {
		w.get(aged(index), "/de/mo/demo").is(t, "index", line("1.0.0", 30))
		w.get(aged(static), "/demo/1.0.0").is(t, "crate", "a crate")
		w.get(aged(static), "/demo/2.0.0").denied(t, "young crate", "was published on")
		w.get(index, "/config.json").is(t, "config", `{"dl":"https://static.example.org/{crate}/{version}"}`)
		w.off = true
	}
	if len(w.seen) != 3 || len(w.kept("")) != 3 {
		t.Errorf("%d requests, %v", len(w.seen), w.kept(""))
	}
}

// TestGo: files of versions are kept, the young ones are not there, and the checksum database is passed on and kept.
func TestGo(t *testing.T) {
	w := newWorld(t)
	info := func(version string, days int) string {
		return fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, w.now.Add(-time.Duration(days)*24*time.Hour).UTC().Format(time.RFC3339))
	}
	contents := map[string]string{
		"/a/@v/list": "v1.0.0\nv1.1.0\nv1.2.0\n", "/a/@v/v1.0.0.info": info("v1.0.0", 30), "/a/@v/v1.1.0.info": info("v1.1.0", 2), "/a/@v/v1.0.0.mod": "module a",
		"/a/@v/v1.0.0.zip": "a zip", "/a/@v/v1.1.0.zip": "a young zip", "/a/@latest": info("v1.1.0", 2), "/a/@v/main.info": info("v1.0.0", 30),
		"/sumdb/sum.example.org/supported": "", "/sumdb/sum.example.org/lookup/a@v1.0.0": "1\na v1.0.0 h1:x\n", "/sumdb/sum.example.org/tile/8/0/000": "a tile",
	}
	w.hosts["proxy.example.org"] = files(contents)
	r := Registry{Kind: network.Go, Host: "proxy.example.org"}
	for range 2 {
		w.get(aged(r), "/a/@v/list").is(t, "list", "v1.0.0\n")
		for _, path := range []string{"/a/@v/v1.0.0.info", "/a/@v/v1.0.0.mod", "/a/@v/v1.0.0.zip", "/a/@v/main.info", "/sumdb/sum.example.org/supported", "/sumdb/sum.example.org/lookup/a@v1.0.0", "/sumdb/sum.example.org/tile/8/0/000"} {
			w.get(aged(r), path).is(t, path, contents[path])
		}
		for path, why := range map[string]string{"/a/@v/v1.1.0.zip": "was published on", "/a/@v/v1.1.0.info": "was published on", "/a/@latest": "more recently", "/a/@v/main.zip": "does not know"} {
			w.get(aged(r), path).denied(t, path, why)
		}
		w.off = true
		w.restart()
	}
	w.get(r, "/a/@v/list").is(t, "list, without min_age", contents["/a/@v/list"])
	for _, want := range []string{"a@v1.0.0.zip", "a@v1.0.0.mod", "a@v1.0.0.info", "a@list", "checksums tile/8/0/000"} {
		if w.kept("")[want] == nil {
			t.Errorf("%s is not kept", want)
		}
	}
}

// TestDebian: files are verified by indexes, which are asked for each time.
func TestDebian(t *testing.T) {
	w := newWorld(t)
	var z bytes.Buffer
	writer := gzip.NewWriter(&z)
	_, _ = io.WriteString(writer, "Package: demo\nFilename: pool/demo_1.0_all.deb\nSHA256: "+sumOf("a package")+"\n\n")
	_ = writer.Close()
	packages := "/debian/dists/stable/main/binary-all/by-hash/SHA256/" + sumOf(z.String())
	contents := map[string]string{"/debian/dists/stable/InRelease": "signed", packages: z.String(), "/debian/pool/demo_1.0_all.deb": "another one"}
	w.hosts["deb.example.org"] = files(contents)
	r := Registry{Kind: network.Debian, Host: "deb.example.org", Scheme: "http"}
	w.get(r, "/debian/pool/demo_1.0_all.deb").is(t, "unknown", "another one")
	w.get(r, "/debian/dists/stable/InRelease").is(t, "InRelease", "signed")
	w.get(r, packages).is(t, "Packages", z.String())
	w.get(r, "/debian/pool/demo_1.0_all.deb").denied(t, "wrong", "another digest than sha256:")
	contents["/debian/pool/demo_1.0_all.deb"] = "a package"
	w.get(r, "/debian/pool/demo_1.0_all.deb").is(t, "right", "a package")
	w.get(r, "/debian/dists/stable/InRelease").is(t, "InRelease again", "signed")
	if last := w.seen[len(w.seen)-1]; last.Header.Get("If-None-Match") == "" {
		t.Error("an index that clients compare with others was not asked for again")
	}
	contents["/debian/dists/stable/InRelease"] = "signed again"
	w.get(r, "/debian/dists/stable/InRelease").is(t, "InRelease changed", "signed again")
	w.restart()
	contents["/debian/pool/demo_1.0_all.deb"] = "wrong"
	w.get(r, packages).is(t, "Packages, kept", z.String()) // and read again
	w.off = true
	w.get(r, "/debian/dists/stable/InRelease").is(t, "InRelease, off", "signed again")
	w.get(r, "/debian/pool/demo_1.0_all.deb").is(t, "kept", "a package")
	w.off = false
	contents[strings.Replace(packages, "binary-all", "binary-amd64", 1)] = "wrong"
	w.get(r, strings.Replace(packages, "binary-all", "binary-amd64", 1)).denied(t, "by-hash", "another digest")
}

// TestBounds: an index that is too large, or that decompresses to one, is not read, and answers with other encodings are refused.
func TestBounds(t *testing.T) {
	w := newWorld(t)
	body := []byte(`{"versions":{}}`)
	encoding := ""
	w.hosts["npm.example.org"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Encoding", encoding)
		_, _ = rw.Write(body)
	})
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	w.cache.most = 10 << 20
	for range w.cache.most >> 20 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_, _ = z.Write(make([]byte, 1))
	_ = z.Close()
	for _, tt := range []struct {
		encoding string
		body     []byte
		want     string
	}{
		{"gzip", bomb.Bytes(), "more than 10 MiB"}, {"br", body, "did not ask for"}, {"gzip", body, "header"}, {"gzip", bomb.Bytes()[:bomb.Len()/2], "EOF"},
	} {
		encoding, body = tt.encoding, tt.body
		if g := w.get(npm, "/demo"); g.err == nil || !strings.Contains(g.err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.encoding, g.err, tt.want)
		}
	}
	if len(w.cache.permits[0])+len(w.cache.permits[1])+len(w.cache.permits[2])+len(w.cache.permits[3])+len(w.cache.inner) != 0 {
		t.Error("permission to read is not given back")
	}
	if len(w.kept("")) != 0 {
		t.Errorf("%v", w.kept(""))
	}
	// A large one is read.
	encoding, body = "", []byte(`{"versions":{},"readme":"`+strings.Repeat("x", 2*classes[2].size)+`"}`)
	w.get(npm, "/demo").is(t, "a large index", string(body))
}

// TestMemory: indexes are read at once as far as memory allows, those of the usual size, too.
func TestMemory(t *testing.T) {
	w := newWorld(t)
	contents := map[string]string{"/small": `{"versions":{}}`, "/usual": `{"versions":{},"readme":"` + strings.Repeat("x", classes[1].size/2) + `"}`}
	w.hosts["npm.example.org"] = files(contents)
	for range classes[1].most {
		w.cache.permits[1] <- struct{}{}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	during := func(r *http.Request) { *r = *r.WithContext(ended) }
	w.get(npm, "/small", during).is(t, "a small index", contents["/small"])
	for range 20 { // what could go on does, or ends with its request
		if g := w.get(npm, "/usual", during); g.err == nil || !strings.Contains(g.err.Error(), "too many large indexes") {
			t.Fatalf("one more: %+v", g.err)
		}
	}
	<-w.cache.permits[1]
	w.get(npm, "/usual").is(t, "a place is free", contents["/usual"])
	if len(w.cache.permits[1]) != classes[1].most-1 {
		t.Errorf("%d are read", len(w.cache.permits[1]))
	}
}

// TestClasses: all permissions together are for less memory than the maximum, and what an index of a class takes is less than its part.
func TestClasses(t *testing.T) {
	sum := inner.most * inner.memory
	for _, c := range classes {
		sum += c.most * c.memory
	}
	if sum > maxMemory {
		t.Errorf("all take %d bytes, the maximum is %d", sum, maxMemory)
	}

	old, file := `"2020-01-01T00:00:00Z"`, `{"filename":"a-%d.whl","url":"%d","upload-time":"2020-01-01T00:00:00Z","hashes":{"sha256":"`+sumOf("x")+`"},"x":"%s"}`
	bodies := map[string]func(size int) string{
		"PyPI, files": func(size int) string {
			var b strings.Builder
			pad := strings.Repeat("x", 64+size>>18)
			b.WriteString(`{"files":[`)
			for n := 0; b.Len() < size-500; n++ {
				fmt.Fprintf(&b, file+",", n, n, pad)
			}
			b.WriteString(`{"upload-time":"2999-01-01T00:00:00Z"}]}`)
			return b.String()
		},
		"npm, versions": func(size int) string {
			var v, times strings.Builder
			pad := strings.Repeat("x", size>>17)
			for n := 0; v.Len()+times.Len() < size-700; n++ {
				fmt.Fprintf(&v, `"%d":{"x":"`+pad+`","dist":{"tarball":"%d","integrity":"sha512-`+strings.Repeat("A", 86)+`=="}},`, n, n)
				fmt.Fprintf(&times, `"%d":`+old+`,`, n)
			}
			return `{"versions":{` + v.String() + `"x":{}},"time":{` + times.String() + `"x":"2999-01-01T00:00:00Z"}}`
		},
	}
	for name, of := range bodies {
		kind, content := network.NPM, "application/json"
		if strings.HasPrefix(name, "PyPI") {
			kind, content = network.PyPI, SimpleJSON
		}
		for _, c := range classes {
			if !sandboxtest.Soak() && c.size > 4<<20 {
				continue // isolate/test/network TestRegistryMemory has the program itself read some of these
			}
			d := Document{URL: &url.URL{Scheme: "https", Host: "example.org", Path: "/"}, Type: content, Body: []byte(of(c.size))}
			before := heap()
			r, err := Read(kind, d, Options{Before: time.Now()})
			took := heap() - before + len(d.Body)
			if err != nil || len(r.Facts) == 0 || len(r.Body) < c.size/2 || took > c.memory {
				t.Errorf("%s, %d KiB: %d KiB of %d, %d facts, %v", name, c.size>>10, took>>10, c.memory>>10, len(r.Facts), err)
			}
			runtime.KeepAlive(d)
			runtime.KeepAlive(r)
		}
	}
}

// heap returns the bytes that are in use.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestDecompressed: indexes of packages wait for the memory of a decompressor, until their requests end.
func TestDecompressed(t *testing.T) {
	w := newWorld(t)
	w.hosts["deb.example.org"] = files(map[string]string{"/dists/stable/main/binary-all/Packages": "Filename: pool/a.deb\nSHA256: " + sumOf("a") + "\n", "/pool/a.deb": "b"})
	r := Registry{Kind: network.Debian, Host: "deb.example.org", Scheme: "http"}
	w.cache.permits[3] <- struct{}{}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	g := w.get(r, "/dists/stable/main/binary-all/Packages", func(r *http.Request) { *r = *r.WithContext(ended) })
	if !errors.Is(g.err, context.Canceled) {
		t.Errorf("one more: %v", g.err)
	}
	<-w.cache.permits[3]
	if g := w.get(r, "/dists/stable/main/binary-all/Packages"); g.err != nil || len(w.cache.permits[3]) != 0 {
		t.Errorf("a place is free: %v, %d are read", g.err, len(w.cache.permits[3]))
	}
	w.get(r, "/pool/a.deb").denied(t, "read", "another digest")
}

// TestFacts: what is known is bounded, and two indexes that have a file complete each other.
func TestFacts(t *testing.T) {
	f := newFacts()
	at := time.Now()
	f.add("r", Fact{Address: "a", Digest: ParseDigest("sha256:" + sumOf("x"))}, Fact{Address: "a", Published: at}, Fact{})
	if got, ok := f.get("r", "a"); !ok || got.Digest == (Digest{}) || !got.Published.Equal(at) {
		t.Errorf("%+v", got)
	}
	if _, ok := f.get("s", "a"); ok {
		t.Error("a fact of another rule")
	}
	m := map[[32]byte]int{}
	for n := range 10 {
		put(m, 3, keyOf("", fmt.Sprint(n)), n)
	}
	if _, ok := m[keyOf("", "9")]; !ok || len(m) != 3 {
		t.Errorf("%v", m)
	}
}
