package main

import (
	"fmt"
	"os"
	"slices"

	"corral/internal/config"
	"corral/isolate"
	"corral/isolate/admit"
	"corral/isolate/sessions"
	"corral/job"
	"corral/policy/network"
)

// configure merges the operator's configuration with the command line. A missing default file means the default
// configuration; a file named with --config must exist.
//
// An embedded supervisor serves only the directories that root named, but the rest of the file applies to it, above all
// the range of user ids, which all supervisors of the machine share.
func (o *options) configure() error {
	source := config.Source{Path: o.config, Options: config.LoadOptions{Trusted: true}}
	if o.config == "" {
		source.Path, source.Optional = config.DefaultPath, true
	}
	c, err := config.LoadFront(source)
	if err != nil {
		return err
	}
	return o.take(c)
}

// again returns what the configuration and the command line say now, for the running supervisor.
func (o *options) again() (isolate.Config, error) {
	fresh, err := parse(o.args)
	if err == nil {
		err = fresh.configure()
	}
	if err != nil {
		return isolate.Config{}, err
	}
	fresh.supervisor.Programs, fresh.supervisor.Log = o.supervisor.Programs, o.supervisor.Log
	return fresh.supervisor, nil
}

// orNone returns -1, which means none in isolate.Config, for 0, which means the default there.
func orNone(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

func (o *options) take(c config.Config) error {
	s := &o.supervisor
	s.UIDBase, s.UIDSize = c.UIDs.Base, c.UIDs.Size
	s.Toolchains = append(c.Toolchains, s.Toolchains...)
	s.EtcFiles = c.EtcFiles
	s.Defaults, s.Ceilings = c.Defaults, c.Ceilings
	s.JailIdle, s.MaxJobs = c.JailIdle, c.MaxJobs
	s.MaxPerUser, s.UserMemory, s.MaxJails = c.MaxJobsPerUser, c.UserMemory, c.MaxJails
	s.Slots, s.MaxSlots = orNone(c.WarmSlots), orNone(c.MaxWarmSlots)
	s.Connections.Job, s.Connections.User = c.NetworkConnections.Job, c.NetworkConnections.User
	s.Audit = isolate.Audit{
		Each: c.Audit.Fsync == config.Each, MaxSize: c.Audit.MaxSize, Keep: c.Audit.Keep, KeepFor: c.Audit.KeepFor, UserDaily: c.Audit.UserDaily,
		Record: c.Audit.Record,
	}
	s.Exposed = c.Exposed()
	l := c.Layers
	s.Layers = sessions.Layers{
		Disk: l.Disk, Inodes: l.Inodes, Reserve: l.Reserve, MaxDisk: l.MaxDisk, MaxInodes: l.MaxInodes,
		Idle: l.Idle, MaxIdle: l.MaxIdle, Keep: l.Keep,
	}
	if o.embedded >= 0 {
		s.Layers.Keep = -1 // only a daemon removes expired layers
		return o.connect(c)
	}
	n := newNetworks(c)
	for i := range s.Repos { // of the command line, which may also be in the file
		path := s.Repos[i].Path
		at := slices.IndexFunc(c.Repos, func(r config.Repo) bool { return r.Path == path })
		var r config.Repo
		if at >= 0 {
			r = c.Repos[at]
		}
		var err error
		if s.Repos[i].Network, s.Repos[i].Requests, err = n.of(r); err != nil {
			return err
		}
	}
	for _, r := range c.Repos {
		entry := served(r, c.Floor(r))
		var err error
		if entry.Network, entry.Requests, err = n.of(r); err != nil {
			return err
		}
		s.Repos = append(s.Repos, entry)
	}
	s.Own = c.ServesOwn(len(s.Repos))
	var err error
	s.Network, s.Requests, err = n.of(config.Repo{})
	return err
}

// connect allows the jobs of an embedded supervisor to reach what root named, or else what the file allows to any repository. The
// file's other rules apply in either case.
func (o *options) connect(c config.Config) error {
	s := &o.supervisor
	if o.network != "" {
		named, err := network.RulesFor(o.network)
		if err != nil {
			return fmt.Errorf("--network: %w", err)
		}
		c.Network.Allow = named.Allow
	}
	n := newNetworks(c)
	if o.key != "" {
		if err := n.useKey(o.key, os.NewFile(keyDescriptor, "key")); err != nil {
			return fmt.Errorf("--key: %w", err)
		}
	}
	var err error
	s.Network, s.Requests, err = n.of(config.Repo{})
	for i := range s.Repos {
		s.Repos[i].Network, s.Repos[i].Requests = s.Network, s.Requests
	}
	return err
}

func served(r config.Repo, f config.Floor) admit.Entry {
	repo := admit.Entry{
		Path: r.Path, UIDs: r.Users, Owner: r.Owner, Ceilings: f.Ceilings, ReadOnly: f.Workspace == job.ReadOnly,
		Overlay: f.Workspace == job.Overlay, Protect: f.Protect,
	}
	if f.Syscalls != "default" {
		repo.Profile = f.Syscalls
	}
	return repo
}
