package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// snoops are programs that print their environment, that of every process that they can name, and FOUND if the file in their first argument
// exists. Their last line says that they reached their end.
var snoops = map[string]string{
	"python": `import os, sys, glob
print(dict(os.environ))
for f in glob.glob("/proc/*/environ") + ["/proc/%d/environ" % n for n in range(1, 300)]:
    try: print(open(f, "rb").read())
    except OSError: pass
print("FOUND" if os.path.exists(sys.argv[1]) else "")
print("snooped")`,
	"shell": `env; export -p; cat /proc/*/environ /proc/*/task/*/environ /proc/*/cmdline; ls -l /proc/*/cwd /proc/*/root /proc/*/fd/
cat /proc/1/environ /proc/$PPID/environ; [ -e "$1" ] && echo FOUND; echo; echo snooped`,
}

// TestSecrets checks that a job does not find the secrets in the server's environment, or an agent's socket.
func TestSecrets(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("python3"))
	p := newPlace(t)
	agent := filepath.Join(p.dir, "agent.sock")
	l, err := net.Listen("unix", agent)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(agent, 0o777); err != nil {
		t.Fatal(err)
	}
	d := daemon(t)
	// Redaction must not hide a secret that was found.
	cmd := p.front("mcp", "--config", p.config(t, "output: {redact: false}\n"), "--supervisor", d.Socket)
	cmd.Env = append(cmd.Env, "SSH_AUTH_SOCK="+agent)
	h := connect(t, cmd)
	for runtime, code := range snoops {
		t.Run(runtime, func(t *testing.T) {
			o := h.execute(object{
				"runtime": runtime, "code": code, "args": []string{agent}, "outputMode": "summary", "maxResponseLines": 1000, "timeoutMs": 60_000,
			})
			if out := o.out(); o.Status != "success" || !strings.Contains(out, "snooped") || o.ArtifactHandle == nil {
				t.Fatalf("%s: the program did not reach its end: %s %s", o.Status, out, *o.StderrSummary)
			}
			for _, word := range []string{"hunter2", "SSH_AUTH_SOCK", "SECRET_TOKEN", "AWS_", "FOUND"} {
				if found := h.query(object{"artifactHandle": *o.ArtifactHandle, "queryTerms": []string{word}}); found.MatchStatus != "noMatchFallback" {
					t.Errorf("%s is there: %+v", word, found.Excerpts)
				}
			}
			if found := h.query(object{"artifactHandle": *o.ArtifactHandle, "queryTerms": []string{"TMPDIR"}}); found.MatchStatus != "matched" {
				t.Error("the program did not see its own environment")
			}
		})
	}
}
