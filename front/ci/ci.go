// Package ci is the command `corral ci`: it is what a CI system's runner calls to have jobs of its pipelines run in jails.
package ci

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"

	"corral/front/cli"
	"corral/internal/directory"
	"corral/internal/text"
	"corral/internal/usage"
	"corral/job"
	"corral/policy/ask"
)

// Help is the help text of the command.
const Help = `corral ci runs the jobs of a CI system in jails. GitLab's runner calls it as its custom executor.

Usage:
  corral ci gitlab config [OPTIONS]               name the directories of a job
  corral ci gitlab prepare [OPTIONS]              make them, and open a session
  corral ci gitlab run [OPTIONS] SCRIPT STAGE     run one stage of the job in the session
  corral ci gitlab cleanup [OPTIONS]              end the session, and remove the directories

All four take the same options, and need the same ones:

  --dir DIR             where jobs have their directories (default: corral-ci in the home directory of the user)
  --account USER        for a runner that is root: the user that owns what jobs write
  --server URL          the GitLab server, such as https://gitlab.example.com (default: that of the job's repository)
  --offline             no stage reaches the server: no sources, artifacts or submodules are transferred
  --network HOST,...    what jobs of protected branches and tags reach of the hosts that the operator's rules allow: presets, HOST,
                        HOST:PORT, or none (default: all of them)
  --network-unprotected HOST,...  the same for all other jobs, whose scripts more people can change (default: none)
  --layer SIZE          size of the layer with the home directory and /tmp of the job (default 1GiB)
  --cache SIZE          maximum size of the caches of a project (default 2GiB)
  --profile PROFILE     system call profile: default or strict
  --supervisor SOCKET   use the supervisor on this socket

Limits of a stage, whose repository is the directory of the job:

` + usage.Limits + `
Stages of a job share the build directory, the home directory and /tmp. No process outlives its stage. Stages that transfer
sources and artifacts reach the GitLab server, too. Whether a branch or tag is protected is what the server says; nothing in a
pipeline changes it.

Example, in config.toml of the runner:
  [runners.custom]
    config_exec = "/usr/bin/corral"
    config_args = ["ci", "gitlab", "config", "--memory", "4GiB"]
    prepare_exec = "/usr/bin/corral"
    prepare_args = ["ci", "gitlab", "prepare", "--memory", "4GiB"]
    run_exec = "/usr/bin/corral"
    run_args = ["ci", "gitlab", "run", "--memory", "4GiB"]
    cleanup_exec = "/usr/bin/corral"
    cleanup_args = ["ci", "gitlab", "cleanup", "--memory", "4GiB"]
`

// options is the command line.
type options struct {
	dir, account, server, supervisor, profile string
	offline                                   bool
	cache, layer                              int64 // bytes
	// network is what jobs of protected and other refs ask for of the hosts that the operator allows, see job.SessionSpec.Network.
	network struct{ protected, other string }
	limits  job.Limits
}

// Defaults in bytes.
const (
	defaultCache = 2 << 30
	defaultLayer = 1 << 30
)

// verbs are the calls of GitLab's custom executor, with the number of arguments that follow the options.
var verbs = map[string]struct {
	args int
	call func(o *options, g *gitlab, args []string) error
}{
	"config": {0, (*options).config}, "prepare": {0, (*options).prepare},
	"run": {2, (*options).run}, "cleanup": {0, (*options).cleanup},
}

// Command is the cli.Command.
func Command(args []string) error {
	o := options{cache: defaultCache, layer: defaultLayer}
	o.network.other = job.NoNetwork
	words, err := cli.ParseMixed(o.flags(), args, Help)
	if err == nil {
		err = o.check(words)
	}
	if err != nil {
		return cli.Exit(exitCode(err), err)
	}
	g, err := enter(&o, words)
	if err == nil {
		defer g.close()
		err = verbs[words[1]].call(&o, g, words[2:])
	}
	return cli.Exit(exitCode(err), silent(err))
}

func (o *options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("ci", flag.ContinueOnError)
	for name, to := range map[string]*string{
		"dir": &o.dir, "account": &o.account, "server": &o.server, "supervisor": &o.supervisor, "profile": &o.profile,
	} {
		f.Func(name, "", func(s string) error {
			if s == "" {
				return errors.New("must not be empty")
			}
			*to = s
			return nil
		})
	}
	f.Func("network", "", ask.Into(&o.network.protected))
	unprotected := ""
	f.Func("network-unprotected", "", func(s string) error {
		err := ask.Into(&unprotected)(s)
		o.network.other = unprotected
		return err
	})
	f.BoolVar(&o.offline, "offline", false, "")
	f.Func("cache", "", func(s string) (err error) { o.cache, err = job.ParseSize(s); return err })
	f.Func("layer", "", func(s string) (err error) { o.layer, err = job.ParseSize(s); return err })
	for _, limit := range o.limits.Fields() {
		if limit.Option != "" {
			f.Func(limit.Option, "", func(s string) (err error) { *limit.Value, err = limit.Unit.Parse(s); return err })
		}
	}
	return f
}

func (o *options) check(words []string) error {
	switch {
	case len(words) == 0:
		return errors.New("no CI system given: must be gitlab\nhint: corral ci --help")
	case words[0] != "gitlab":
		return fmt.Errorf("%s is not a CI system that calls corral: must be gitlab\nhint: corral ci --help", text.Quote(words[0]))
	case len(words) < 2 || verbs[words[1]].call == nil || verbs[words[1]].args != len(words)-2:
		return cli.Misused("ci gitlab", Help, words[1:])
	}
	if o.server != "" {
		if _, err := originOf(o.server); err != nil {
			return fmt.Errorf("--server: %w", err)
		}
	}
	return o.limits.Check()
}

// root returns the directory of all jobs and caches, which must have been named if the user's home directory is unknown.
func (o *options) root(home string) (string, error) {
	dir := o.dir
	if dir == "" {
		if !filepath.IsAbs(home) {
			return "", errors.New("the home directory is unknown\nhint: --dir names a directory for jobs")
		}
		dir = filepath.Join(home, "corral-ci")
	}
	return directory.Absolute(dir)
}
