package main

import (
	"context"
	"slices"
)

// peerMakers returns the peers in the order of the table: first those that set up each job from nothing.
func peerMakers() []peerMaker {
	return []peerMaker{
		{"bubblewrap", one(func(o *options) *Row { return bubblewrap(o, false) })},
		{"bubblewrap + seccomp", one(func(o *options) *Row { return bubblewrap(o, true) })},
		{"runc", func(o *options) ([]*Row, func(), error) { return ociRows(o, "runc", "usr/sbin/runc") }},
		{"crun", func(o *options) ([]*Row, func(), error) { return ociRows(o, "crun", "usr/bin/crun") }},
		{"sandbox-runtime", one(sandboxRuntime)},
		{"go-judge by HTTP", judgeRows},
		{"podman exec", podmanRows},
		{"Codex command/exec", codexRows},
	}
}

// peerRows returns the rows of bare, every peer, and corral.
func peerRows(o *options) ([]*Row, func(), error) {
	return rowsOf(o, append(peerMakers(), corralMakers()...))
}

// rowsOf returns the rows of bare and of makers. The row of one that is not available says so.
func rowsOf(o *options, makers []peerMaker) ([]*Row, func(), error) {
	var all []func()
	rows := []*Row{bare()}
	for _, m := range makers {
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
		all = append(all, done)
		rows = append(rows, more...)
	}
	return rows, func() {
		for _, done := range slices.Backward(all) {
			done()
		}
	}, nil
}

func peersMode(ctx context.Context, o *options) error {
	key, title := "peers", "One /bin/true, in every peer and at each level of corral"
	if o.idle > 0 {
		key, title = "peers-idle", title+", after "+o.idle.String()+" idle"
	}
	return tableMode(key, title, peerRows)(ctx, o)
}
