package main

// bubblewrap measures one run of bubblewrap, on request with corral's system call filter.
func bubblewrap(o *options, filtered bool) *Row {
	r := &Row{
		Name: "bubblewrap", Sets: "user, mount, PID, network, IPC, UTS and cgroup namespaces",
		Lacks: "no cgroup limits, no seccomp, no Landlock, no user of the job's own, no audit",
	}
	if filtered {
		r.Name, r.Sets = r.Name+" + seccomp", r.Sets+"; corral's filter"
		r.Lacks = "no cgroup limits, no Landlock, no user of the job's own, no audit"
	}
	bwrap, env, err := o.debian("usr/bin/bwrap")
	if err != nil {
		r.fail(err)
		return r
	}
	s := &spawn{env: env}
	r.Sets += "; " + (&spawn{args: []string{bwrap, "--version"}, env: env}).said()
	s.args = []string{
		bwrap, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--clearenv",
		"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
		"--symlink", "usr/lib64", "/lib64", "--ro-bind", "/etc", "/etc", "--proc", "/proc", "--dev", "/dev",
		"--tmpfs", "/tmp", "--bind", o.repo, o.repo, "--chdir", o.repo,
	}
	if filtered {
		if s.extra, err = o.filter(); err != nil {
			r.fail(err)
			return r
		}
		s.args = append(s.args, "--seccomp", "3")
	}
	s.args = append(s.args, program)
	r.Run = s.run()
	return r
}
