package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"corral/egress/control"
	"corral/egress/names"
	"corral/policy/network"
)

// Lookup implements names.Table: it gives the name an address, and listens there.
func (d *door) Lookup(name string, address bool) (netip.Addr, names.Result) {
	decision := d.rules.Load().set.Name(name)
	if !decision.Allowed && !address && strings.HasPrefix(name, "_") {
		return netip.Addr{}, names.Denied // where a service is (SRV): clients ask first, and do without
	}
	if !decision.Allowed {
		d.deny(control.Denial{Name: name, Why: decision.Why, Allow: decision.Allow}, !address)
		return netip.Addr{}, names.Denied
	}
	if !address {
		return netip.Addr{}, names.Found // without a record of that type
	}
	h, err := d.hostOf(name)
	if err == nil {
		err = d.listenFor(h)
	}
	if err != nil {
		d.deny(control.Denial{Name: name, Why: err.Error()}, false)
		return netip.Addr{}, names.Failed
	}
	return h.addr, names.Found
}

// hostOf returns the host with a name, which gets an address if it has none.
func (d *door) hostOf(name string) (*host, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.hosts[name]; h != nil {
		return h, nil
	}
	if len(d.hosts) >= maxNames {
		return nil, fmt.Errorf("%d names were looked up, which is the maximum of a job or session", maxNames)
	}
	h := &host{name: name, addr: d.next, sites: map[uint16]*site{}}
	d.hosts[name] = h
	d.next = d.next.Next()
	return h, nil
}

// listenFor makes the listeners of a host that it does not have yet. It returns an error if it has none afterwards.
func (d *door) listenFor(h *host) error {
	d.making.Lock()
	defer d.making.Unlock()
	var failed error
	for _, port := range d.rules.Load().set.Ports(h.name) {
		if failed = d.listenAt(h, port); failed != nil {
			break // after a second, if the job keeps it from working
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(h.sites) > 0 {
		return nil
	}
	if failed == nil {
		failed = errClosed
	}
	return failed
}

var (
	errClosed = errors.New("the rules have changed")
	errFiles  = errors.New("the job or session, or all jobs of the user, have too many connections and names open")
)

// listenAt makes the listener of a host at a port, unless there is one. The caller holds d.making.
func (d *door) listenAt(h *host, port network.Port) error {
	if known, err := d.mayListen(h, port); known || err != nil {
		return err
	}
	if !d.files.take(1) {
		return errFiles
	}
	l, err := d.seeds.Listen(netip.AddrPortFrom(h.addr, port.Number))
	if err == nil && !d.add(h, port, l) {
		l.Close()
		err = errClosed
	}
	if err == nil {
		return nil
	}
	d.files.give(1)
	if errors.Is(err, errSeedsBusy) {
		return fmt.Errorf("the job itself uses port %d of all addresses, or connects to corral's", port.Number)
	}
	return err
}

// mayListen reports whether a host has a listener at a port, and returns an error if it cannot have one.
func (d *door) mayListen(h *host, port network.Port) (known bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case h.sites[port.Number] != nil:
		return true, nil
	case port.Protocol == network.HTTPS && d.authority == nil:
		return false, errAuthority
	case d.sites >= maxListeners:
		return false, fmt.Errorf("corral listens at %d ports for the job or session, which is the maximum", maxListeners)
	}
	return false, nil
}

// add makes a listener a site of a host, unless the rules do not allow it any more.
func (d *door) add(h *host, port network.Port, l *net.TCPListener) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := newSite(d, h, port, l)
	if d.closed || !allows(d.rules.Load().set, s) {
		s.cancel()
		return false
	}
	h.sites[port.Number] = s
	d.sites++
	d.server.work.Go(s.serve)
	return true
}
