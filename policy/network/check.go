package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Check returns the first mistake in r, with the entry that has it.
func (r *Rules) Check() error {
	for _, list := range []struct {
		name string
		size int
	}{{"allow", len(r.Allow)}, {"deny", len(r.Deny)}, {"private", len(r.Private)}} {
		if list.size > MaxRules {
			return fmt.Errorf("%s has %d entries, the maximum is %d", list.name, list.size, MaxRules)
		}
	}
	for i, rule := range r.Allow {
		if err := rule.Check(); err != nil {
			return fmt.Errorf("entry %d of allow: %w", i+1, err)
		}
		if err := rule.checkAfter(r.Allow[:i]); err != nil {
			return fmt.Errorf("entry %d of allow: %w", i+1, err)
		}
	}
	for i, host := range r.Deny {
		if err := CheckHost(host); err != nil {
			return fmt.Errorf("entry %d of deny: %w", i+1, err)
		}
	}
	for i, network := range r.Private {
		if err := CheckPrivate(network); err != nil {
			return fmt.Errorf("entry %d of private: %w", i+1, err)
		}
	}
	if r.Bytes.Up < 0 || r.Bytes.Down < 0 {
		return fmt.Errorf("bytes: up and down must not be negative, got %d and %d", r.Bytes.Up, r.Bytes.Down)
	}
	return nil
}

// Check returns the first mistake in r.
func (r Rule) Check() error {
	if r.Preset != "" {
		return r.checkPreset()
	}
	if r.Host == "" {
		return errors.New("must have `host` or `preset`")
	}
	if err := CheckHost(r.Host); err != nil {
		return err
	}
	if _, known := presetNamed(r.Host); known {
		return fmt.Errorf("%q is a preset: write `preset: %s`", r.Host, r.Host)
	}
	if r.Host == noAccess {
		return fmt.Errorf("%q cannot be a host: a job asks with it for no host", r.Host)
	}
	if !slices.Contains([]string{"", TLS, HTTP, TCP}, r.Protocol) {
		return fmt.Errorf("%q: `protocol` must be tls, http or tcp, got %s", r.Host, shown(r.Protocol))
	}
	if err := r.checkRequests(); err != nil {
		return err
	}
	if err := r.checkRegistry(); err != nil {
		return err
	}
	return r.checkPorts()
}

// checkAfter returns an error if the rule is about requests that nobody sees, because one of those before it has them passed on
// unread. All rules are right in themselves.
func (r Rule) checkAfter(before []Rule) error {
	if !r.inspects() {
		return nil
	}
	for _, own := range r.each() {
		for _, b := range before {
			if port := b.passesOn(own); port != 0 {
				return fmt.Errorf("%q: `methods`, `paths`, `secret` and `registry` have no effect at port %d, which `%s` passes on unread: put this entry before it",
					own.Host, port, b)
			}
		}
	}
	return nil
}

// passesOn returns a port at which the rule has the hosts of another one passed on unread, 0 if there is none.
func (r Rule) passesOn(other Rule) uint16 {
	own, err := other.scope()
	if err != nil {
		return 0 // it was checked
	}
	for _, one := range r.each() {
		s, err := one.scope()
		if err != nil || one.inspects() || !s.hosts.has(own.hosts) {
			continue
		}
		for _, port := range own.ports {
			if s.opens(port) {
				return port
			}
		}
	}
	return 0
}

// each returns the rules of a preset, with what the rule says about their registry, or the rule itself.
func (r Rule) each() []Rule {
	preset, ok := presetNamed(r.Preset)
	if !ok {
		return []Rule{r}
	}
	rules := slices.Clone(preset.Rules)
	for i := range rules {
		rules[i].Registry, rules[i].MinAge = r.Registry, r.MinAge
	}
	return rules
}

func (r Rule) checkPreset() error {
	if _, known := presetNamed(r.Preset); !known {
		return fmt.Errorf("unknown preset %s: must be one of %s", shown(r.Preset), strings.Join(PresetNames(), ", "))
	}
	if r.Host != "" || r.Ports != nil || r.Protocol != "" || len(r.Methods) > 0 || len(r.Paths) > 0 || len(r.Headers) > 0 || r.Secret != "" {
		return fmt.Errorf("preset %q: it says host, ports and protocol itself; write another entry for them", r.Preset)
	}
	return r.checkRegistry()
}

func (r Rule) checkPorts() error {
	switch {
	case r.Protocol == TCP && len(r.Ports) == 0:
		return fmt.Errorf("%q: `protocol: tcp` needs `ports`, such as [5432]", r.Host)
	case len(r.Ports) > MaxPorts:
		return fmt.Errorf("%q has %d ports, the maximum is %d", r.Host, len(r.Ports), MaxPorts)
	}
	for i, port := range r.Ports {
		if port == 0 {
			return fmt.Errorf("%q: a port must be between 1 and 65535, got 0", r.Host)
		}
		if slices.Contains(r.Ports[:i], port) {
			return fmt.Errorf("%q: duplicate port %d", r.Host, port)
		}
	}
	return nil
}

// Networks that have fewer leading bits contain more than one network without public addresses: corral-egress opens those
// that are named, not everything around them.
const (
	minBits4 = 8 // 10.0.0.0/8
	minBits6 = 7 // fc00::/7
)

// hostNetworks are networks without public addresses that are inside this host, or at which clouds tell a machine its secrets.
var hostNetworks = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("fd00:ec2::254/128"), netip.MustParsePrefix("fd20:ce::254/128"),
}

// Exposed returns the entries of Private with addresses of the host itself (loopback, link-local) or of a cloud's metadata service.
func (r *Rules) Exposed() (list []netip.Prefix) {
	for _, p := range r.Private {
		if slices.ContainsFunc(hostNetworks, p.Overlaps) {
			list = append(list, p)
		}
	}
	return list
}

// CheckPrivate returns why p cannot be an entry of Rules.Private.
func CheckPrivate(p netip.Prefix) error {
	switch {
	case !p.IsValid() || p.Addr().Is4In6():
		return errors.New("must be a network of IPv4 or IPv6, such as 10.1.0.0/16")
	case p.Masked() != p:
		return fmt.Errorf("%s has bits after the network: write %s", p, p.Masked())
	case p.Addr().Is4() && p.Bits() < minBits4, p.Addr().Is6() && p.Bits() < minBits6:
		return fmt.Errorf("%s is too large: name each network that has no public addresses, such as 10.0.0.0/8", p)
	}
	return nil
}
