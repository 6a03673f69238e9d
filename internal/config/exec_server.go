package config

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ExecServer is about the server of corral exec-server.
type ExecServer struct {
	Listen       []Listen // exec_server.listen; never empty
	AllowedHosts []string // exec_server.allowed_hosts: HOST[:PORT] that it may listen on, and requests may name, beside loopback
	Peers        []uint32 // exec_server.peers: users who may connect to a unix socket, beside root and the server's own; nil is none
	// OutputBudget is exec_server.output_budget: bytes that all connections together may hold of output that is not sent
	// as it comes.
	OutputBudget int64
	// FullAccess is exec_server.full_access: the profile that a request for full access gets, "default", "strict" or a key
	// of Config.Profiles. "" refuses such a request.
	FullAccess string
}

// The kinds of a Listen.
const (
	ListenStdio = "stdio" // standard input and output
	ListenUnix  = "unix"  // a unix socket
	ListenWeb   = "ws"    // a WebSocket
)

// A Listen says where clients reach a server.
type Listen struct {
	Kind    string // a Listen constant
	Address string // of unix: an absolute, clean path; of ws: HOST:PORT, of which port 0 is any that is free
}

// errListen is what is no Listen.
var errListen = errors.New("stdio, unix:///PATH or ws://HOST:PORT is wanted")

// maxSocketPath is how many bytes the path of a unix socket may have: unix(7), sun_path without its NUL.
const maxSocketPath = 107

// ParseListen reads what String writes, and stdio:// too.
func ParseListen(s string) (Listen, error) {
	kind, place, _ := strings.Cut(s, "://")
	switch kind {
	case ListenStdio:
		if s == kind || s == kind+"://" {
			return Listen{Kind: kind}, nil
		}
	case ListenUnix:
		if filepath.IsAbs(place) && filepath.Clean(place) == place && len(place) <= maxSocketPath &&
			!strings.ContainsRune(place, 0) && place != "/" {
			return Listen{kind, place}, nil
		}
	case ListenWeb:
		place = strings.TrimSuffix(place, "/")
		if address(place) {
			return Listen{kind, place}, nil
		}
	}
	return Listen{}, errListen
}

// String returns "stdio", "unix:///PATH" or "ws://HOST:PORT".
func (l Listen) String() string {
	if l.Kind == ListenStdio {
		return l.Kind
	}
	return l.Kind + "://" + l.Address
}

func (e *ExecServer) keys() []key {
	return []key{
		{"listen", func(p *parser, n *yaml.Node) { e.readListen(p, n) }},
		{"allowed_hosts", func(p *parser, n *yaml.Node) { e.AllowedHosts = p.names("allowed_hosts", n, hostName) }},
		{"peers", func(p *parser, n *yaml.Node) { e.Peers = p.users("peers", n) }},
		sizeKey("output_budget", &e.OutputBudget, 16<<20, 1<<40),
		{"full_access", func(p *parser, n *yaml.Node) {
			e.FullAccess = p.text("full_access", n)
			p.check(func(c *Config) { c.checkProfile(p, n, c.ExecServer.FullAccess) })
		}},
	}
}

// readListen reads addresses, of which each is there once.
func (e *ExecServer) readListen(p *parser, n *yaml.Node) {
	var list []Listen
	for _, s := range p.some("listen", n, func(s string) string {
		if _, err := ParseListen(s); err != nil {
			return strings.TrimSuffix(err.Error(), " is wanted")
		}
		return ""
	}) {
		l, _ := ParseListen(s) // which was looked at
		if slices.Contains(list, l) && l.Kind != ListenWeb {
			p.fail(n, "`listen`: %q is there twice", shorten(s))
		}
		list = append(list, l)
	}
	if list != nil {
		e.Listen = list
	}
}
