package server

import "net/http"

const (
	// PreviewsPath is where Serve makes links to what the servers in a caller's sessions serve.
	PreviewsPath = "/previews"
	// PagePath is where Serve makes links by which a person logs in to the page.
	PagePath = "/page"
)

// links returns a handler for a path at which links are made. make is called for callers with a valid token only.
func (h *web) links(make func(principal string, r *http.Request) (status int, data []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, status := h.enter(w, r)
		switch {
		case status != http.StatusOK:
			writeStatus(w, status)
		case r.Method != http.MethodPost: // a GET can be repeated by anybody on the way, and each call makes links
			w.Header().Set("Allow", http.MethodPost)
			writeStatus(w, http.StatusMethodNotAllowed)
		default:
			status, data := make(c.Principal, r)
			writeText(w, status, "application/json", data)
		}
	}
}
