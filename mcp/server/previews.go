package server

import (
	"net/http"

	"corral/internal/gate"
)

const (
	// PreviewsPath is where Serve makes links to what the servers in a caller's sessions serve.
	PreviewsPath = "/previews"
	// PagePath is where Serve makes links by which a person logs in to the page.
	PagePath = "/page"
)

// links returns a handler for a path at which links are made. make is called for callers with a valid token only.
func (h *web) links(make func(principal string, r *http.Request) (status int, data []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fail := func(status int) {
			w.Header().Set("Connection", "close")
			writeText(w, status, "text/plain; charset=utf-8", []byte(http.StatusText(status)+"\n"))
		}
		if !h.Host(r) || !h.Origin(r) {
			fail(http.StatusForbidden)
			return
		}
		c, ok := h.caller(r)
		switch {
		case !ok:
			w.Header().Set("WWW-Authenticate", `Bearer realm="corral"`)
			fail(http.StatusUnauthorized)
		case !gate.Admit(r.Context(), c.Principal):
			w.Header().Set("Retry-After", "1")
			fail(http.StatusServiceUnavailable)
		case r.Method != http.MethodPost: // a GET can be repeated by anybody on the way, and each call makes links
			w.Header().Set("Allow", http.MethodPost)
			fail(http.StatusMethodNotAllowed)
		default:
			status, data := make(c.Principal, r)
			writeText(w, status, "application/json", data)
		}
	}
}
