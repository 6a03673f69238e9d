package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"corral/isolate/client"
	"corral/isolate/client/embed"
)

// connect returns a client of the supervisor that o names, and a function to be called when the job is over. Root, when
// it names none, gets one of its own for the repository it named, and is root no more when connect returns.
func connect(o *runOptions) (*client.Client, func(), error) {
	if os.Geteuid() == 0 && o.supervisor == "" && o.spec.Session == "" {
		return embedded(o)
	}
	if o.account != "" {
		return nil, nil, errors.New("--account is for root without sudo, which starts a supervisor for one job\nhint: a supervisor that runs knows who asks")
	}
	if len(o.toolchains) > 0 {
		return nil, nil, errors.New("--toolchain is for the supervisor that root starts for one job\nhint: the operator can name it in the configuration of one that runs")
	}
	c, err := dial(o.supervisor)
	if err != nil {
		return nil, nil, err
	}
	return c, func() { c.Close() }, nil
}

// dial connects to a supervisor that runs, "" being the installed one.
func dial(socket string) (*client.Client, error) {
	c, err := client.Dial(socket)
	hint := ""
	switch {
	case err == nil && os.Geteuid() == 0: // the supervisor knows root, and who called sudo names the directory
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
		hint = "it is a socket of another kind, hence another program's"
	case socket == "":
		hint = "start corrald as a service, or run with sudo"
	case errors.Is(err, unix.ECONNREFUSED):
		hint = "no supervisor listens there: has it ended?"
	default:
		return nil, err
	}
	return nil, fmt.Errorf("%w\nhint: %s", err, hint)
}

// embedded starts a supervisor for the one directory that root named, and gives up root.
func embedded(o *runOptions) (*client.Client, func(), error) {
	path, err := sibling("corrald")
	if err != nil {
		return nil, nil, err
	}
	return embed.Start(embed.Options{Program: path, Repos: []string{o.spec.Repo}, Toolchains: o.toolchains, Account: o.account})
}
