package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// A codexClient is a client of corral codex-environment, which asks one thing at a time.
type codexClient struct {
	*execClient
	p      *place
	server *sandboxtest.Command
	asked  int
	notes  []*execMessage
}

// codex starts corral codex-environment in a place, and introduces a client.
func (p *place) codex(t *testing.T, socket string, args ...string) *codexClient {
	t.Helper()
	return p.environment(t, append([]string{"--supervisor", socket, "--config", p.config(t, "")}, args...)...)
}

// environment is codex with these options alone.
func (p *place) environment(t *testing.T, args ...string) *codexClient {
	t.Helper()
	s := &execSite{t: t, p: p}
	c := &codexClient{execClient: &execClient{t: t, ended: make(chan struct{})}, p: p}
	cmd := p.front(append([]string{"codex-environment"}, args...)...)
	s.run(c.execClient, cmd)
	c.server = s.server
	t.Cleanup(c.close)
	c.call("initialize", object{"clientName": "codex-environment", "resumeSessionId": nil})
	return c
}

// next reads a message.
func (c *codexClient) next() *execMessage {
	c.t.Helper()
	text, err := c.read()
	m := &execMessage{}
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err != nil {
		c.t.Fatalf("%v: %s", err, text)
	}
	m.raw = text
	if m.ID == nil {
		c.notes = append(c.notes, m)
	}
	return m
}

// call returns the answer to a request.
func (c *codexClient) call(method string, params object) string {
	c.t.Helper()
	c.asked++
	id, _ := json.Marshal(c.asked)
	c.send(object{"id": c.asked, "method": method, "params": params})
	for {
		if m := c.next(); string(m.ID) == string(id) {
			return string(m.raw)
		}
	}
}

func (c *codexClient) uri(name string) string {
	return "file://" + strings.ReplaceAll(filepath.Join(c.p.repo, name), " ", "%20")
}

// sandbox is what Codex sends for a sandbox mode.
func (c *codexClient) sandbox(mode string) any {
	special := func(kind, access, sub string) object {
		return object{"path": object{"type": "special", "value": object{"kind": kind, "subpath": sub}}, "access": access}
	}
	entries := []any{special("root", "read", "")}
	switch mode {
	case "none":
		return nil
	case "write":
		entries = append(entries, special("project_roots", "write", ""), special("slash_tmp", "write", ""), special("tmpdir", "write", ""))
		for _, name := range []string{".git", ".agents", ".codex", ".aws"} {
			entries = append(entries, special("project_roots", "read", name))
		}
	}
	return object{"workspaceRoots": []string{c.uri("")}, "cwd": c.uri(""), "permissions": object{
		"type": "managed", "network": "restricted", "file_system": object{"type": "restricted", "entries": entries},
	}}
}

// start starts a shell command.
func (c *codexClient) start(id, mode, command string, more object) {
	c.t.Helper()
	params := object{
		"processId": id, "argv": []string{"/bin/bash", "-c", command}, "cwd": c.uri(""), "env": object{}, "tty": false, "pipeStdin": false,
		"sandbox": c.sandbox(mode), "metadata": object{"threadId": "thread-1", "toolCallId": "call-" + id},
	}
	for name, value := range more {
		params[name] = value
	}
	if got := c.call("process/start", params); !strings.Contains(got, `"sandboxType":"linuxSeccomp"`) {
		c.t.Fatalf("%s: %s", command, got)
	}
}

// output returns what a process has written so far, its exit code and whether it is over. Standard error comes last: it is a pipe of its own,
// and what comes through two pipes has no order.
func (c *codexClient) output(id string) (text string, exit int, denied, closed bool) {
	failures := ""
	for _, m := range c.notes {
		var p struct {
			ProcessID     string
			Stream        string
			Chunk         []byte
			ExitCode      int
			SandboxDenied bool
		}
		if json.Unmarshal(m.Params, &p) != nil || p.ProcessID != id {
			continue
		}
		if p.Stream == "stderr" {
			failures += string(p.Chunk)
		} else {
			text += string(p.Chunk)
		}
		switch m.Method {
		case "process/exited":
			exit, denied = p.ExitCode, p.SandboxDenied
		case "process/closed":
			closed = true
		}
	}
	return text + failures, exit, denied, closed
}

// until reads messages until a process has written a text, or is over if that is "".
func (c *codexClient) until(id, want string) string {
	c.t.Helper()
	for {
		text, _, _, closed := c.output(id)
		if closed || want != "" && strings.Contains(text, want) {
			return text
		}
		c.next()
	}
}

// run runs a command, and returns its output and exit code.
func (c *codexClient) run(id, mode, command string) (string, int) {
	c.t.Helper()
	c.start(id, mode, command, nil)
	c.until(id, "")
	text, exit, _, _ := c.output(id)
	return text, exit
}

// TestCodexEnvironment: commands and operations on files see one repository, in place and behind an overlay; a sandbox only narrows that.
func TestCodexEnvironment(t *testing.T) {
	sandboxtest.RequireJails(t)
	socket := daemon(t).Socket
	for _, workspace := range []string{"direct", "overlay"} {
		t.Run(workspace, func(t *testing.T) {
			p := newPlace(t)
			p.file(t, "a b.txt", "old\n")
			if err := os.Chmod(filepath.Join(p.repo, "a b.txt"), 0o755); err != nil {
				t.Fatal(err)
			}
			p.file(t, ".git/config", "[core]\n")
			c := p.codex(t, socket, "--workspace", workspace)
			write := func(name, text string) string {
				return c.call("fs/writeFile", object{"path": c.uri(name), "dataBase64": base64.StdEncoding.EncodeToString([]byte(text)), "sandbox": c.sandbox("write")})
			}
			if got := write("new/x", "x"); !strings.Contains(got, "-32004") {
				t.Errorf("%s", got)
			}
			if got := c.call("fs/createDirectory", object{"path": c.uri("new"), "recursive": true, "sandbox": c.sandbox("write")}); !strings.Contains(got, `"result":{}`) {
				t.Errorf("%s", got)
			}
			for name, text := range map[string]string{"new/x": "x\n", "a b.txt": "new\n"} {
				if got := write(name, text); !strings.Contains(got, `"result":{}`) {
					t.Errorf("%s: %s", name, got)
				}
			}
			if got, exit := c.run("see", "write", "cat 'a b.txt' new/x; test -x 'a b.txt'; echo made >made; echo home >~/kept"); got != "new\nx\n" || exit != 0 {
				t.Errorf("%q, %d", got, exit)
			}
			if got := c.call("fs/readFile", object{"path": c.uri("made"), "sandbox": nil}); !strings.Contains(got, base64.StdEncoding.EncodeToString([]byte("made\n"))) {
				t.Errorf("%s", got)
			}
			on, err := os.ReadFile(filepath.Join(p.repo, "a b.txt"))
			if want := map[string]string{"direct": "new\n", "overlay": "old\n"}[workspace]; err != nil || string(on) != want {
				t.Errorf("on the host: %q, %v", on, err)
			}
			// A read-only job sees what the others wrote, and there is one home directory for all.
			got, exit := c.run("read", "read", "cat 'a b.txt' made ~/kept; echo no >made")
			if _, _, denied, _ := c.output("read"); !strings.Contains(got, "new\nmade\nhome\n") || exit == 0 || !denied || !strings.Contains(got, "corral: the path is read-only here") {
				t.Errorf("%q, %d, denied %v", got, exit, denied)
			}
			for _, name := range []string{".git/config", "../outside", "../../../etc/corral-test"} {
				if got := write(name, "x"); !strings.Contains(got, "-32603") {
					t.Errorf("%s: %s", name, got)
				}
			}
			if got, _ := c.run("told", "write", "true"); strings.Count(got, "corral: fs/writeFile of ") != 3 {
				t.Errorf("%q", got)
			}
			if workspace == "direct" {
				if got, exit := c.run("git", "write", "echo x >>.git/config"); exit == 0 || !strings.Contains(got, "corral: the path is read-only here") {
					t.Errorf("%q, %d", got, exit)
				}
				if got, exit := c.run("escalated", "none", "echo x >>.git/config; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c hunter2"); exit != 1 || got != "0\ncorral: sensitive path changed: .git/config\n" {
					t.Errorf("%q, %d", got, exit)
				}
			}
		})
	}
}

// TestCodexEnvironmentPart: a workspace that is a part of a repository is all that can be written of it, and what is denied cannot be read.
func TestCodexEnvironmentPart(t *testing.T) {
	sandboxtest.RequireJails(t)
	socket := daemon(t).Socket
	for _, workspace := range []string{"direct", "overlay"} {
		t.Run(workspace, func(t *testing.T) {
			p := newPlace(t)
			for _, name := range []string{"top", "sub/.git/config", "sub/secret", "sub/private/x", "sub/plain", "sub/deep/secret"} {
				p.file(t, name, "is "+name+"\n")
			}
			c := p.codex(t, socket, "--workspace", workspace)
			sandbox := c.sandbox("write").(object)
			sandbox["workspaceRoots"] = []string{c.uri("sub")}
			files := sandbox["permissions"].(object)["file_system"].(object)
			files["entries"] = slices.DeleteFunc(files["entries"].([]any), func(e any) bool { // the repository lies in /tmp here
				value := e.(object)["path"].(object)["value"].(object)
				return value["kind"] == "slash_tmp" || value["kind"] == "tmpdir"
			})
			for _, name := range []string{"sub/secret", "sub/private", "sub/none", "sub/deep/secret"} {
				files["entries"] = append(files["entries"].([]any), object{"path": object{"type": "path", "path": c.uri(name)}, "access": "deny"})
			}
			got, exit := "", 0
			c.start("p", "", "cat top sub/plain; echo made >sub/made && mkdir sub/d && mv sub/plain sub/d; echo no >>top; echo no >new; echo no >>sub/.git/config; "+
				"mv sub else; cat sub/secret sub/private/x; ls sub/private; rm -r sub/private sub/secret; mv sub/secret sub/other; umount sub/secret; mv sub/deep sub/moved; ls -A sub",
				object{"sandbox": sandbox})
			c.until("p", "")
			got, exit, _, _ = c.output("p")
			if !strings.HasPrefix(got, "is top\nis sub/plain\n") || !strings.Contains(got, "\n.git\nd\ndeep\nmade\nprivate\nsecret\n") || exit != 0 {
				t.Errorf("%q, %d", got, exit)
			}
			if strings.Contains(got, "is sub/secret") || strings.Contains(got, "is sub/private/x") || strings.Count(got, "Read-only file system") < 3 {
				t.Errorf("%q", got)
			}
			for name, text := range map[string]string{"top": "is top\n", "sub/.git/config": "is sub/.git/config\n", "sub/secret": "is sub/secret\n", "sub/private/x": "is sub/private/x\n"} {
				if b, err := os.ReadFile(filepath.Join(p.repo, name)); err != nil || string(b) != text {
					t.Errorf("%s: %q, %v", name, b, err)
				}
			}
			for _, name := range []string{"new", "else"} {
				if _, err := os.Lstat(filepath.Join(p.repo, name)); err == nil {
					t.Errorf("%s exists", name)
				}
			}
			for name, ok := range map[string]bool{"sub/n": true, "sub/d/n": true, "n": false, "top": false, "sub/.git/config": false, "sub/secret": false, "sub/private/n": false} {
				got := c.call("fs/writeFile", object{"path": c.uri(name), "dataBase64": "eA==", "sandbox": sandbox})
				if ok != strings.Contains(got, `"result":{}`) {
					t.Errorf("%s: %s", name, got)
				}
			}
			for _, name := range []string{"sub/secret", "sub/private/x"} {
				if got := c.call("fs/readFile", object{"path": c.uri(name), "sandbox": sandbox}); !strings.Contains(got, "-32603") {
					t.Errorf("%s: %s", name, got)
				}
			}
		})
	}
}

// TestCodexEnvironmentProcesses: terminals, signals, and the end of a process and of the environment.
func TestCodexEnvironmentProcesses(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := daemon(t)
	p := newPlace(t)
	c := p.codex(t, d.Socket)
	c.start("tty", "write", "test -t 0 && stty size; read x; echo got=$x; cat", object{"tty": true})
	c.until("tty", "24 80")
	for n, text := range []string{"hello\n", "\x03"} {
		params := object{"processId": "tty", "chunk": base64.StdEncoding.EncodeToString([]byte(text)), "writeId": string(rune('1' + n))}
		if got := c.call("process/write", params); !strings.Contains(got, `"accepted"`) {
			t.Errorf("%s", got)
		}
		c.until("tty", map[int]string{0: "got=hello"}[n])
	}
	if text, exit, _, _ := c.output("tty"); exit != 130 {
		t.Errorf("%q, %d", text, exit)
	}
	c.start("int", "write", "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.1; done", nil)
	c.until("int", "up")
	if got := c.call("process/signal", object{"processId": "int", "signal": "interrupt"}); !strings.Contains(got, `"result":{}`) {
		t.Errorf("%s", got)
	}
	if text := c.until("int", ""); !strings.Contains(text, "caught") {
		t.Errorf("%q", text)
	}
	c.start("kill", "write", "trap '' TERM; echo up; sleep 1000 & wait; sleep 1000", nil)
	c.until("kill", "up")
	if got := c.call("process/terminate", object{"processId": "kill"}); !strings.Contains(got, `"running":true`) {
		t.Errorf("%s", got)
	}
	c.until("kill", "")
	if _, exit, _, _ := c.output("kill"); exit != 137 {
		t.Errorf("exit code %d", exit)
	}
	for id, params := range map[string]object{
		"m": {"argv": []string{"/no/such/program"}, "cwd": c.uri("")}, "d": {"argv": []string{"true"}, "cwd": c.uri("missing")},
	} {
		params["processId"], params["env"], params["sandbox"] = id, object{}, nil
		got := c.call("process/start", params)
		if strings.Contains(got, `"error"`) && strings.Contains(got, "spawnNotFound") {
			continue
		}
		// The machine is slow: it was answered before it was refused.
		if text := c.until(id, ""); !strings.Contains(text, "No such file") {
			t.Errorf("%s: %s, %q", id, got, text)
		}
	}
	c.start("last", "write", "trap '' TERM HUP; echo up; sleep 1000", nil)
	c.until("last", "up")
	if log := d.Log(); log == "" {
		t.Error("the supervisor has logged nothing")
	}
	c.close()
	if !c.server.EndsWithin(sandboxtest.Slow(time.Minute)) {
		t.Error("the end of input does not end the environment")
	}
}

// TestCodexEnvironmentFinds: without repositories in its configuration, it serves the one that its client works in, and no other that a
// model names.
func TestCodexEnvironmentFinds(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := daemon(t)
	for _, first := range []string{"fs", "process"} {
		t.Run(first, func(t *testing.T) {
			p := newPlace(t)
			p.file(t, ".git/config", "[core]\n")
			p.file(t, "sub/file", "text\n")
			other := filepath.Join(p.dir, "other")
			for _, dir := range []string{other, other + "/.git", p.dir + "/plain"} {
				if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, p.uid, p.uid)); err != nil {
					t.Fatal(err)
				}
			}
			c := p.environment(t, "--supervisor", d.Socket)
			if first == "fs" {
				for name, want := range map[string]string{"../plain": `"error"`, "sub/file": `"isFile":true`} {
					if got := c.call("fs/getMetadata", object{"path": c.uri(name), "sandbox": nil}); !strings.Contains(got, want) {
						t.Errorf("%s: %s", name, got)
					}
				}
			}
			if got, exit := c.run("p", "write", "cat sub/file; ls -d .git"); got != "text\n.git\n" || exit != 0 {
				t.Errorf("%q, %d", got, exit)
			}
			for _, cwd := range []string{"../other", "../plain", "/etc"} {
				c.asked++
				got := c.call("process/start", object{
					"processId": cwd, "argv": []string{"ls"}, "cwd": c.uri(cwd), "env": object{}, "sandbox": c.sandbox("none"),
				})
				if !strings.Contains(got, "-32603") && !strings.Contains(c.until(cwd, ""), "not in a served repository") {
					t.Errorf("%s: %s", cwd, got)
				}
			}
		})
	}
}

// TestCodexEnvironmentAudit: the audit log has the ids that Codex gives to a command, and what was asked for and applied.
func TestCodexEnvironmentAudit(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := daemon(t)
	p := newPlace(t)
	c := p.codex(t, d.Socket)
	if _, exit := c.run("p1", "read", "true"); exit != 0 {
		t.Errorf("exit code %d", exit)
	}
	c.close()
	c.server.EndsWithin(sandboxtest.Slow(time.Minute))
	files, err := filepath.Glob(filepath.Join(d.State, "audit", "*"))
	text := ""
	for _, name := range files {
		b, _ := os.ReadFile(name)
		text += string(b)
	}
	if want := `"client":"thread=thread-1; call=call-p1; process=p1; asked=read /, network none; applied=readonly, network none"`; err != nil || !strings.Contains(text, want) {
		t.Errorf("%v, no %s in %s: %.3000s", err, want, files, text)
	}
}

// codexProgram returns the path of the real Codex, a package of npm: 400 MB, which no test installs by itself.
func codexProgram(t *testing.T) string {
	t.Helper()
	const name = "@openai/codex"
	pattern := filepath.Join(sandboxtest.ModuleRoot(t), ".cache/agents/node_modules", name+"-linux-*/vendor/*/bin/codex")
	found, _ := filepath.Glob(pattern)
	if len(found) == 0 {
		t.Skipf("no %s\nrun: npm install --prefix .cache/agents %s", pattern, name)
	}
	// Users without an account may not be able to reach the checkout.
	program := filepath.Join(sandboxtest.OpenDir(t), "codex")
	if err := sandboxtest.CopyProgram(found[0], program); err != nil {
		t.Fatal(err)
	}
	return program
}

// TestCodex runs the real Codex with a scripted model.
func TestCodex(t *testing.T) {
	sandboxtest.RequireJails(t)
	codex := codexProgram(t)
	socket := daemon(t).Socket
	for _, workspace := range []string{"direct", "overlay"} {
		t.Run(workspace, func(t *testing.T) {
			p := newPlace(t)
			p.file(t, "old.txt", "one\n")
			model := scriptedModel(t,
				modelCall{"exec_command", "a", object{"cmd": "cat old.txt; echo alpha >made.txt; exit 7"}},
				modelCall{"exec_command", "b", object{"cmd": "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: made.txt\n@@\n-alpha\n+beta\n*** Add File: new/n.txt\n+hello\n*** End Patch\nEOF\n"}},
				modelCall{"exec_command", "c", object{"cmd": "cat made.txt new/n.txt; cat " + p.dir + "/config-*.yaml"}},
			)
			home := filepath.Join(p.dir, "codex")
			settings := "model = \"mock\"\nmodel_provider = \"mock\"\napproval_policy = \"never\"\nsandbox_mode = \"workspace-write\"\n" +
				"[model_providers.mock]\nname = \"mock\"\nbase_url = \"" + model.url + "/v1\"\nwire_api = \"responses\"\nrequires_openai_auth = false\n" +
				"request_max_retries = 0\nstream_max_retries = 0\n"
			list, _ := json.Marshal([]string{"codex-environment", "--config", p.config(t, ""), "--supervisor", socket, "--workspace", workspace})
			program, _ := json.Marshal(filepath.Join(p.dir, "corral-front"))
			environments := "default = \"corral\"\ninclude_local = false\n[[environments]]\nid = \"corral\"\nprogram = " + string(program) + "\nargs = " + string(list) + "\n"
			if err := os.Mkdir(home, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"config.toml": settings, "environments.toml": environments} {
				if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chown(filepath.Join(home, name), p.uid, p.uid); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chown(home, p.uid, p.uid); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(codex, "exec", "--json", "--skip-git-repo-check", "-C", p.repo, "go")
			cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "CODEX_HOME=" + home}
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.uid)}, Pdeathsig: syscall.SIGKILL}
			run := sandboxtest.Start(t, cmd)
			if !run.EndsWithin(sandboxtest.Slow(3 * time.Minute)) {
				t.Fatal("Codex does not end")
			}
			if got := model.output("a"); !strings.Contains(got, "exited with code 7") || !strings.Contains(got, "one") {
				t.Errorf("a: %q", got)
			}
			if got := model.output("b"); !strings.Contains(got, "Success") {
				t.Errorf("b: %q", got)
			}
			if got := model.output("c"); !strings.Contains(got, "beta\nhello") || strings.Contains(got, "version: 1") {
				t.Errorf("c: %q", got)
			}
			on, err := os.ReadFile(filepath.Join(p.repo, "made.txt"))
			if direct := workspace == "direct"; direct != (err == nil && string(on) == "beta\n") {
				t.Errorf("on the host: %q, %v", on, err)
			}
		})
	}
}
