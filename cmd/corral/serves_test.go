package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"corral/internal/test/example"
	"corral/internal/test/sandboxtest"
)

// wrapper is a corral whose commands about sessions use the socket of a test, and whose output is that of one user.
const wrapper = `#!/bin/sh
case "$1 $2 $3" in
"session exec --background") id=$4; shift 4; set -- session exec --background "$id" --supervisor SOCKET "$@" ;;
"session exec "*) id=$3; shift 3; set -- session exec "$id" --supervisor SOCKET "$@" ;;
"session "*) verb=$2; shift 2; set -- session "$verb" --supervisor SOCKET "$@" ;;
"output "*) shift; set -- output --state STATE/users/* "$@" ;;
*) verb=$1; shift; set -- "$verb" --supervisor SOCKET "$@" ;;
esac
exec CORRAL "$@"
`

// TestServesPage: the commands of docs/how-to/look-at-what-an-agent-serves.md print what the page has.
func TestServesPage(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("curl"), sandboxtest.Program("python3"))
	d := &daemon{sandboxtest.Daemon(t, sandboxtest.DaemonOptions{})}
	home, bin := sandboxtest.OpenDir(t), t.TempDir()
	text := strings.NewReplacer("SOCKET", d.Socket, "STATE", d.State, "CORRAL", sandboxtest.Bin(t, "corral")).Replace(wrapper)
	for name, content := range map[string]string{filepath.Join(bin, "corral"): text, filepath.Join(home, "src/app/hello.txt"): "hello\n"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m := example.NewMatcher()
	m.Learn("18000", sandboxtest.Port(t))
	page := content(t, filepath.Join(sandboxtest.ModuleRoot(t), "docs/how-to/look-at-what-an-agent-serves.md"))
	ran := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for _, step := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			line, want, _ := strings.Cut(step, "\n")
			ran++
			got := said(t, m.Actual(line), bin, home)
			for page, form := range map[string]string{"7f3a0c5e9b1d4e62a8c0f1d2e3b4a596": `^[0-9a-f]{32}`, "job-q5x2r7ktd3": `^job-[0-9a-z]+`} {
				if found := regexp.MustCompile(form).FindString(got); found != "" && strings.HasPrefix(want, page) {
					m.Learn(page, found)
				}
			}
			if shown, note, _ := strings.Cut(want, "corral: note: "); note != "" && !strings.Contains(got, note) {
				// It waits for a second at most, and on a busy machine, Python starts in more. A script of corral-front has this note, too.
				want = shown
				sandboxtest.Eventually(t, time.Minute, "the server listens", func() bool {
					return strings.Contains(corral(t, "session", "list", "--supervisor", d.Socket).stdout, " 8000 ")
				})
			}
			behind := strings.HasPrefix(line, "corral logs") || strings.HasPrefix(line, "corral output") // may be a moment
			for limit := time.Now().Add(sandboxtest.Slow(time.Minute)); m.Text(want, got) != nil && behind && time.Now().Before(limit); {
				got = said(t, m.Actual(line), bin, home)
			}
			if err := m.Text(want, got); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	}
	if ran != 10 {
		t.Errorf("%d commands were run", ran)
	}
	sandboxtest.Eventually(t, time.Minute, "nothing is kept", func() bool { return len(d.keepers()) == 0 })
}

// said runs a line of shell, and returns what it says.
func said(t *testing.T, line, bin, home string) string {
	t.Helper()
	line, behind := strings.CutSuffix(line, " &")
	cmd := exec.Command("sh", "-c", line)
	cmd.Env, cmd.Dir = []string{"PATH=" + bin + ":" + strings.TrimPrefix(path, "PATH="), "HOME=" + home}, home
	p := start(t, cmd)
	if behind {
		sandboxtest.Eventually(t, time.Minute, "it says something", func() bool { return strings.HasSuffix(p.Out.String(), "\n") })
		return p.Out.String()
	}
	got := p.ends(t)
	if got.code != 0 {
		t.Fatalf("%s: %+v", line, got)
	}
	return got.stdout + got.stderr
}
