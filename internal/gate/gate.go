// Package gate decides which HTTP requests a server accepts, by their Host, Origin and bearer token, bounds the connections of clients
// that have not authenticated, and logs people in with a browser of this machine.
//
// It stores no tokens of principals and does not depend on what is served.
package gate

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// MaxToken is the maximum length of a bearer token in bytes.
const MaxToken = 512

// A Gate checks the names that requests use for the server, and the web pages that send them. It protects against DNS
// rebinding: a browser for which a foreign name resolves to 127.0.0.1 sends that name as the Host, and the page's as the Origin.
type Gate struct {
	Hosts   []string // accepted names, with or without a port, besides those of the loopback interface
	Origins []string // accepted origins, such as "https://app.example", besides those of Hosts and the loopback interface
}

// Host reports whether the Host of r is a name of this server.
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

// Loopback reports whether name, a host without a port, is localhost or a loopback address. It does not resolve names.
func Loopback(name string) bool {
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}

// Origin reports whether r has no Origin, as requests of programs other than browsers, or exactly one that is accepted.
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
	// An origin has a scheme and a host only (RFC 6454, 6.2).
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && sent[0] == u.Scheme+"://"+u.Host && g.Named(u.Host)
}

// Bearer returns the bearer token of r (RFC 6750, 2.1). ok is false unless r has exactly one, of at most MaxToken bytes.
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
