package dial

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// isOwn reports whether an address is one of this host. It needs neither netlink nor files, which the program must not use,
// and sends nothing. It returns true if it cannot find out.
func isOwn(addr netip.Addr) bool {
	return reachesItself(addr) || binds(addr) && !binds(foreign(addr))
}

// foreign is an address that no host has, in the family of addr. A socket can be bound to it only where one can be bound to
// any address (net.ipv4.ip_nonlocal_bind).
func foreign(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return netip.AddrFrom4([4]byte{240, 0, 0, 1})
	}
	return netip.MustParseAddr("100::1")
}

// reachesItself reports whether the kernel would send from addr to addr.
func reachesItself(addr netip.Addr) bool {
	own := true
	err := withSocket(addr, func(fd int) error {
		const port = 9
		// connect(2) of a datagram socket only looks up the route.
		if err := unix.Connect(fd, sockaddr(addr, port)); err != nil {
			own = false // no route: nothing is reached
			return nil
		}
		from, err := unix.Getsockname(fd)
		if err == nil {
			own = addrOf(from) == addr
		}
		return err
	})
	return err != nil || own
}

// binds reports whether a socket can be bound to addr: it has also ranges of local addresses without a device.
func binds(addr netip.Addr) bool {
	err := withSocket(addr, func(fd int) error { return unix.Bind(fd, sockaddr(addr, 0)) })
	return err == nil
}

// withSocket calls f with a datagram socket of the family of addr.
func withSocket(addr netip.Addr, f func(fd int) error) error {
	family := unix.AF_INET6
	if addr.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return f(fd)
}

func sockaddr(addr netip.Addr, port int) unix.Sockaddr {
	if addr.Is4() {
		return &unix.SockaddrInet4{Addr: addr.As4(), Port: port}
	}
	return &unix.SockaddrInet6{Addr: addr.As16(), Port: port}
}

func addrOf(a unix.Sockaddr) netip.Addr {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(a.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(a.Addr)
	}
	return netip.Addr{}
}
