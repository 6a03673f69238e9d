package server

import (
	"net/http"
	"slices"
	"strconv"

	"corral/internal/gate"
	"corral/mcp/tool"
)

const (
	// MetricsPath is where Serve has metrics, for callers whose Tools name MetricsTool. A caller that may use all tools may not
	// read them: they say what other principals do, together.
	MetricsPath = "/metrics"
	// MetricsTool is the name by which a token is allowed to read MetricsPath.
	MetricsTool = "metrics"
)

// metricsType is the media type of the text format 0.0.4 of Prometheus.
const metricsType = "text/plain; version=0.0.4; charset=utf-8"

// measure returns a handler for MetricsPath. text is called for callers that may read it only.
func (h *web) measure(text func() ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, status := h.enter(w, r)
		switch {
		case status != http.StatusOK:
		case !slices.Contains(c.Tools, MetricsTool):
			status = http.StatusForbidden
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			status = http.StatusMethodNotAllowed
		}
		if status != http.StatusOK {
			writeStatus(w, status)
			return
		}
		data, err := text()
		if err != nil {
			h.log.ErrorContext(r.Context(), "the metrics could not be written", "error", err)
			writeText(w, http.StatusInternalServerError, "text/plain; charset=utf-8", []byte("the server's diagnostic log says why\n"))
			return
		}
		writeText(w, http.StatusOK, metricsType, data)
	}
}

// enter returns the caller of a request for a path that has no messages, and http.StatusOK. Otherwise the status is that of the error,
// whose headers are set.
func (h *web) enter(w http.ResponseWriter, r *http.Request) (c tool.Caller, status int) {
	if !h.Host(r) || !h.Origin(r) {
		return c, http.StatusForbidden
	}
	c, ok := h.caller(r)
	switch {
	case !ok:
		w.Header().Set("WWW-Authenticate", `Bearer realm="corral"`)
		return c, http.StatusUnauthorized
	case !gate.Admit(r.Context(), c.Principal):
		w.Header().Set("Retry-After", "1")
		return c, http.StatusServiceUnavailable
	}
	return c, http.StatusOK
}

// writeStatus sends an error, after which the connection is closed.
func writeStatus(w http.ResponseWriter, status int) {
	w.Header().Set("Connection", "close")
	writeText(w, status, "text/plain; charset=utf-8", []byte(http.StatusText(status)+"\n"))
}

// writeText sends a complete response, which nobody may keep.
func writeText(w http.ResponseWriter, status int, media string, data []byte) {
	boundWrite(w)
	w.Header().Set("Content-Type", media)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data) // a client that does not read loses its response
}
