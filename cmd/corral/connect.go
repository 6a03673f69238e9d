package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"corral/isolate/client"
	"corral/isolate/client/embed"
)

// connect returns a client of the supervisor that o names, and a function that the caller calls after the job. If the
// caller is root and names neither a supervisor nor a session, connect starts a supervisor for the repository and drops
// root before it returns.
func connect(o *runOptions) (*client.Client, func(), error) {
	if embed.Root() && o.supervisor == "" && o.spec.Session == "" {
		return embedded(o)
	}
	if o.account != "" {
		return nil, nil, errors.New("--account is for root without sudo, which starts a supervisor for one job\nhint: a running supervisor sees the user of the process that connects")
	}
	if len(o.toolchains) > 0 {
		return nil, nil, errors.New("--toolchain is for the supervisor that root starts for one job\nhint: the operator can add it to the configuration of a running one")
	}
	c, err := dial(o.supervisor)
	if err != nil {
		return nil, nil, err
	}
	return c, func() { c.Close() }, nil
}

// dial connects to a running supervisor; "" is the installed one's socket.
func dial(socket string) (*client.Client, error) {
	c, err := embed.Dial(socket)
	hint := ""
	switch {
	case err == nil && embed.Root(): // the supervisor sees root; directories belong to the user who called sudo
		whose, err := embed.Account("")
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.Account = &whose
		return c, nil
	case err == nil:
		return c, nil
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		hint = "add the user to group corral, or run with sudo"
	case errors.Is(err, unix.EPROTOTYPE):
		hint = "the socket has another type, so it belongs to another program"
	case socket == "" && embed.Root():
		hint = "start corrald as a service: systemctl enable --now corrald"
	case socket == "":
		hint = "start corrald as a service, or run with sudo"
	case errors.Is(err, unix.ECONNREFUSED):
		hint = "no supervisor listens there: has it ended?"
	default:
		return nil, err
	}
	return nil, fmt.Errorf("%w\nhint: %s", err, hint)
}

// embedded starts a supervisor for the repository that root named, and drops root.
func embedded(o *runOptions) (*client.Client, func(), error) {
	return startSupervisor(embed.Options{
		Repos: []string{o.spec.Repo}, Toolchains: o.toolchains, Account: o.account, Network: o.spec.Network,
		Key: o.key, KeyOf: o.keyOf,
	})
}

// startSupervisor is embed.Start with the corrald of the same release.
func startSupervisor(o embed.Options) (c *client.Client, finish func(), err error) {
	if o.Program, err = sibling("corrald"); err != nil {
		return nil, nil, err
	}
	return embed.Start(o)
}

// sibling returns the path of a program of the same release, which is in this program's directory or in ../lib/corral.
func sibling(name string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, dir := range []string{filepath.Dir(exe), filepath.Join(filepath.Dir(exe), "..", "lib", "corral")} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed beside %s", name, exe)
}
