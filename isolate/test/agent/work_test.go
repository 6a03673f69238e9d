package agent

import (
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// works are real agents with the rule that lets jobs of a running supervisor reach their API with the key.
var works = []struct {
	real
	rule, secret string
}{
	{reals[0], "{host: api.anthropic.com, secret: key}", `header: X-Api-Key, format: "{}", `},
	{reals[1], "{host: api.openai.com, secret: key}", ""},
}

// work is what the model asks for: a change, a dependency, a test of both, and a server that is looked at while it runs.
var work = []string{
	"echo three >>file; printf 'exports.lines = n => n + 1\\n' >lib.js",
	"echo '{}' >package.json; npm install --no-audit --no-fund demo",
	`printf 'require("node:test")("both", () => require("assert").equal(require("./lib").lines(41) + require("demo"), "42 of npm"))\n' >lib.test.js; node --test`,
	`setsid node -e 'require("http").createServer((q, r) => { require("fs").writeFileSync("looked", q.url); r.end(require("demo")) }).listen(8099, "127.0.0.1")' >server.log 2>&1 &`,
	"until [ -s looked ]; do sleep 0.1; done; echo somebody looked at $(cat looked)",
}

// TestWork: with a running supervisor, real agents do in one task what people have them do, and their user looks at the server that they
// have started.
func TestWork(t *testing.T) {
	for _, a := range works {
		t.Run(a.name, func(t *testing.T) {
			p, bin := newPlace(t), sandboxtest.OpenDir(t)
			sandboxtest.Require(t, sandboxtest.Program("npm"))
			p.serveNPM()
			program := a.installed(t)
			const secret = "/etc/corral/key"
			err := errors.Join(
				os.WriteFile(secret, []byte(key+"\n"), 0o600),
				// Users without an account may not be able to reach the checkout.
				sandboxtest.CopyProgram(sandboxtest.Bin(t, "corral"), filepath.Join(bin, "corral")),
				sandboxtest.CopyProgram(sandboxtest.Bin(t, "corral-front"), filepath.Join(bin, "corral-front")),
			)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove(secret) })
			before, _, _ := strings.Cut(program, "/node_modules/")
			d := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{
				Everyone: true, Args: []string{"--toolchain", before + "/node_modules"},
				Config: fmt.Sprintf("network: {allow: [%s, {preset: npm}], private: [192.0.2.1/32, 192.0.2.2/32]}\nsecrets: {key: {file: %s, %sbody: allow}}\n", a.rule, secret, a.secret),
			})
			start := func(args ...string) *sandboxtest.Command {
				cmd := exec.Command(filepath.Join(bin, "corral"), args...)
				cmd.Dir, cmd.Env = p.repo, []string{"PATH=/usr/bin:/bin", "HOME=" + p.home}
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ada, Gid: ada}}
				return sandboxtest.Start(t, cmd)
			}
			p.steps = work
			c := start(append([]string{"agent", "--supervisor", d.Socket, "--network", "npm", "--program", program, a.name}, a.words...)...)
			var session []string
			sandboxtest.Eventually(t, time.Minute, "the session listens", func() bool {
				if c.EndsWithin(0) {
					t.Fatalf("%d %.3000q %q", c.Code(), c.Out.String(), c.Err.String())
				}
				list := start("session", "list", "--supervisor", d.Socket)
				list.EndsWithin(time.Minute)
				session = regexp.MustCompile(`(?m)^(\w+) .* 8099 `).FindStringSubmatch(list.Out.String())
				return session != nil
			})
			if got := look(t, start("session", "forward", session[1], "8099:0", "--supervisor", d.Socket)); got != " of npm" {
				t.Errorf("the server answers %q", got)
			}
			if !c.EndsWithin(2*time.Minute) || c.Code() != 0 || !strings.Contains(c.Out.String(), "done") {
				t.Fatalf("%d %.3000q %q", c.Code(), c.Out.String(), c.Err.String())
			}
			said := bodies(p.take())
			for _, want := range []string{"added 1 package", "pass 1", "somebody looked at /page"} {
				if !strings.Contains(said, want) {
					t.Errorf("the model was not told %q; %.3000q %q", want, c.Out.String(), c.Err.String())
				}
			}
			apply := start("changes", "apply", kept(t, c), "--supervisor", d.Socket)
			apply.EndsWithin(time.Minute)
			if b, err := os.ReadFile(filepath.Join(p.repo, "file")); err != nil || string(b) != "one\ntwo\nthree\n" {
				t.Errorf("%q, %v, %q", b, err, apply.Err.String())
			}
		})
	}
}

// look opens a page through corral session forward, which it ends.
func look(t *testing.T, forward *sandboxtest.Command) string {
	t.Helper()
	var address []string
	sandboxtest.Eventually(t, time.Minute, "the address", func() bool {
		if forward.EndsWithin(0) {
			t.Fatal(forward.Err.String())
		}
		address = regexp.MustCompile(`(?m)^(127\.0\.0\.1:\d+) -> `).FindStringSubmatch(forward.Out.String())
		return address != nil
	})
	defer func() { _ = forward.Process.Kill(); forward.EndsWithin(time.Minute) }()
	r, err := http.Get("http://" + address[1] + "/page")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// serveNPM is the host of the preset npm, with one package.
func (p *place) serveNPM() {
	p.t.Helper()
	const host = "registry.npmjs.org"
	dir := filepath.Join(p.t.TempDir(), "package")
	err := errors.Join(
		os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"name":"demo","version":"1.0.0"}`), 0o644),
		os.WriteFile(filepath.Join(dir, "index.js"), []byte(`module.exports = " of npm"`), 0o644),
	)
	if err != nil {
		p.t.Fatal(err)
	}
	pack, err := exec.Command("tar", "-C", filepath.Dir(dir), "-czf", "-", "package").Output()
	if err != nil {
		p.t.Fatal(err)
	}
	sum := sha512.Sum512(pack)
	mux := http.NewServeMux()
	mux.HandleFunc("/demo/-/demo-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(pack) })
	mux.HandleFunc("/demo", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(object{"name": "demo", "dist-tags": object{"latest": "1.0.0"}, "versions": object{"1.0.0": object{
			"name": "demo", "version": "1.0.0", "dist": object{
				"tarball": "https://" + host + "/demo/-/demo-1.0.0.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
			},
		}}})
	})
	p.in.Name(host, "192.0.2.2")
	p.in.Serve("192.0.2.2:443", mux, host)
}
