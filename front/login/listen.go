package login

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Listen listens for browsers of this machine at HOST:PORT, where HOST is localhost, which stands for 127.0.0.1 and ::1, or one
// loopback address.
// Others are refused: a browser resolves names in localhost to the loopback interface of its own machine.
func Listen(address string) (list []net.Listener, port uint16, err error) {
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, fmt.Errorf("%w\nhint: must be HOST:PORT, such as localhost:7071", err)
	}
	hosts := []string{host}
	if host == "localhost" {
		hosts = []string{"127.0.0.1", "::1"}
	} else if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return nil, 0, fmt.Errorf("%q is not a loopback address\nhint: use localhost:PORT; for a browser on another machine, forward the port: ssh -L PORT:localhost:PORT", host)
	}
	for n, host := range hosts {
		l, err := net.Listen("tcp", net.JoinHostPort(host, number))
		if n > 0 && (errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT)) {
			break // a host without IPv6
		}
		if err != nil {
			for _, l := range list {
				_ = l.Close()
			}
			return nil, 0, err
		}
		list = append(list, l)
		port = uint16(l.Addr().(*net.TCPAddr).Port)
		number = strconv.Itoa(int(port))
	}
	return list, port, nil
}
