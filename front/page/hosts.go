package page

import (
	"fmt"
	"strings"
	"sync"

	"corral/internal/calls"
)

// hosts are the host names of the page, one for each principal that was given a link. Browsers send a cookie to all ports of its host
// (RFC 6265, 8.5), so who knows the name can have a browser send the cookie to a server of their own. The zero value is ready to use.
type hosts struct {
	mu  sync.Mutex
	own map[string]string // guarded by mu: by principal; principals are those of the configuration
}

// of returns the name of a principal, with a port: at first a new one.
func (h *hosts) of(principal string, port uint16) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if name, ok := h.own[principal]; ok {
		return name
	}
	if h.own == nil {
		h.own = map[string]string{}
	}
	name := fmt.Sprintf("page-%s.localhost:%d", calls.RandomHex(8), port)
	h.own[principal] = name
	return name
}

// has reports whether the Host of a request is a name of the page.
func (h *hosts) has(host string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	host = nameOf(host)
	for _, name := range h.own {
		if name == host {
			return true
		}
	}
	return false
}

// nameOf returns a name as it is in hosts.
func nameOf(host string) string { return strings.ToLower(host) }
