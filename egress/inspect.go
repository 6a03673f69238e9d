package egress

import (
	"crypto/tls"
	"errors"
	"slices"

	"corral/egress/authority"
	"corral/egress/control"
	"corral/egress/relay"
	"corral/internal/text"
	"corral/policy/network"
)

var errAuthority = errors.New("a rule is about requests, but the job has no authority whose certificates it trusts")

// authorityOf returns the authority of a door, nil if it has none. Doors with the same one share the certificates that it issues.
func (s *Server) authorityOf(m *control.Authority) (*relay.Issuer, error) {
	if m == nil {
		return nil, nil
	}
	if s.authority != nil && s.authority.Is(m.Certificate) {
		return s.authority, nil
	}
	a, err := authority.Parse(m.Certificate, m.Key)
	if err != nil {
		return nil, err
	}
	s.authority = relay.NewIssuer(a)
	return s.authority, nil
}

// secretsOf returns the secrets of an access by name. A rule with one that is too short denies what has the placeholder.
func secretsOf(list []control.Secret) map[string]*relay.Secret {
	secrets := map[string]*relay.Secret{}
	for _, s := range list {
		if len(s.Value) >= relay.MinSecret {
			secrets[s.Name] = &relay.Secret{Header: s.Header, Format: s.Format, Value: s.Value, Body: s.Body}
		}
	}
	return secrets
}

// newRelay returns what serves the connections of a site.
func (s *site) newRelay() *relay.Relay {
	switch s.protocol {
	case network.HTTPS:
	case network.HTTP:
		return relay.NewPulling(s.host.name, s.port, s.dial, relay.Inspection{Allow: s.allowRequest, Pull: s.pull})
	default:
		return relay.New(s.host.name, s.port, s.protocol, s.dial)
	}
	return relay.NewInspecting(s.host.name, s.port, s.dial, relay.Inspection{
		Roots: s.door.server.Roots, Placeholder: s.door.placeholder, Certificate: s.certificate, Allow: s.allowRequest, Secrets: s.secrets,
		Headers: s.headers, Dropped: s.dropped, Pull: s.pull, Enter: s.door.gate.enter,
		Deny: func(d *relay.Denied) { s.door.deny(control.Denial{Name: s.host.name, Port: s.port, Why: d.Why}, false) },
	})
}

// certificate returns the certificate with which connections of the job end.
func (s *site) certificate(name string) (*tls.Certificate, error) {
	if s.door.authority == nil {
		return nil, errAuthority
	}
	return s.door.authority.Leaf(name)
}

// allowRequest decides about a request under the rules in force.
func (s *site) allowRequest(method, path string) (*relay.Secret, string) {
	rules := s.door.rules.Load()
	decision := rules.set.Request(s.host.name, s.port, method, path)
	if !decision.Allowed {
		return nil, decision.Why
	}
	return rules.secrets[decision.Secret], ""
}

// headers returns which headers an allowed request may have under the rules in force.
func (s *site) headers(method, path string) (more []string, all bool) {
	d := s.door.rules.Load().set.Request(s.host.name, s.port, method, path)
	return d.Headers, d.AllHeaders
}

// Bounds of the headers of a site that the log names: their number, and bytes of each.
const (
	maxDropped     = 32
	maxDroppedName = 64
)

// dropped logs the headers that are not passed on, each once.
func (s *site) dropped(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fresh []string
	for _, name := range names {
		if len(s.unsent) < maxDropped && !slices.Contains(s.unsent, name) {
			s.unsent = append(s.unsent, name)
			fresh = append(fresh, text.Cut(name, maxDroppedName))
		}
	}
	if len(fresh) > 0 {
		s.door.log.write("headers not passed on", "host", s.host.name, "port", s.port, "headers", fresh,
			"hint", "if the host needs them, name them in headers of the rule")
	}
}

// secrets returns those that requests to the site are given under the rules in force.
func (s *site) secrets() []*relay.Secret {
	rules := s.door.rules.Load()
	var list []*relay.Secret
	for _, name := range rules.set.Secrets(s.host.name, s.port) {
		if secret := rules.secrets[name]; secret != nil {
			list = append(list, secret)
		}
	}
	return list
}
