package page

import (
	"embed"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"corral/internal/text"
)

// writeTimeout is how long a client may take to read what is written.
const writeTimeout = 10 * time.Second

// Maximum lengths of texts that jobs and clients chose, in bytes.
const (
	maxName = 200
	maxLine = 4 << 10
)

// shown returns a text that a job or client chose, on one line, with what is not printable escaped.
func shown(s string, limit int) string { return text.Escape(text.Cut(s, limit)) }

// A file is one of the page's own.
type file struct {
	path, media string
	data        []byte
}

//go:embed page.html page.css page.js icon.svg
var embedded embed.FS

// files returns the files of the page. They are the same for everybody, and have nothing of a job.
func files() []file {
	var list []file
	for _, f := range []struct{ path, name, media string }{
		{"/{$}", "page.html", "text/html; charset=utf-8"},
		{"/page.css", "page.css", "text/css; charset=utf-8"},
		{"/page.js", "page.js", "text/javascript; charset=utf-8"},
		{"/icon.svg", "icon.svg", "image/svg+xml"},
	} {
		data, err := embedded.ReadFile(f.name)
		if err != nil {
			panic(err) // the compiler embeds all of them
		}
		list = append(list, file{f.path, f.media, data})
	}
	return list
}

func (f file) serve(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, f.media, f.data) }

// write sends a complete response.
func write(w http.ResponseWriter, status int, media string, data []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // not every ResponseWriter supports it
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data) // a client that does not read loses its response
}

// done sends a response without a body.
func done(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // as write
	w.WriteHeader(http.StatusNoContent)
}

// say answers with a text for people.
func say(w http.ResponseWriter, status int, message string) {
	write(w, status, "text/plain; charset=utf-8", []byte(message+"\n"))
}

// fail answers a request of the page with an error.
func fail(w http.ResponseWriter, status int, message string) {
	data, _ := json.Marshal(map[string]string{"error": text.Lines(message)}) // strings: it cannot fail
	write(w, status, "application/json", data)
}

// writeJSON answers a request of the page. encoding/json escapes <, > and &, too.
func writeJSON(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	write(w, http.StatusOK, "application/json", data)
}
