// Package dial connects to hosts by name, at addresses that were checked: a name that an operator allows may have any
// address, as its owner likes, also one of the operator's own machines.
package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

const (
	// Timeout is how long a connection may take with everything before it.
	Timeout = 10 * time.Second
	// maxAddrs is how many addresses of a name are tried.
	maxAddrs = 8
	// minTry is how long an address is tried at least, if there is time.
	minTry = 2 * time.Second
)

// A Resolver returns the addresses of a name, as net.Resolver does.
type Resolver interface {
	// LookupNetIP returns the addresses of host. For network "ip", those are of IPv4 and IPv6.
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// A Dialer connects to hosts. Its methods may be called concurrently.
type Dialer struct {
	Resolver Resolver
	// Own reports whether an address is one of this host.
	Own func(netip.Addr) bool

	connect func(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error) // in tests
}

// New returns a Dialer that asks resolver.
func New(resolver Resolver) *Dialer {
	return &Dialer{Resolver: resolver, Own: isOwn, connect: connect}
}

// Check returns a *Refused if an address of the host name must not be reached, nil if it may. A connection that was made under
// former rules is checked by it again.
func (d *Dialer) Check(name string, addr netip.Addr, private []netip.Prefix) error {
	if r := d.check(name, addr.Unmap(), private); r != nil {
		return r
	}
	return nil
}

func connect(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error) {
	return d.DialContext(ctx, "tcp", to.String())
}

// Dial connects to a port of the host name. Each address of the name is checked, and those that may be reached are tried in
// turn, as they are: the name is looked up once. private are networks that may be reached although they are not the
// Internet. An error is a *Refused if the name has no address that may be reached.
func (d *Dialer) Dial(ctx context.Context, name string, port uint16, private []netip.Prefix) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	// The final dot keeps the search list of /etc/resolv.conf away: it would look up another name.
	found, err := d.Resolver.LookupNetIP(ctx, "ip", name+".")
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", name, err)
	}
	addrs, err := d.checked(name, found, private)
	if err != nil {
		return nil, err
	}
	var failed error
	for n, addr := range addrs {
		conn, err := d.try(ctx, name, netip.AddrPortFrom(addr, port), private, len(addrs)-n)
		if err == nil {
			return conn, nil
		}
		failed = errors.Join(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

// checked returns the addresses that may be reached, and an error if there are none.
func (d *Dialer) checked(name string, found []netip.Addr, private []netip.Prefix) ([]netip.Addr, error) {
	var addrs []netip.Addr
	var refused *Refused
	for _, addr := range found[:min(len(found), maxAddrs)] {
		addr = addr.Unmap() // how package net writes the address of an A record
		if r := d.check(name, addr, private); r == nil {
			addrs = append(addrs, addr)
		} else if refused == nil {
			refused = r
		}
	}
	switch {
	case len(addrs) > 0:
		return addrs, nil
	case refused != nil:
		return nil, refused
	}
	return nil, fmt.Errorf("look up %s: no address", name)
}

// try connects to one of left addresses.
func (d *Dialer) try(ctx context.Context, name string, to netip.AddrPort, private []netip.Prefix, left int) (net.Conn, error) {
	if end, ok := ctx.Deadline(); ok && left > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(time.Until(end)/time.Duration(left), minTry))
		defer cancel()
	}
	dialer := &net.Dialer{
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return d.recheck(name, to, address, private)
		},
	}
	return d.connect(ctx, dialer, to)
}

// recheck is called with the address that connect(2) gets. It does not depend on what led there.
func (d *Dialer) recheck(name string, want netip.AddrPort, address string, private []netip.Prefix) error {
	got, err := netip.ParseAddrPort(address)
	if err != nil || got != want {
		return fmt.Errorf("connect to %q instead of %s", address, want)
	}
	if r := d.check(name, got.Addr(), private); r != nil {
		return r
	}
	return nil
}
