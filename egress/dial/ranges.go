package dial

import (
	"fmt"
	"net/netip"
	"slices"
)

// A span is a range of addresses that are not hosts on the Internet.
type span struct {
	prefix netip.Prefix
	why    string
	closed bool // an operator cannot open it
}

// spans are the special ranges of IANA's registries, and addresses at which clouds tell a machine its secrets.
var spans = []span{
	{netip.MustParsePrefix("0.0.0.0/8"), "this host", true},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private network", false},
	{netip.MustParsePrefix("100.64.0.0/10"), "a provider's network (CGNAT)", false},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback", false},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud's metadata service", false},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, with clouds' metadata services", false},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private network", false},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved for protocols", false},
	{netip.MustParsePrefix("192.0.2.0/24"), "reserved for documentation", false},
	{netip.MustParsePrefix("192.88.99.0/24"), "a relay to IPv6 (6to4)", true},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private network", false},
	{netip.MustParsePrefix("198.18.0.0/15"), "the synthetic addresses of jobs", true},
	{netip.MustParsePrefix("198.51.100.0/24"), "reserved for documentation", false},
	{netip.MustParsePrefix("203.0.113.0/24"), "reserved for documentation", false},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast", true},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved, with the broadcast address", true},

	// These reach an IPv4 address that is written in them.
	{netip.MustParsePrefix("::/96"), "this host, or an IPv4 address in IPv6", true},
	{netip.MustParsePrefix("::ffff:0:0/96"), "an IPv4 address in IPv6", true},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "an IPv4 address in IPv6", true},
	{netip.MustParsePrefix("64:ff9b::/96"), "an IPv4 address in IPv6 (NAT64)", true},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "an IPv4 address in IPv6 (NAT64)", true},
	{netip.MustParsePrefix("2002::/16"), "an IPv4 address in IPv6 (6to4)", true},
	{netip.MustParsePrefix("2001::/32"), "an IPv4 address in IPv6 (Teredo)", true},

	{netip.MustParsePrefix("100::/64"), "a black hole", true},
	{netip.MustParsePrefix("2001::/23"), "reserved for protocols", true},
	{netip.MustParsePrefix("2001:db8::/32"), "reserved for documentation", false},
	{netip.MustParsePrefix("3fff::/20"), "reserved for documentation", false},
	{netip.MustParsePrefix("fc00::/7"), "a private network, with clouds' metadata services", false},
	{netip.MustParsePrefix("fe80::/10"), "link-local", true},
	{netip.MustParsePrefix("fec0::/10"), "a private network (site-local)", false},
	{netip.MustParsePrefix("ff00::/8"), "multicast", true},
}

// global has all IPv6 addresses that hosts on the Internet have.
var global = netip.MustParsePrefix("2000::/3")

// A Refused is an address that a job must not reach.
type Refused struct {
	Name  string
	Addr  netip.Addr
	Why   string
	Allow string // what an operator can configure; empty: nothing allows it
}

// Error names the address and what would allow it.
func (r *Refused) Error() string {
	s := fmt.Sprintf("%s has the address %s: %s", r.Name, r.Addr, r.Why)
	if r.Allow != "" {
		s += "; to allow it, add to the configuration: " + r.Allow
	}
	return s
}

// check returns why an address must not be reached, nil if it may. A network of private opens the addresses that it has in
// common with a special range only if it lies within that range: 10.1.0.0/16 opens a part of a private network, 0.0.0.0/0
// nothing. An address of this host is opened by itself alone.
func (d *Dialer) check(name string, addr netip.Addr, private []netip.Prefix) *Refused {
	refused := func(why, allow string) *Refused { return &Refused{name, addr, why, allow} }
	if !addr.IsValid() || addr.Zone() != "" {
		return refused("not an address of IPv4 or IPv6 alone", "")
	}
	special := false
	for _, s := range spans {
		if !s.prefix.Contains(addr) {
			continue
		}
		special = true
		if s.closed {
			return refused(s.why, "")
		}
		if !s.opened(addr, private) {
			return refused(s.why, allowNetwork(s.prefix))
		}
	}
	if addr.Is6() && !special && !global.Contains(addr) {
		return refused("not assigned", "")
	}
	if own := netip.PrefixFrom(addr, addr.BitLen()); d.Own(addr) && !slices.Contains(private, own) {
		return refused("an address of this host", allowNetwork(own))
	}
	return nil
}

func allowNetwork(p netip.Prefix) string { return fmt.Sprintf("network.private: [%s]", p) }

func (s span) opened(addr netip.Addr, private []netip.Prefix) bool {
	return slices.ContainsFunc(private, func(p netip.Prefix) bool {
		return p.Contains(addr) && p.Bits() >= s.prefix.Bits()
	})
}
