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
	"sync/atomic"
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

// A System is the Resolver of the host's files, as they were when they were read last.
type System struct{ files atomic.Pointer[files] }

// files are what the host's files say.
type files struct {
	servers []netip.AddrPort
	hosts   map[string][]netip.Addr
	device  func(name string) (index int, err error)
}

// port is that of a server.
const port = 53

// ReadSystem reads a resolv.conf(5), for the addresses of servers, and a hosts(5). A file that does not exist is empty.
func ReadSystem(resolvConf, hosts string) (*System, error) {
	var readers [2]io.Reader
	for n, path := range []string{resolvConf, hosts} {
		file, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		defer file.Close()
		readers[n] = file
	}
	s := new(System)
	return s, s.Read(readers[0], readers[1], func(name string) (int, error) {
		device, err := net.InterfaceByName(name)
		if err != nil {
			return 0, err
		}
		return device.Index, nil
	})
}

// Read replaces what the files say. A reader that is nil is an empty file. Without a server in it, the server is that of this
// host, as for the C library. device returns the index of a network device. After an error, nothing is replaced.
func (s *System) Read(resolvConf, hosts io.Reader, device func(name string) (index int, err error)) error {
	f := &files{hosts: map[string][]netip.Addr{}, device: device}
	if err := errors.Join(eachLine(resolvConf, f.addServer), eachLine(hosts, f.addHost)); err != nil {
		return err
	}
	if len(f.servers) == 0 {
		f.servers = []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)}
	}
	s.files.Store(f)
	return nil
}

// eachLine calls f with the words of each line that has two or more, without comments.
func eachLine(file io.Reader, f func(words []string)) error {
	if file == nil {
		return nil
	}
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

func (f *files) addServer(words []string) {
	if words[0] != "nameserver" || len(f.servers) == maxServers {
		return
	}
	addr, err := netip.ParseAddr(words[1])
	if err != nil {
		return
	}
	if addr.Zone() != "" {
		// Package net finds the index of a device by netlink, which the program may not use later.
		if index, err := f.device(addr.Zone()); err == nil {
			addr = addr.WithZone(strconv.Itoa(index))
		}
	}
	f.servers = append(f.servers, netip.AddrPortFrom(addr, port))
}

func (f *files) addHost(words []string) {
	addr, err := netip.ParseAddr(words[0])
	if err != nil {
		return
	}
	for _, name := range words[1:] {
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		f.hosts[name] = append(f.hosts[name], addr)
	}
}

// LookupNetIP implements Resolver.
func (s *System) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	f := s.files.Load()
	if found := f.hosts[strings.TrimSuffix(host, ".")]; len(found) > 0 {
		return found, nil
	}
	if err := ctx.Err(); err != nil { // package net may answer all the same
		return nil, err
	}
	var failed error
	for n, server := range f.servers {
		found, err := ask(ctx, server, network, host, n+1 < len(f.servers))
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
