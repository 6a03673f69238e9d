package server

import (
	"net/http"

	"corral/internal/gate"
)

// Paths of Serve for those who watch the server: a load balancer, a service manager. They need no token, so their answers
// say nothing but yes or no.
const (
	HealthPath = "/healthz" // 200 while the server answers
	ReadyPath  = "/readyz"  // 200 if it can serve calls, otherwise 503
)

// probe answers GET and HEAD by whether ready returns nil; a nil ready always does.
func probe(ready func() error) http.Handler {
	state := gate.NewReadiness(ready)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		boundWrite(w)
		// The connection counts as one that has not sent a valid token. Kept open, it would only be the first to be evicted.
		w.Header().Set("Connection", "close")
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			w.WriteHeader(http.StatusMethodNotAllowed)
		case !state.Is():
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("not ready\n"))
		default:
			_, _ = w.Write([]byte("ok\n"))
		}
	})
}
