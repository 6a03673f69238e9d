package egress

import (
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
		return func(w http.ResponseWriter, in *http.Request, host http.RoundTripper) error {
			if !s.door.files.take(pullFiles) {
				return errFiles
			}
			defer s.door.files.give(pullFiles)
			if used != nil {
				r.Login = used.Login(in.Header.Get(used.Header))
			}
			return s.door.server.cache.Serve(w, in, r, host)
		}
	}
	return nil
}
