package commands

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"strings"

	"corral/front/cli"
	"corral/front/server"
	"corral/front/supervisor"
	"corral/internal/config"
	"corral/internal/text"
	"corral/isolate/client/embed"
	"corral/policy/network"
)

// networkHelp is the help text of the command.
const networkHelp = `corral network shows which hosts jobs may reach, and allows or denies more of them, in the operator's configuration,
` + config.DefaultPath + `.

Usage:
  corral network list [--repo ID] [--config FILE]      list the rules of each repository
  corral network test HOST[:PORT] [--repo ID] [--config FILE]
                                                       say whether jobs may reach a host, and by which rule
  corral network test https://HOST[:PORT]/PATH [--method GET] [--repo ID] [--config FILE]
                                                       say whether jobs may make a request, and which secret it carries
  corral network allow NAME... (--repo ID | --all) [--protocol tls|http|tcp] [--config FILE] [--supervisor SOCKET]
                                                       add a preset, HOST or HOST:PORT to the rules
  corral network deny HOST... (--repo ID | --all) [--config FILE] [--supervisor SOCKET]
                                                       deny a host, whatever else is allowed
  corral network authority show|rotate [--state DIR] [--supervisor SOCKET]
                                                       print the certificates that jobs trust where rules are about
                                                       requests, one for each user, or replace them with their keys;
                                                       as root
  corral network log [--follow] [--repo ID] [--user USER] [--denied] [--since T] [--json] [--state DIR]
                                                       print what jobs reached and were denied, when they have ended

  --repo ID             of this repository; if it has no rules of its own, it gets a copy of the file's
  --all                 of all repositories without rules of their own
  --protocol tls|http|tcp
                        what is spoken: TLS for the host's name, plain HTTP likewise, anything (default: what is usual at
                        the port)
  --follow              also -f: print also jobs that end from now on
  --user USER           jobs of this user, a name or a number, also through sudo
  --denied              jobs that were denied a host
  --since T             jobs that ended from this time on: 2026-11-21, 2026-11-21T10:00:00Z or 36h, which is 36 hours ago
  --json                one JSON object for each job, on a line of its own
  --config FILE         read or change this file instead of the operator's
  --method GET          method of the request (default GET)
  --state DIR           the supervisor's state directory (default ` + supervisor.StateDir + `)
  --supervisor SOCKET   make the supervisor on this socket read its configuration again (default: that of the service,
                        unless --config names a file)

HOST can be *.HOST, for all names below it. The operator's file is changed with sudo; the rest of it stays as it is written.

The log is read from the audit log, for which it needs sudo: for each job with network access, how many connections were allowed, and
the first hosts that were denied. --repo of log is also the path of a directory. corral-egress writes a line for each connection, with
the host and the rule, to the supervisor's diagnostic log (journalctl -u corrald).

Exit code of test: 0 allowed; 1 denied in a repository that is listed; 125 the host or the configuration is invalid.
`

// networkOptions is the command line of corral network.
type networkOptions struct {
	repo, protocol, file, socket, state, method string
	all                                         bool
}

// networkCommand is `corral network`, which shows which hosts jobs may reach, and adds to that.
func networkCommand(args []string) error {
	if len(args) > 0 && args[0] == "log" {
		return networkLog(args[1:])
	}
	var o networkOptions
	f := flag.NewFlagSet("network", flag.ContinueOnError)
	f.StringVar(&o.repo, "repo", "", "")
	f.StringVar(&o.protocol, "protocol", "", "")
	f.StringVar(&o.file, "config", "", "")
	f.StringVar(&o.socket, "supervisor", "", "")
	f.StringVar(&o.state, "state", "", "")
	f.StringVar(&o.method, "method", "", "")
	f.BoolVar(&o.all, "all", false, "")
	words, err := cli.ParseMixed(f, args, networkHelp)
	if err != nil {
		return err
	}
	verb := strings.Join(words[:min(1, len(words))], "")
	reads := !o.all && o.protocol+o.socket+o.state == ""
	switch {
	case verb == "authority" && !o.all && o.protocol+o.repo+o.file == "":
		return o.authority(words[1:])
	case o.state != "", o.method != "" && verb != "test":
	case verb == "list" && len(words) == 1 && reads:
		return o.list()
	case verb == "test" && len(words) == 2 && reads:
		return o.test(words[1])
	case verb == "allow" && len(words) > 1, verb == "deny" && len(words) > 1 && o.protocol == "":
		return o.change(verb, words[1:])
	}
	return cli.Misused("network", networkHelp, words)
}

// load reads the file that the supervisor reads, and no other: no other decides what jobs reach. It drops root.
func (o *networkOptions) load() (config.Config, error) {
	path := o.path()
	for _, source := range server.ConfigSources(o.file) {
		if source.Path == path {
			c, _, err := server.LoadConfig([]config.Source{source})
			return c, err
		}
	}
	return config.Config{}, errors.Join(embed.Drop(), fmt.Errorf("%s is not read", path)) // unreachable
}

// change adds rules to the configuration, and makes the supervisor read it again.
func (o *networkOptions) change(verb string, names []string) error {
	e, err := o.edit(verb, names)
	if err != nil {
		return err
	}
	path, err := editConfig(o.path(), config.Edit{AddNetwork: &e})
	if err != nil {
		return err
	}
	return o.apply(path+" was changed", "")
}

// apply makes the supervisor read again what was changed, drops root, and prints done, followed by more if that succeeds.
func (o *networkOptions) apply(done, more string) error {
	notes, err := o.reload()
	if err = errors.Join(err, embed.Drop()); err != nil {
		return fmt.Errorf("%s: %w", done, err)
	}
	for _, note := range notes {
		cli.Note(note)
	}
	return cli.Print(done + more + "\n")
}

// path returns the file to change. Other users than root have no rules of their own.
func (o *networkOptions) path() string { return cmp.Or(o.file, config.DefaultPath) }

// edit returns the change that the command line asks for.
func (o *networkOptions) edit(verb string, names []string) (e config.NetworkEdit, err error) {
	if o.all == (o.repo != "") {
		return e, errors.New("say which jobs: --repo ID or --all\nhint: corral network --help")
	}
	e.Repo = o.repo
	if verb == "deny" {
		e.Deny = names
		return e, nil
	}
	for _, name := range names {
		rule, err := network.ParseRule(name, o.protocol)
		if err != nil {
			return e, err
		}
		e.Allow = append(e.Allow, rule)
	}
	return e, nil
}

// reload makes the supervisor read its configuration again, if the changed file is its own. If none runs, it will read the file
// when it starts.
func (o *networkOptions) reload() (notes []string, err error) {
	if o.socket == "" && o.file != "" || !embed.Root() {
		return []string{"it applies when the supervisor reads its configuration again: corral reload"}, nil
	}
	c, err := supervisor.Dial(o.socket)
	if err != nil && o.socket == "" {
		return []string{"no supervisor was reached: it applies when one starts"}, nil
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	notes, err = c.Reload()
	if err != nil {
		return nil, fmt.Errorf("the supervisor did not read it: %w", err)
	}
	for i := range notes {
		notes[i] = text.Lines(notes[i])
	}
	return notes, nil
}
