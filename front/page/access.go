package page

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"corral/internal/gate"
	"corral/internal/ratelimit"
)

const (
	// cookieName is the name of the cookie of a person who has logged in. With this prefix, browsers take it from the host itself alone,
	// for all paths, and over TLS or the loopback interface.
	cookieName = "__Host-corral-page"
	// tokenHeader is the header of requests that change something. Its value is in the answer of /api/me.
	tokenHeader = "X-Corral-Token"
	// maxBody is the maximum size of the body of a request in bytes.
	maxBody = 1 << 10
	// maxCookies is how many cookies of our name are looked at.
	maxCookies = 4
)

// A visitor is a person who has logged in.
type visitor struct {
	Access
	by     gate.Holder
	peer   gate.Peer // who sent the cookie
	cookie string
	host   string // at which the cookie is valid
}

// token returns what requests that change something have to repeat. It tells nothing about the cookie.
func (v *visitor) token() string {
	sum := sha256.Sum256([]byte("corral page token\x00" + v.cookie))
	return hex.EncodeToString(sum[:])
}

// A handler answers a request of a visitor.
type handler func(w http.ResponseWriter, r *http.Request, v *visitor)

// known returns a handler for requests of people who have logged in, which prolongs their stay.
func (s *Server) known(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, ok := s.enter(w, r)
		if !ok {
			return
		}
		if _, ok := s.grants.Use(v.cookie, v.host, v.peer, s.c.Now()); !ok {
			loggedOut(w)
			return
		}
		if r.Method == http.MethodPost && subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(v.token())) != 1 {
			fail(w, http.StatusForbidden, "the request has no valid "+tokenHeader)
			return
		}
		h(w, r, v)
	}
}

// enter returns the visitor who sent a request, or answers it.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) (*visitor, bool) {
	if !ownPage(r) {
		fail(w, http.StatusForbidden, "another page sent this request")
		return nil, false
	}
	v, ok := s.visitor(r)
	switch {
	case !ok:
		loggedOut(w)
	case !gate.Admit(r.Context(), v.by.Principal):
		w.Header().Set("Connection", "close")
		busy(w, "too many connections are open")
	case !s.rates.take(v.by.Principal, s.c.Now()):
		busy(w, "too many requests")
	default:
		return v, true
	}
	return nil, false
}

// loggedOut answers a request without a valid cookie.
func loggedOut(w http.ResponseWriter) { fail(w, http.StatusUnauthorized, "not logged in") }

// busy answers a request that can be sent again later.
func busy(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	fail(w, http.StatusServiceUnavailable, why)
}

// ownPage reports whether the page itself sent a request, whose Host is a name of the page. A browser says so by Sec-Fetch-Site, which
// scripts cannot set, and for requests that change something by Origin. The cookie is SameSite=Strict besides.
func ownPage(r *http.Request) bool {
	site, origin := r.Header.Values("Sec-Fetch-Site"), r.Header.Values("Origin")
	if len(site) != 1 || site[0] != "same-origin" || len(origin) > 1 {
		return false
	}
	if len(origin) == 0 {
		return r.Method == http.MethodGet
	}
	return strings.EqualFold(origin[0], "http://"+r.Host)
}

// visitor returns the person who sent a request, if their cookie and its token are valid and the principal has the right now.
func (s *Server) visitor(r *http.Request) (*visitor, bool) {
	host, peer := nameOf(r.Host), gate.PeerOf(r.Context())
	for n, c := range r.CookiesNamed(cookieName) {
		if n == maxCookies {
			break
		}
		if by, ok := s.grants.Owner(c.Value, host, peer, s.c.Now()); ok {
			a, may := s.c.Access(by)
			return &visitor{a, by, peer, c.Value, host}, may
		}
	}
	return nil, false
}

// stays reports whether a visitor is still logged in and may see what they could see when they began.
func (s *Server) stays(v *visitor) bool {
	by, ok := s.grants.Owner(v.cookie, v.host, v.peer, s.c.Now())
	if !ok || by != v.by {
		return false
	}
	a, may := s.c.Access(by)
	return may && a.All == v.All
}

// login exchanges the token of a link for a cookie. The page reads the token from the fragment of its address and sends it here: so no
// program that looks at links uses it up, and no log of requests has it.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	if !ownPage(r) {
		fail(w, http.StatusForbidden, "another page sent this request")
		return
	}
	host, peer := nameOf(r.Host), gate.PeerOf(r.Context())
	if peer == (gate.Peer{}) {
		fail(w, http.StatusForbidden, "the kernel does not tell which user of this machine has connected: the log of corral serve says more")
		return
	}
	if !s.rates.take(host, s.c.Now()) {
		busy(w, "too many requests")
		return
	}
	var body struct{ Token string }
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // not every ResponseWriter supports it
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil || json.Unmarshal(data, &body) != nil || len(body.Token) > gate.MaxToken {
		fail(w, http.StatusBadRequest, "not a token of a link")
		return
	}
	cookie, ok := s.grants.Open(body.Token, host, peer, s.c.Now())
	if !ok {
		fail(w, http.StatusForbidden, "this link was opened before, or is too old: ask for a new one")
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: cookie, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode,
		MaxAge: int(cookieTime.Seconds()),
	})
	done(w)
}

func (s *Server) logout(w http.ResponseWriter, _ *http.Request, v *visitor) {
	s.grants.End(v.cookie)
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode, MaxAge: -1})
	done(w)
}

// me tells the page who has logged in.
func (s *Server) me(w http.ResponseWriter, _ *http.Request, v *visitor) {
	writeJSON(w, map[string]any{
		"principal": shown(v.by.Principal, maxName), "operator": v.All, "audit": v.All && s.c.Audit != nil, "token": v.token(),
	})
}

// rate is how many requests each principal may send.
var rate = ratelimit.Rate{Burst: 60, PerSecond: 20}

// rates bound how often principals send requests. The zero value is ready to use.
type rates struct {
	mu   sync.Mutex
	left map[string]ratelimit.Bucket // guarded by mu: by principal, and by host name for those who log in
}

// take reports whether a principal may send a request now, and counts it. Principals are those of the configuration.
func (r *rates) take(principal string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == nil {
		r.left = map[string]ratelimit.Bucket{}
	}
	b := r.left[principal]
	ok := b.Take(rate, now)
	r.left[principal] = b
	return ok
}
