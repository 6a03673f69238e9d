package ci

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"corral/front/cli"
	"corral/isolate/client/embed"
)

// Relay is the name of the command that runs in a jail: the program of a stage that transfers files. It passes connections
// to a port of the jail's loopback on to the socket of the stage's outlet, since programs cannot name a unix socket as their
// proxy. People do not type it.
const Relay = "ci-relay"

// RelayCommand runs a program that has the outlet as its HTTP proxy: its arguments are SOCKET PROGRAM [ARG]... It returns the
// program's exit code.
func RelayCommand(args []string) error {
	if err := embed.Drop(); err != nil {
		return err
	}
	if len(args) < 2 {
		return errors.New("corral " + Relay + " is run by corral itself")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go relay(l, args[0])
	// The program gets the signals of the job, too. Ignoring them would make it ignore them as well.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = withProxy(os.Environ(), "http://"+l.Addr().String())
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return err
	}
	if s := exit.Sys().(interface {
		Signaled() bool
		Signal() unix.Signal
	}); s.Signaled() {
		return cli.Exit(128+int(s.Signal()), nil)
	}
	return cli.Exit(exit.ExitCode(), nil)
}

// withProxy returns the environment with the proxy for all hosts.
func withProxy(env []string, proxy string) []string {
	env = slices.DeleteFunc(env, func(v string) bool {
		name, _, _ := strings.Cut(strings.ToLower(v), "=")
		return strings.HasSuffix(name, "_proxy")
	})
	for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"} {
		env = append(env, fmt.Sprintf("%s=%s", name, proxy))
	}
	return env
}

// relay passes each connection on to the socket.
func relay(l net.Listener, socket string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			out, err := net.Dial("unix", socket)
			if err != nil {
				_, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n")
				return
			}
			defer out.Close()
			copyBoth(c, out)
		}()
	}
}
