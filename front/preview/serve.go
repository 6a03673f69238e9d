package preview

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"corral/internal/gate"
)

const (
	// openPath is the path of links, at the host name of each preview.
	openPath = "/.corral/open"
	// tokenParameter is the parameter of links.
	tokenParameter = "token"
	// cookieName is the name of the cookie that a link is exchanged for.
	cookieName = "corral-preview"
)

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at, ok := s.placeOf(r.Host)
	switch {
	case !ok:
		say(w, http.StatusMisdirectedRequest, "This is not the host name of a preview.\nOpen a link of one, as POST /previews of corral serve makes them.")
		return
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		say(w, http.StatusMethodNotAllowed, "A preview takes no such method.")
		return
	case gate.PeerOf(r.Context()) == (gate.Peer{}):
		say(w, http.StatusForbidden, "The kernel does not tell which user of this machine has connected.\nThe log of corral serve says more.")
		return
	case r.URL.Path == openPath:
		s.open(w, r, at)
		return
	}
	by, cookie, ok := s.visitor(r, at)
	switch {
	case !ok:
		say(w, http.StatusForbidden, "This browser has not opened a link to this preview, or long ago.\nA link can be opened once: ask for a new one.")
	case !sameOrigin(r):
		say(w, http.StatusForbidden, "A page of another site sent this request.\nOpen the preview in a tab of its own.")
	case !s.c.Has(by, at.session):
		gone(w)
	case !gate.Admit(r.Context(), by.Principal):
		w.Header().Set("Connection", "close")
		say(w, http.StatusServiceUnavailable, "Too many connections to previews are open.")
	case !plainUpgrade(r):
		say(w, http.StatusBadRequest, "A preview upgrades connections to WebSocket only.")
	case serviceWorker(r):
		say(w, http.StatusForbidden, "A preview has no service workers: they would outlast its session.")
	default:
		s.pass(w, r, cookie, at)
	}
}

// pass has the server in the session answer a request, for as long as the browser may see the preview.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, cookie string, at place) {
	ctx, end := context.WithCancel(r.Context())
	var check sync.WaitGroup
	check.Go(func() {
		ticks := time.NewTicker(gate.CheckInterval)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				if by, ok := s.grants.Owner(cookie, at, gate.PeerOf(ctx), s.c.Now()); !ok || !s.c.Has(by, at.session) {
					end() // which closes the connection to the server in the session, and then that of the browser
				}
			}
		}
	})
	defer check.Wait()
	defer end() // the proxy panics when it gives up in the middle of a response
	// Otherwise, net/http would read and close the body of the request before it writes a response, and where that came sooner than the proxy
	// saw the end of the body, the proxy would take the closed body for a failure and cut the response off.
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
		s.c.Log.Debug("preview", "error", err)
	}
	s.proxy.ServeHTTP(final{w}, r.WithContext(ctx))
}

// open exchanges the token of a link for a cookie. It redirects to the beginning of the preview and nowhere else.
func (s *Server) open(w http.ResponseWriter, r *http.Request, at place) {
	if r.Method != http.MethodGet { // such as HEAD of a program that looks at links in messages
		w.Header().Set("Allow", http.MethodGet)
		say(w, http.StatusMethodNotAllowed, "Open the link in a browser.")
		return
	}
	tokens := r.URL.Query()[tokenParameter]
	if len(tokens) != 1 || len(tokens[0]) > gate.MaxToken {
		say(w, http.StatusForbidden, "This link is not complete.")
		return
	}
	cookie, ok := s.grants.Open(tokens[0], at, gate.PeerOf(r.Context()), s.c.Now())
	if _, _, seen := s.visitor(r, at); !ok && seen { // this browser has opened it: some load a page before a person goes there
		redirect(w)
		return
	}
	if !ok {
		say(w, http.StatusForbidden, "This link was opened before, or is too old.\nA link can be opened once: ask for a new one.")
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: int(grantTime.Seconds()),
	})
	redirect(w)
}

// redirect sends a browser to the beginning of the preview.
func redirect(w http.ResponseWriter) {
	private(w.Header())
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", "/")
	w.WriteHeader(http.StatusSeeOther)
}

// maxCookies is how many cookies of our name are looked at: a page of another site may have added one.
const maxCookies = 8

// visitor returns on whose behalf a request sees a place, and the cookie that says so.
func (s *Server) visitor(r *http.Request, at place) (by gate.Holder, cookie string, ok bool) {
	for n, c := range r.CookiesNamed(cookieName) {
		if n == maxCookies {
			break
		}
		if by, ok := s.grants.Use(c.Value, at, gate.PeerOf(r.Context()), s.c.Now()); ok {
			return by, c.Value, true
		}
	}
	return gate.Holder{}, "", false
}

// sameOrigin reports whether a page of the preview itself sent a request, or a person did by following a link. A browser says
// so by Origin or, for requests without one, by Sec-Fetch-Site; others come only from a person's own programs.
func sameOrigin(r *http.Request) bool {
	switch origins := r.Header.Values("Origin"); {
	case len(origins) > 1:
		return false
	case len(origins) == 1:
		return strings.EqualFold(origins[0], "http://"+r.Host)
	}
	switch site := r.Header.Values("Sec-Fetch-Site"); {
	case len(site) > 1:
		return false
	case len(site) == 0 || site[0] == "same-origin" || site[0] == "none":
		return true
	}
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// plainUpgrade reports whether a request asks for no other protocol than WebSocket.
func plainUpgrade(r *http.Request) bool {
	up := r.Header.Values("Upgrade")
	if len(up) == 0 {
		return true
	}
	return len(up) == 1 && strings.EqualFold(up[0], "websocket") && r.Method == http.MethodGet && r.ContentLength == 0 &&
		len(r.TransferEncoding) == 0
}

// serviceWorker reports whether a browser asks for the script of a service worker, as browsers say by Service-Worker (Service
// Workers, "Update") and Sec-Fetch-Dest.
func serviceWorker(r *http.Request) bool {
	return r.Header.Values("Service-Worker") != nil || slices.Contains(r.Header.Values("Sec-Fetch-Dest"), "serviceworker")
}

// rewrite makes the request that the server in the session gets. It has the host name of the preview: the server compares that
// with the origin that pages have.
func (s *Server) rewrite(p *httputil.ProxyRequest) {
	host, _, _ := strings.Cut(strings.ToLower(p.In.Host), ":")
	p.Out.URL.Scheme, p.Out.URL.Host = "http", host
	p.Out.Host = p.In.Host
	p.Out.URL.RawQuery = p.In.URL.RawQuery // not cleaned: the server reads it as the browser meant it
	hideCookies(p.Out.Header)
	if token, ok := gate.Bearer(p.In); ok && s.c.Secret(token) {
		p.Out.Header.Del("Authorization")
	}
	if referrer, err := url.Parse(p.In.Referer()); err != nil || referrer.Path == openPath {
		p.Out.Header.Del("Referer")
	}
	p.Out.Header.Del("Proxy-Authorization")
}

// hideCookies removes our own cookies from a request.
func hideCookies(h http.Header) {
	var lines []string
	for _, line := range h.Values("Cookie") {
		var others []string
		for part := range strings.SplitSeq(line, ";") {
			name, _, _ := strings.Cut(part, "=")
			if !strings.EqualFold(strings.TrimSpace(name), cookieName) {
				others = append(others, strings.TrimSpace(part))
			}
		}
		if len(others) > 0 {
			lines = append(lines, strings.Join(others, "; "))
		}
	}
	h.Del("Cookie")
	if len(lines) > 0 {
		h["Cookie"] = lines
	}
}
