package relay

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// A Secret is what the placeholder stands for in one header of requests to one host.
type Secret struct {
	Header string // where it is allowed, for example Authorization
	Format string // the value of the header, with {} in the secret's place
	Value  string
}

// minSecret is how long a secret must be for its value to be looked for in responses: a shorter one is in many.
const minSecret = 8

var (
	errPlaceholder = denied("the body of the request has the placeholder of a secret, which stands for it only in a header")
	errEcho        = errors.New("the response has the secret in it that the request was given")
)

// exchange puts the secret in the placeholder's place, and returns it if it did. A placeholder in any other place is denied.
func (i *Inspection) exchange(in *http.Request, secret *Secret) (used *Secret, d *Denied) {
	if i.Placeholder == "" {
		return nil, nil
	}
	if has(in.URL.String(), i.Placeholder) || has(in.RequestURI, i.Placeholder) {
		return nil, denied("the address of the request has the placeholder of a secret, which stands for it only in a header")
	}
	for name, values := range in.Header {
		if has(strings.ToLower(name), strings.ToLower(i.Placeholder)) {
			return nil, denied("the name of a header has the placeholder of a secret")
		}
		for n, value := range values {
			login, basic := readBasic(value)
			if !has(value, i.Placeholder) && !has(login, i.Placeholder) {
				continue
			}
			if secret == nil || len(values) != 1 || name != http.CanonicalHeaderKey(secret.Header) {
				return nil, denied("the header %.100q has the placeholder of a secret, which is not for it at this host", name)
			}
			used = secret
			values[n] = used.inPlaceOf(i.Placeholder, login, basic)
		}
	}
	if in.Body != nil && in.Body != http.NoBody {
		in.Body = &watched{ReadCloser: in.Body, text: []byte(i.Placeholder), err: errPlaceholder}
	}
	if used != nil {
		// What the host sends back must be readable for guard.
		in.Header.Set("Accept-Encoding", "identity")
	}
	return used, nil
}

// has reports whether a text has the placeholder in it, also escaped as in a URL.
func has(text, placeholder string) bool {
	if strings.Contains(text, placeholder) {
		return true
	}
	if !strings.Contains(text, "%") {
		return false
	}
	plain, err := url.QueryUnescape(text)
	return err == nil && strings.Contains(plain, placeholder)
}

// readBasic returns the user and password of a value of Authorization, as git and curl send them.
func readBasic(value string) (login string, ok bool) {
	scheme, encoded, _ := strings.Cut(value, " ")
	if !strings.EqualFold(scheme, "Basic") {
		return "", false
	}
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	return string(b), err == nil
}

// inPlaceOf returns the value of the header with the secret. A login keeps its user.
func (s *Secret) inPlaceOf(placeholder, login string, basic bool) string {
	if basic && strings.Contains(login, placeholder) {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(login, placeholder, s.Value)))
	}
	return strings.ReplaceAll(s.Format, "{}", s.Value)
}

// guard makes a response one that does not tell the job the secret, as a service does that sends requests back.
func (s *Secret) guard(reply *http.Response) error {
	reply.Header.Del("Alt-Svc")
	if encoding := reply.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return errors.New("the response is compressed, although that was not accepted: nobody can look for the secret in it")
	}
	if s.isIn(reply.Header) {
		return errEcho
	}
	for _, text := range s.forms() {
		reply.Body = &watched{ReadCloser: reply.Body, text: text, err: errEcho}
	}
	return nil
}

// forms returns the texts that tell the secret.
func (s *Secret) forms() [][]byte {
	if len(s.Value) < minSecret {
		return nil
	}
	list := [][]byte{[]byte(s.Value)}
	if escaped := url.QueryEscape(s.Value); escaped != s.Value {
		list = append(list, []byte(escaped))
	}
	return list
}

func (s *Secret) isIn(header http.Header) bool {
	for _, form := range s.forms() {
		for _, values := range header {
			if strings.Contains(strings.Join(values, "\n"), string(form)) {
				return true
			}
		}
	}
	return false
}

// A guarded writer sends no header that tells the secret: those of a response, and trailers. It drops informational responses, which
// httputil.ReverseProxy passes on from a goroutine of the transport.
type guarded struct {
	http.ResponseWriter
	secret *Secret
}

// WriteHeader implements http.ResponseWriter.
func (g *guarded) WriteHeader(status int) {
	if status < http.StatusOK {
		return
	}
	g.check()
	g.ResponseWriter.WriteHeader(status)
}

// check ends the response if a header tells the secret.
func (g *guarded) check() {
	if g.secret.isIn(g.Header()) {
		panic(http.ErrAbortHandler)
	}
}

// Unwrap is for http.ResponseController.
func (g *guarded) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// A watched body fails before it passes a text on.
type watched struct {
	io.ReadCloser
	text   []byte
	err    error
	buffer []byte // read, and not passed on yet
	end    error  // after buffer
	found  bool
}

// Read implements io.Reader. It holds back what may be the beginning of the text.
func (w *watched) Read(p []byte) (int, error) {
	for {
		if w.found {
			return 0, w.err
		}
		if ready := w.ready(); ready > 0 {
			n := copy(p, w.buffer[:ready])
			w.buffer = w.buffer[n:]
			return n, nil
		}
		if w.end != nil {
			return 0, w.end
		}
		if len(p) == 0 {
			return 0, nil
		}
		w.fill(len(p))
	}
}

// ready returns how many bytes cannot be part of the text.
func (w *watched) ready() int {
	if w.end != nil {
		return len(w.buffer)
	}
	// The longest end of the buffer that begins the text.
	for n := min(len(w.buffer), len(w.text)-1); n > 0; n-- {
		if bytes.Equal(w.buffer[len(w.buffer)-n:], w.text[:n]) {
			return len(w.buffer) - n
		}
	}
	return len(w.buffer)
}

// fill reads more, at most n bytes.
func (w *watched) fill(n int) {
	part := make([]byte, min(n, bufferSize))
	n, err := w.ReadCloser.Read(part)
	w.buffer = append(w.buffer, part[:n]...)
	w.end = err
	w.found = bytes.Contains(w.buffer, w.text)
}
