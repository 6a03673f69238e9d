package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"corral/isolate/client"
	"corral/job"
)

// Policies of command/exec, and their names in rows.
var policies = []struct {
	name   string
	policy map[string]any
}{
	{"readOnly", map[string]any{"type": "readOnly"}},
	{"workspaceWrite", map[string]any{"type": "workspaceWrite", "writableRoots": []string{}, "networkAccess": false}},
}

// sessionRows measures a call in an open session of corral, and of the peers that this machine has.
func sessionRows(o *options) ([]*Row, func(), error) {
	return rowsOf(o, []peerMaker{
		{"corral, API in a session", standingRows},
		{"corral, sandbox_exec", sandboxRows},
		{"corral, command/exec", execRows},
		{"podman exec", podmanRows},
		{"Codex command/exec", codexRows},
	})
}

// standingRows measures jobs through the API in one session, whose jobs share their files and a network namespace.
func standingRows(o *options) ([]*Row, func(), error) {
	c, err := client.Dial(o.socket)
	if err != nil {
		return nil, nil, err
	}
	session, err := c.OpenSession(context.Background(), job.SessionSpec{Repo: o.repo, Workspace: job.Direct, Share: true})
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	spec := job.Spec{Repo: o.repo, Session: session.ID, Workspace: session.Workspace, Args: []string{program}}
	return []*Row{{
		Name: "corral, API in a session", Sets: "all namespaces except the network, cgroup, seccomp, Landlock; audit",
		Run: func() error { return runJob(c, spec) },
	}}, func() { c.Close() }, nil
}

// sandboxRows measures calls of sandbox_exec; the first one opens the session.
func sandboxRows(o *options) ([]*Row, func(), error) {
	row := Row{Name: "corral, sandbox_exec", Sets: "the same; policy, a root file system of the session's own"}
	return toolRows(o, row, "sandbox_exec", map[string]any{"args": []string{program}}, func(result json.RawMessage) error {
		var r struct {
			Content []struct{ Text string }
			IsError bool
		}
		var ran struct {
			ExitCode *int `json:"exit_code"`
		}
		if err := json.Unmarshal(result, &r); err != nil {
			return err
		}
		if r.IsError || len(r.Content) != 1 || json.Unmarshal([]byte(r.Content[0].Text), &ran) != nil ||
			ran.ExitCode == nil || *ran.ExitCode != 0 {
			return fmt.Errorf("%s", result)
		}
		return nil
	})
}

// execRows measures calls of corral's command/exec.
func execRows(o *options) ([]*Row, func(), error) {
	p, err := o.front("exec-server")
	if err != nil {
		return nil, nil, err
	}
	rows, err := callRows(p, "corral, command/exec", o.repo, "the same; policy", "")
	if err != nil {
		p.close()
		return nil, nil, err
	}
	return rows, p.close, nil
}

// callRows measures calls of a server of command/exec, with each policy.
func callRows(p *server, name, cwd, sets, lacks string) ([]*Row, error) {
	_, err := p.ask("initialize", map[string]any{"clientInfo": map[string]any{"name": "bench", "version": "1"}})
	if err != nil {
		return nil, err
	}
	if err := p.tell("initialized"); err != nil {
		return nil, err
	}
	var rows []*Row
	for _, policy := range policies {
		params := map[string]any{"command": []string{program}, "cwd": cwd, "sandboxPolicy": policy.policy}
		r := &Row{Name: name + ", " + policy.name, Sets: sets, Lacks: lacks, Serial: true, Run: func() error { return p.runs(params) }}
		if err := r.Run(); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// runs runs a program that must succeed.
func (p *server) runs(params map[string]any) error {
	result, err := p.ask("command/exec", params)
	if err != nil {
		return err
	}
	var r struct{ ExitCode *int }
	if err := json.Unmarshal(result, &r); err != nil {
		return err
	}
	if r.ExitCode == nil || *r.ExitCode != 0 {
		return fmt.Errorf("%s", result)
	}
	return nil
}

// codexRows measures the command/exec that this protocol comes from. Its server has no network, and a home directory without
// an account, which it does not accept below the directory of temporary files.
func codexRows(o *options) ([]*Row, func(), error) {
	found, err := filepath.Glob(filepath.Join(o.peers, "npm/node_modules/@openai/codex-linux-*/vendor/*/bin/codex"))
	if err != nil || len(found) == 0 {
		return nil, nil, errors.Join(errAbsent, err)
	}
	home, temporary := filepath.Join(o.dir, "codex"), filepath.Join(o.dir, "codex-tmp")
	for _, dir := range []string{home, temporary} {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, nobody, nobody)); err != nil {
			return nil, nil, err
		}
	}
	cmd := exec.Command(found[0], "app-server", "--disable", "plugins", "--listen", "stdio://")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + home, "CODEX_HOME=" + home, "TMPDIR=" + temporary, "RUST_LOG=error"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET, Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
	}
	cmd.Dir = o.repo
	p, err := newServer(cmd)
	if err != nil {
		return nil, nil, err
	}
	version, _ := exec.Command(found[0], "--version").Output()
	rows, err := callRows(p, "Codex command/exec", o.repo, "bubblewrap, seccomp; "+string(firstLine(version)),
		"no cgroup, no user of its own, no audit")
	if err != nil {
		p.close()
		return nil, nil, err
	}
	return rows, p.close, nil
}
