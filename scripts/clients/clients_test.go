package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
)

// modules is the directory of the packages that scripts/setup-clients has installed.
func modules(t *testing.T) string {
	return filepath.Join(sandboxtest.ModuleRoot(t), ".cache/clients/node_modules")
}

// needClients requires exactly the packages of the lock file.
func needClients(t *testing.T) {
	t.Helper()
	sandboxtest.Require(t, func() error {
		installed, err := os.ReadFile(filepath.Join(modules(t), "../package-lock.json"))
		if err != nil {
			return fmt.Errorf("%w; run: scripts/setup-clients", err)
		}
		lock, err := os.ReadFile("package-lock.json")
		if err == nil && !bytes.Equal(installed, lock) {
			err = errors.New(".cache/clients is of another package-lock.json; run: scripts/setup-clients")
		}
		return err
	})
}

// An endpoint describes a server to the driver.
type endpoint struct {
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	URL     string            `json:"url,omitempty"`
	Token   string            `json:"token,omitempty"`
}

// node runs a script with its orders, and makes a subtest of each row that it reports.
func node(t *testing.T, script string, orders map[string]any) {
	t.Helper()
	// Node searches for modules beside the file that imports them.
	dir := t.TempDir()
	files, err := filepath.Glob("*.mjs")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	input, err := json.Marshal(orders)
	if err = errors.Join(err, os.Symlink(modules(t), filepath.Join(dir, "node_modules"))); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(modules(t), ".bin/node"), filepath.Join(dir, script))
	cmd.Stdin = bytes.NewReader(input)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	seen, want := report(t, bufio.NewScanner(out))
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v", script, err)
	}
	if seen == 0 || seen != want {
		t.Errorf("%s reported %d rows of %d", script, seen, want)
	}
}

// report turns lines into subtests. It returns the number of rows, and the number that the script announced.
func report(t *testing.T, lines *bufio.Scanner) (seen, want int) {
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Row   string  `json:"row"`
			Error *string `json:"error"`
			Ms    int     `json:"ms"`
			Rows  int     `json:"rows"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Errorf("%v: %s", err, lines.Bytes())
			continue
		}
		if line.Rows > 0 {
			want = line.Rows
			continue
		}
		seen++
		t.Run(line.Row, func(t *testing.T) {
			t.Logf("%d ms", line.Ms)
			if line.Error != nil {
				t.Error(*line.Error)
			}
		})
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	return seen, want
}

// configurations are those of the rows on governance. Each has a server of its own.
func (h *host) configurations(t *testing.T, section string) map[string]string {
	t.Helper()
	rules := filepath.Join(h.top, "rules.star")
	if err := os.WriteFile(rules, []byte(`
def decide(request):
    if "forbidden" in request.args:
        return deny("no forbidden words")
    return allow()
`), 0o644); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"default": h.configure(t, "default", "runtime: {max_duration: 10m}\n"+section),
		"dotted":  h.configure(t, "dotted", section),
		"off":     h.configure(t, "off", "runtime: {enabled: false}\n"+section),
		"narrow": h.configure(t, "narrow", "runtime:\n  runtimes: [python, shell]\n  executables: [python3]\n"+
			"  max_duration: 60s\n  max_concurrent_jobs: 1\n  queue_wait: 100ms\n  rules: "+rules+"\n"+section),
	}
}

// options returns the options of the server of a configuration.
func options(name string) []string {
	if name == "dotted" {
		return []string{"--tool-names", "dotted"}
	}
	return nil
}

// absent returns a program that a runtime could use and that this machine lacks.
func absent(t *testing.T) map[string]string {
	t.Helper()
	for _, candidate := range [][2]string{{"node", "bun"}, {"typescript", "ts-node"}, {"csharp", "dotnet-script"}} {
		if _, err := exec.LookPath(candidate[1]); err != nil {
			return map[string]string{"runtime": candidate[0], "executable": candidate[1]}
		}
	}
	t.Fatal("this machine has everything")
	return nil
}

// short reports whether a client runs rows about messages only. All rows run with each client over one transport, and over each
// transport with both versions of the protocol; a soak runs all with each client over each transport.
func short(client, transport string) bool {
	return !sandboxtest.Soak() && (client == "v1" && transport == "http" || client == "v2-2025" && transport == "stdio")
}

// TestStdio runs the rows of the contract with each client, on a server that the client starts.
func TestStdio(t *testing.T) {
	needClients(t)
	for _, client := range []string{"v1", "v2-2025", "v2-2026"} {
		t.Run(client, func(t *testing.T) {
			h := newHost(t)
			servers := map[string]endpoint{}
			for name, file := range h.configurations(t, "") {
				command := h.asAlice(append([]string{"mcp", "--supervisor", h.daemon.Socket, "--config", file}, options(name)...)...)
				servers[name] = endpoint{Command: command[0], Args: command[1:], Env: h.env(), Cwd: h.repo}
			}
			node(t, "drive.mjs", map[string]any{
				"client": client, "servers": servers, "repo": "app", "dir": h.repo, "state": h.state, "absent": absent(t),
				"short": short(client, "stdio"),
			})
		})
	}
}

// TestHTTP runs the same rows over HTTP, and those about tokens.
func TestHTTP(t *testing.T) {
	needClients(t)
	for _, client := range []string{"v1", "v2-2025", "v2-2026"} {
		t.Run(client, func(t *testing.T) {
			h := newHost(t)
			tokens, section := principals()
			servers := map[string]endpoint{}
			for name, file := range h.configurations(t, section) {
				servers[name] = endpoint{URL: h.listen(t, file, options(name)...), Token: tokens["ada"]}
			}
			for _, name := range []string{"stranger", "reader"} {
				servers[name] = endpoint{URL: servers["default"].URL, Token: tokens[name]}
			}
			node(t, "drive.mjs", map[string]any{
				"client": client, "servers": servers, "repo": "app", "dir": h.repo, "state": h.state, "absent": absent(t),
				"short": short(client, "http"),
			})
		})
	}
}

// TestSnippets: the configurations of agent hosts in the documentation work.
func TestSnippets(t *testing.T) {
	needClients(t)
	h := newHost(t)
	tokens, section := principals()
	command := h.asAlice()
	wrapper := filepath.Join(h.top, "as-alice")
	script := "#!/bin/sh\n[ \"$1\" = mcp ] || exit 1\nshift\nexec env"
	for name, value := range h.env() {
		script += fmt.Sprintf(" '%s=%s'", name, value)
	}
	for _, word := range append(command, "mcp", "--supervisor", h.daemon.Socket) {
		script += fmt.Sprintf(" '%s'", word)
	}
	if err := os.WriteFile(wrapper, []byte(script+` "$@"`+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	node(t, "snippets.mjs", map[string]any{
		"page":   filepath.Join(sandboxtest.ModuleRoot(t), "docs/how-to/connect-an-agent-host.md"),
		"corral": wrapper, "dir": h.repo,
		"url": h.listen(t, h.configure(t, "snippets", section)), "token": tokens["ada"],
	})
}
