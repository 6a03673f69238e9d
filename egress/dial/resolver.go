package dial

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// maxServers is how many servers of resolv.conf(5) are asked, as by the C library.
	maxServers = 3
	// serverTimeout is how long a server has to answer before the next one is asked.
	serverTimeout = 3 * time.Second
	// maxFile bounds each of the files in bytes; the rest of a longer one is not read.
	maxFile = 1 << 20
)

// A System is the Resolver of the host's files. They are read once, so that the program can give up all access to files: what
// changes in them later is not seen.
type System struct {
	servers []netip.AddrPort
	hosts   map[string][]netip.Addr
	port    uint16
}

// ReadSystem reads a resolv.conf(5), for the addresses of servers, and a hosts(5). A file that does not exist is empty. Without
// a server in it, the server is that of this host, as for the C library.
func ReadSystem(resolvConf, hosts string) (*System, error) {
	s := &System{hosts: map[string][]netip.Addr{}, port: 53}
	err := errors.Join(eachLine(resolvConf, s.addServer), eachLine(hosts, s.addHost))
	if err != nil {
		return nil, err
	}
	if len(s.servers) == 0 {
		s.servers = []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), s.port)}
	}
	return s, nil
}

// eachLine calls f with the words of each line that has two or more, without comments.
func eachLine(path string, f func(words []string)) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(content)) {
		line, _, _ = strings.Cut(line, "#")
		line, _, _ = strings.Cut(line, ";")
		if words := strings.Fields(line); len(words) > 1 {
			f(words)
		}
	}
	return nil
}

func (s *System) addServer(words []string) {
	if words[0] != "nameserver" || len(s.servers) == maxServers {
		return
	}
	addr, err := netip.ParseAddr(words[1])
	if err != nil {
		return
	}
	if addr.Zone() != "" {
		// Package net finds the index of a device by netlink, which the program may not use later.
		if device, err := net.InterfaceByName(addr.Zone()); err == nil {
			addr = addr.WithZone(strconv.Itoa(device.Index))
		}
	}
	s.servers = append(s.servers, netip.AddrPortFrom(addr, s.port))
}

func (s *System) addHost(words []string) {
	addr, err := netip.ParseAddr(words[0])
	if err != nil {
		return
	}
	for _, name := range words[1:] {
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		s.hosts[name] = append(s.hosts[name], addr)
	}
}

// LookupNetIP implements Resolver.
func (s *System) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if found := s.hosts[strings.TrimSuffix(host, ".")]; len(found) > 0 {
		return found, nil
	}
	if err := ctx.Err(); err != nil { // package net may answer all the same
		return nil, err
	}
	var failed error
	for n, server := range s.servers {
		found, err := ask(ctx, server, network, host, n+1 < len(s.servers))
		missing := (*net.DNSError)(nil)
		if err == nil || errors.As(err, &missing) && missing.IsNotFound || ctx.Err() != nil {
			return found, err
		}
		failed = err
	}
	return nil, failed
}

// ask asks one server. more says whether another one is left to ask.
func ask(ctx context.Context, server netip.AddrPort, network, host string, more bool) ([]netip.Addr, error) {
	if more {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, serverTimeout)
		defer cancel()
	}
	// Package net would connect to a server of the resolv.conf that it finds, which it may not be able to read now.
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server.String())
	}}
	return r.LookupNetIP(ctx, network, host)
}
