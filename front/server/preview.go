package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"corral/front/preview"
	"corral/internal/gate"
	"corral/workspace/session"
)

// maxLinks is the maximum number of links that one request makes.
const maxLinks = 32

// A link is a preview in the answer of PreviewsPath.
type link struct {
	Repo    string    `json:"repo,omitempty"`
	Session string    `json:"session"`
	Port    uint16    `json:"port"`
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

// links is the answer of PreviewsPath.
type links struct {
	Previews []link `json:"previews"`
	More     bool   `json:"more,omitempty"` // ports without a link
	Hint     string `json:"hint,omitempty"`
}

// previewer makes links for the principals of a server.
type previewer struct {
	server *preview.Server
	open   func(principal string) []session.Open
	ports  func(ctx context.Context, session string) (ports []uint16, more bool, err error)
	repos  map[string]string // ids by path
}

// newPreviewer returns previews of the sessions of b, at a port of the loopback interface.
func newPreviewer(b *Backend, t *tokens, port uint16) *previewer {
	has := func(by gate.Holder, id string) bool {
		_, ok := t.holds(by)
		return ok && slices.ContainsFunc(b.Sessions.OpenOf(by.Principal), func(o session.Open) bool { return o.ID == id })
	}
	secret := func(token string) bool {
		_, ok := t.authenticate(token)
		return ok
	}
	p := &previewer{
		server: preview.New(preview.Config{Port: port, Connect: b.Supervisor.Connect, Has: has, Secret: secret, Log: b.Log}),
		open:   b.Sessions.OpenOf, ports: b.Supervisor.Ports, repos: map[string]string{},
	}
	for id, path := range PathsByID(b.Config) {
		p.repos[path] = id
	}
	return p
}

// answer makes links to the ports at which the sessions of a principal listen. A request can select one session and one port, at
// which nobody need listen yet.
func (p *previewer) answer(principal string, r *http.Request) (status int, data []byte) {
	q := r.URL.Query()
	port, err := strconv.ParseUint(q.Get("port"), 10, 16)
	if q.Has("port") && (err != nil || port == 0) {
		return http.StatusBadRequest, encode(links{Previews: []link{}, Hint: "port must be 1 to 65535"})
	}
	l := links{Previews: []link{}}
	for _, open := range p.open(principal) {
		if q.Has("session") && q.Get("session") != open.ID {
			continue
		}
		ports, more, err := p.ports(r.Context(), open.ID)
		if err != nil { // it has ended, or its jobs share no network
			continue
		}
		if q.Has("port") {
			ports, more = []uint16{uint16(port)}, false
		}
		l.More = p.add(&l, holder(principal, r), open, ports) || more || l.More
	}
	if len(l.Previews) == 0 {
		l.Hint = "no session of yours has a process that listens at 127.0.0.1 or at all addresses: start a server in the background"
	}
	return http.StatusOK, encode(l)
}

// add adds links to ports of a session. It reports whether there are more than fit.
func (p *previewer) add(l *links, by gate.Holder, open session.Open, ports []uint16) (more bool) {
	for _, port := range ports {
		if len(l.Previews) == maxLinks {
			return true
		}
		if url, expires, err := p.server.Link(by, open.ID, port); err == nil {
			l.Previews = append(l.Previews, link{p.repos[open.Repo], open.ID, port, url, expires})
		}
	}
	return false
}

// encode returns the JSON of an answer with a newline.
func encode(answer any) []byte {
	data, _ := json.Marshal(answer) // strings, numbers and times: it cannot fail
	return append(data, '\n')
}
