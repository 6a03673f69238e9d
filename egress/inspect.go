package egress

import (
	"crypto/tls"
	"errors"

	"corral/egress/authority"
	"corral/egress/control"
	"corral/egress/relay"
	"corral/policy/network"
)

// credentials are what rules about requests need.
type credentials struct {
	authority *authority.Authority
	secrets   map[string]*relay.Secret
}

// minValue is how long a secret must be, so that it is found in a response that has it in it.
const minValue = 8

var errAuthority = errors.New("a rule is about requests, but this installation has no authority whose certificates jobs trust")

// newCredentials reads the message.
func newCredentials(m control.Authority) (*credentials, error) {
	a, err := authority.Parse(m.Certificate, m.Key)
	if err != nil {
		return nil, err
	}
	c := &credentials{authority: a, secrets: map[string]*relay.Secret{}}
	for _, s := range m.Secrets {
		if len(s.Value) >= minValue { // a rule with another one denies what has the placeholder
			c.secrets[s.Name] = &relay.Secret{Header: s.Header, Format: s.Format, Value: s.Value}
		}
	}
	return c, nil
}

// newRelay returns what serves the connections of a site.
func (s *site) newRelay() *relay.Relay {
	if s.protocol != network.HTTPS {
		return relay.New(s.host.name, s.port, s.protocol, s.dial)
	}
	return relay.NewInspecting(s.host.name, s.port, s.dial, relay.Inspection{
		Roots: s.door.server.roots, Placeholder: s.door.placeholder, Certificate: s.certificate, Allow: s.allowRequest,
		Deny: func(d *relay.Denied) { s.door.deny(control.Denial{Name: s.host.name, Port: s.port, Why: d.Why}, false) },
	})
}

// certificate returns the certificate with which connections of the job end.
func (s *site) certificate(name string) (*tls.Certificate, error) {
	c := s.door.server.credentials.Load()
	if c == nil {
		return nil, errAuthority
	}
	return c.authority.Leaf(name)
}

// allowRequest decides about a request under the rules in force.
func (s *site) allowRequest(method, path string) (*relay.Secret, string) {
	decision := s.door.rules.Load().set.Request(s.host.name, s.port, method, path)
	if !decision.Allowed {
		return nil, decision.Why
	}
	c := s.door.server.credentials.Load()
	if c == nil {
		return nil, errAuthority.Error()
	}
	return c.secrets[decision.Secret], ""
}
