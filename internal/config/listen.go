package config

import (
	"errors"
	"path/filepath"
	"strings"
)

// The kinds of a Listen.
const (
	ListenStdio = "stdio" // standard input and output
	ListenUnix  = "unix"  // a unix socket
	ListenWeb   = "ws"    // a WebSocket
)

// A Listen is an address where clients reach a server.
type Listen struct {
	Kind    string // a Listen constant
	Address string // with unix: an absolute, clean path; with ws: HOST:PORT, where port 0 is any free one
}

var errListen = errors.New("must be stdio, unix:///PATH or ws://HOST:PORT")

// maxSocketPath is the maximum number of bytes in the path of a unix socket: unix(7), sun_path without its NUL.
const maxSocketPath = 107

// ParseListen parses the text that String returns, and also stdio://.
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
