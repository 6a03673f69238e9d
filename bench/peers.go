package main

import "context"

// peerMakers returns the peers in the order of the table: first those that set up each job from nothing.
func peerMakers() []peerMaker {
	return []peerMaker{
		{"bubblewrap", one(func(o *options) *Row { return bubblewrap(o, false) })},
		{"bubblewrap + seccomp", one(func(o *options) *Row { return bubblewrap(o, true) })},
		{"runc", func(o *options) ([]*Row, func(), error) { return ociRows(o, "runc", "usr/sbin/runc") }},
		{"crun", func(o *options) ([]*Row, func(), error) { return ociRows(o, "crun", "usr/bin/crun") }},
		{"firejail", firejailRows},
		{"minijail", absent("Debian has no package of its program, minijail0")},
		{"isolate", absent("Debian 12 has no package of it")},
		{"nsjail", absent("Debian 12 has no package of it")},
		{"sandbox-runtime", one(sandboxRuntime)},
		{"go-sandbox, new container", func(o *options) ([]*Row, func(), error) { return goSandboxRows(o, "cold") }},
		{"go-sandbox, standing container", func(o *options) ([]*Row, func(), error) { return goSandboxRows(o, "warm") }},
		{"go-judge by HTTP", judgeRows},
		{"podman exec", podmanRows},
		{"Codex command/exec", codexRows},
		{"context-mode", contextModeRows},
	}
}

// peerRows returns the rows of bare, every peer, and corral. The row of a peer that is not available says so.
func peerRows(o *options) ([]*Row, func(), error) {
	var all closers
	rows := []*Row{bare()}
	for _, m := range append(peerMakers(), corralMakers()...) {
		if !o.asked(m.name) {
			continue
		}
		more, done, err := m.rows(o)
		if err != nil {
			r := &Row{Name: m.name}
			r.fail(err)
			rows = append(rows, r)
			continue
		}
		all.add(done)
		rows = append(rows, more...)
	}
	return rows, all.close, nil
}

func peersMode(ctx context.Context, o *options) error {
	key, title := "peers", "One /bin/true, in every peer and at each level of corral"
	if o.idle > 0 {
		key, title = "peers-idle", title+", after "+o.idle.String()+" idle"
	}
	return tableMode(key, title, peerRows)(ctx, o)
}
