package relay

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A Secret is what the placeholder stands for in one header of requests to one host.
type Secret struct {
	Header string // where it is allowed, for example Authorization
	Format string // the value of the header, with {} in the secret's place
	Value  string
	Body   bool // the placeholder may be in bodies, where it stands for nothing
}

// MinSecret is the minimum length in bytes of a Secret.Value. A shorter one is not looked for in responses, as it is in many by chance.
const MinSecret = 8

var (
	errPlaceholder = denied("the body of the request has the placeholder of a secret, which stands for it only in a header")
	errEcho        = denied("the response has a secret in it that requests to this host are given")
)

// exchange puts the secret in the placeholder's place, and returns whether it did. A placeholder in any other place is denied, unless it
// is in a body that may have it.
func (i *Inspection) exchange(in *http.Request, secret *Secret) (used bool, d *Denied) {
	if i.Placeholder == "" {
		return false, nil
	}
	if has(in.URL.String(), i.Placeholder) || has(in.RequestURI, i.Placeholder) {
		return false, denied("the address of the request has the placeholder of a secret, which stands for it only in a header")
	}
	for name, values := range in.Header {
		exchanged, d := i.exchangeIn(name, values, secret)
		if d != nil {
			return false, d
		}
		used = used || exchanged
	}
	if in.Body != nil && in.Body != http.NoBody && (secret == nil || !secret.Body) {
		in.Body = &watched{ReadCloser: in.Body, texts: guard{[]byte(i.Placeholder)}, err: errPlaceholder}
	}
	return used, nil
}

// exchangeIn is exchange for the values of one header.
func (i *Inspection) exchangeIn(name string, values []string, secret *Secret) (used bool, d *Denied) {
	if has(strings.ToLower(name), strings.ToLower(i.Placeholder)) {
		return false, denied("the name of a header has the placeholder of a secret")
	}
	for n, value := range values {
		login, basic := readBasic(value)
		if !has(value, i.Placeholder) && !has(login, i.Placeholder) {
			continue
		}
		if secret == nil || len(values) != 1 || name != http.CanonicalHeaderKey(secret.Header) {
			return false, denied("the header %.100q has the placeholder of a secret, which is not for it at this host", name)
		}
		if max(strings.Count(value, i.Placeholder), strings.Count(login, i.Placeholder)) > 1 { // as user and password: hosts log users
			return false, denied("the header %.100q has the placeholder of a secret several times", name)
		}
		values[n] = secret.inPlaceOf(i.Placeholder, login, basic)
		used = true
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

// Login returns the user and password that the job wrote around the secret in a value of the header, with {} in the secret's place.
// "" is the operator's own value: the job chose nothing in it.
func (s *Secret) Login(value string) string {
	if value == strings.ReplaceAll(s.Format, "{}", s.Value) {
		return ""
	}
	login, basic := readBasic(value)
	if !basic {
		login = value
	}
	return strings.ReplaceAll(login, s.Value, "{}")
}

// Mark returns a text that is most likely another one for another value, so that what was requested with a former value of a secret is not
// found with a newer one. It has too little of the value's digest for anybody to find the value by trying.
func (s *Secret) Mark() string {
	sum := sha256.Sum256([]byte(s.Value))
	return hex.EncodeToString(sum[:2])
}

// forms returns the texts that tell the secret: as honest programs write a text that they were sent, see guard. One that is base64 tells
// it wherever in the encoded text it begins.
func (s *Secret) forms() []string {
	list := formsOf(s.Value)
	if login, basic := readBasic(strings.ReplaceAll(s.Format, "{}", s.Value)); basic { // the operator's value is a login in base64
		_, password, _ := strings.Cut(login, ":")
		list = append(append(list, formsOf(login)...), formsOf(password)...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// formsOf returns the forms of one text.
func formsOf(value string) []string {
	if len(value) < MinSecret {
		return nil
	}
	quoted := strconv.Quote(value) // as JSON has printable ASCII
	escaped, _ := json.Marshal(value)
	list := []string{value, html.EscapeString(value), url.PathEscape(value), url.QueryEscape(value)}
	list = append(list, lowerEscapes(list[2]), lowerEscapes(list[3]))
	for _, text := range []string{quoted, string(escaped)} {
		text = text[1 : len(text)-1]
		list = append(list, text, strings.ReplaceAll(text, "/", `\/`))
	}
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), value...))
		if (before+len(value))%3 != 0 {
			text = text[:len(text)-1] // has bits of what follows
		}
		if before > 0 {
			text = text[before+1:] // had bits of what is before
		}
		list = append(list, text, strings.NewReplacer("+", "-", "/", "_").Replace(text))
	}
	return list
}

// lowerEscapes writes the digits of a URL's escapes in lower case.
func lowerEscapes(s string) string {
	parts := strings.Split(s, "%")
	for n, part := range parts[1:] {
		parts[n+1] = strings.ToLower(part[:2]) + part[2:]
	}
	return strings.Join(parts, "%")
}

// A guard keeps secrets out of what a host tells the job by accident, as a service does that sends requests back. It has the texts that
// tell them; an empty one is none. It is no defense against a host that means to tell a secret, which has it: there is always one more
// encoding. So forms has those that honest services use for what they were sent, and no others.
type guard [][]byte

// guard returns the guard of the response to a request that may have a secret, which can be nil. A host that keeps what it is sent
// could tell it in response to another request than the one that had it.
func (i *Inspection) guard(secret *Secret) guard {
	var secrets []*Secret
	if i.Secrets != nil {
		secrets = i.Secrets()
	}
	if secret != nil && !slices.Contains(secrets, secret) {
		secrets = append(secrets, secret)
	}
	var g guard
	for _, s := range secrets {
		for _, text := range s.forms() {
			g = append(g, []byte(text))
		}
	}
	return g
}

// ask makes a request one whose response can be read by the guard: whole, and not compressed.
func (g guard) ask(in *http.Request) {
	if len(g) == 0 {
		return
	}
	in.Header.Set("Accept-Encoding", "identity")
	for _, name := range []string{"Range", "If-Range"} { // the secret would come in parts
		in.Header.Del(name)
	}
}

// reply makes a response one that does not tell the job a secret. It calls deny if the body has one, because forward does not.
func (g guard) reply(reply *http.Response, deny func(*Denied)) error {
	reply.Header.Del("Alt-Svc") // the environment of a job has no HTTP/3, which these lines would lead to
	if len(g) == 0 {
		return nil
	}
	for _, encoding := range reply.Header.Values("Content-Encoding") {
		if !strings.EqualFold(encoding, "identity") {
			return errors.New("the response is compressed, although that was not accepted: nobody can look for a secret in it")
		}
	}
	if g.in(reply.Header) {
		return errEcho
	}
	reply.Body = &watched{ReadCloser: reply.Body, texts: g, err: errEcho, tell: func() { deny(errEcho) }}
	return nil
}

// in reports whether a header tells a secret.
func (g guard) in(header http.Header) bool {
	for _, text := range g {
		for _, values := range header {
			if strings.Contains(strings.Join(values, "\n"), string(text)) {
				return true
			}
		}
	}
	return false
}

// hide returns err, unless that tells a secret: package net/http quotes what it cannot read.
func (g guard) hide(err error) error {
	for _, text := range g {
		if strings.Contains(err.Error(), string(text)) {
			return errEcho
		}
	}
	return err
}

// A guarded writer sends no header that tells a secret: those of a response, and trailers. It drops informational responses, which
// httputil.ReverseProxy passes on from a goroutine of the transport.
type guarded struct {
	http.ResponseWriter
	guard guard
	deny  func(*Denied)
}

// WriteHeader implements http.ResponseWriter.
func (g *guarded) WriteHeader(status int) {
	if status < http.StatusOK {
		return
	}
	g.check()
	g.ResponseWriter.WriteHeader(status)
}

// check ends the response if a header tells a secret.
func (g *guarded) check() {
	if g.guard.in(g.Header()) {
		g.deny(errEcho)
		panic(http.ErrAbortHandler)
	}
}

// Unwrap is for http.ResponseController.
func (g *guarded) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// A watched body fails before it passes one of some texts on.
type watched struct {
	io.ReadCloser
	texts  guard
	err    error
	tell   func() // is called when one is found; may be nil
	buffer []byte // read, and not passed on yet
	end    error  // after buffer
	found  bool
}

// Read implements io.Reader. It holds back what may be the beginning of a text.
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

// ready returns how many bytes cannot be part of a text.
func (w *watched) ready() int {
	ready := len(w.buffer)
	if w.end != nil {
		return ready
	}
	for _, text := range w.texts {
		// The longest end of the buffer that begins the text.
		for n := min(len(w.buffer), len(text)-1); n > len(w.buffer)-ready; n-- {
			if bytes.Equal(w.buffer[len(w.buffer)-n:], text[:n]) {
				ready = len(w.buffer) - n
				break
			}
		}
	}
	return ready
}

// fill reads more, at most n bytes.
func (w *watched) fill(n int) {
	part := make([]byte, min(n, bufferSize))
	n, err := w.ReadCloser.Read(part)
	w.buffer = append(w.buffer, part[:n]...)
	w.end = err
	w.found = slices.ContainsFunc(w.texts, func(text []byte) bool { return bytes.Contains(w.buffer, text) })
	if w.found && w.tell != nil {
		w.tell()
	}
}
