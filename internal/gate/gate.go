// Package gate decides which requests reach a server of corral's over HTTP at all: by which names it is called, which
// pages may call it, and whose bearer token a request has; and it bounds the connections of those whom nobody knows yet.
//
// It keeps no tokens, and knows nothing of what is served.
package gate

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// MaxToken is how many bytes a bearer token may have.
const MaxToken = 512

// A Gate knows which names the server is called by, and which pages may call it. A browser that was made to believe that
// a name of somebody else is 127.0.0.1 (DNS rebinding) sends that name as the Host, and its page's as the Origin.
type Gate struct {
	Hosts   []string // names with or without a port, beside those of the loopback interface
	Origins []string // pages, as "https://app.example", beside those of Hosts and the loopback interface
}

// Host reports whether r was sent to this server by a name of its own.
func (g *Gate) Host(r *http.Request) bool { return g.Named(r.Host) }

// Named reports whether a host, with or without a port, is a name of this server.
func (g *Gate) Named(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	return Loopback(name) || slices.ContainsFunc(g.Hosts, func(own string) bool {
		return strings.EqualFold(own, host) || strings.EqualFold(own, name)
	})
}

// Loopback reports whether a host name without a port is this machine's own, without asking anybody.
func Loopback(name string) bool {
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}

// Origin reports whether the page that sent r may, if it was one: without the header it was no browser.
func (g *Gate) Origin(r *http.Request) bool {
	sent := r.Header.Values("Origin")
	if len(sent) == 0 {
		return true
	}
	if len(sent) > 1 {
		return false
	}
	if slices.Contains(g.Origins, sent[0]) {
		return true
	}
	u, err := url.Parse(sent[0])
	// An origin is a scheme and a host, and nothing else that a URL may have.
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && sent[0] == u.Scheme+"://"+u.Host && g.Named(u.Host)
}

// Bearer returns the one bearer token of r (RFC 6750, 2.1); ok is false without one.
func Bearer(r *http.Request) (token string, ok bool) {
	sent := r.Header.Values("Authorization")
	if len(sent) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(sent[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > MaxToken {
		return "", false
	}
	return token, true
}
