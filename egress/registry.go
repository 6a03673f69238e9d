package egress

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"

	"corral/egress/packages"
	"corral/egress/relay"
	"corral/policy/network"
)

// pullFiles are the descriptors that an answer from the store may need: what is kept, what is written, and an index that is read.
const pullFiles = 3

// A pulled answers the requests to a registry.
type pulled struct {
	site     *site
	registry packages.Registry
	used     *relay.Secret // nil: none
}

// pull returns what answers an allowed request, nil if the rules in force say of no reading of its path that it is for a registry.
func (s *site) pull(method string, paths []string, used *relay.Secret) relay.Puller {
	for _, path := range paths {
		d := s.door.rules.Load().set.Request(s.host.name, s.port, method, path)
		if !d.Allowed || d.Registry == "" {
			continue
		}
		r := packages.Registry{Kind: d.Registry, MinAge: d.MinAge, Rule: d.Rule, Scheme: "http", Host: s.host.name}
		standard := uint16(80)
		if s.protocol == network.HTTPS {
			r.Scheme, standard = "https", 443
		}
		if s.port != standard {
			r.Host = net.JoinHostPort(s.host.name, strconv.Itoa(int(s.port)))
		}
		r.Guarded = strings.Join(s.door.rules.Load().set.Secrets(s.host.name, s.port), ",")
		if used != nil {
			r.Secret, r.Header = d.Secret+" "+used.Mark(), used.Header
		}
		return &pulled{s, r, used}
	}
	return nil
}

// Serve implements relay.Puller.
func (p *pulled) Serve(w http.ResponseWriter, in *http.Request, host http.RoundTripper) error {
	server := p.site.door.server
	files := p.site.door.files
	if !files.take(pullFiles) {
		return errFiles
	}
	defer files.give(pullFiles)
	r := p.registry
	if p.used != nil {
		r.Login = p.used.Login(in.Header.Get(p.used.Header))
	}
	err := server.cache.Serve(w, in, r, host)
	denied := (*packages.Denied)(nil)
	switch {
	case errors.Is(err, packages.ErrPass):
		return relay.ErrPass
	case errors.As(err, &denied):
		return &relay.Denied{Why: denied.Why}
	}
	return err
}
