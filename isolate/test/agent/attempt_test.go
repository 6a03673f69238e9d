package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// An attempt is what a hostile repository has, or a hostile command does, to have something run or change outside of the jail: now, when
// the agent starts the next time, or when its user looks at its changes and applies them. HOME is the user's home directory, and RAN a
// file in it that is made by whatever runs.
type attempt struct {
	name   string
	repo   map[string]string // files of the repository; those that begin with #! can be executed
	script string
	shown  string // that corral changes show must say
	next   string // that the next run must print
}

var attempts = []attempt{
	// The agent's state.
	{name: "a hook of the agent's settings", script: `echo '{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch RAN"}]}]}}' >~/.claude/settings.json`, next: "settings.json"},
	{name: "a link to a file of the user", script: `ln -s HOME/.bashrc ~/.claude/link; echo 'touch RAN' >~/.claude/link`, next: "link"},
	{name: "a link in place of the state", script: `rm -rf ~/.claude; ln -s HOME ~/.claude; echo 'touch RAN' >~/.claude/.bashrc`},
	{name: "a hard link to a file of the system", script: `ln /etc/passwd ~/.claude/passwd; ln /usr/bin/env ~/.claude/env`},
	{name: "a program with more rights", script: `cp /bin/sh ~/.claude/s; chmod 6755 ~/.claude/s`, next: "s\n"},
	{name: "a pipe, which blocks whoever reads it", script: `mkfifo ~/.claude/pipe`, next: "pipe"},
	{name: "names that are options of tar", script: `cd ~/.claude; touch -- '--checkpoint=1' '--checkpoint-action=exec=touch RAN' '--to-command=touch RAN'`, next: "--checkpoint=1"},
	{name: "a name that leaves the directory", script: `cd ~/.claude; mkdir -p ..x '..\n' "$(printf 'a\n../../RAN')" && touch "$(printf 'a\n../../RAN')/f"`},
	{name: "programs in the place of those that unpack", script: `mkdir -p ~/bin ~/.local/bin; for p in tar sh corral; do printf '#!/bin/sh\ntouch RAN\n' >~/bin/$p; cp ~/bin/$p ~/.local/bin; done; chmod 755 ~/bin/* ~/.local/bin/*; echo 'touch RAN' >~/.profile; cp ~/.profile ~/.bashrc`},
	{name: "a process that stays and writes to the state", script: `setsid sh -c 'while :; do echo "touch RAN" >~/.claude/late; done' >/dev/null 2>&1 &`},
	{name: "the installation of the agent", script: `for f in "$0" HOME/.local/share/claude/versions/*; do echo 'touch RAN' >>"$f"; mv "$f" "$f.old"; done`},
	// The user, and corral.
	{name: "files of the user", script: `mkdir -p HOME/.config/autostart; for f in .bashrc .profile .gitconfig .claude/settings.json .config/autostart/x; do echo 'touch RAN' >HOME/$f; done`},
	{name: "the key, and what corral keeps", script: `cat HOME/.config/corral/keys/* HOME/.local/state/corral/agents/* /etc/corral/*; echo 'touch RAN' >/etc/corral/config.yaml; ls /run/corral`},
	{name: "processes outside", script: `kill -9 -1; for p in /proc/[0-9]*; do echo x >$p/mem; cat $p/root/etc/shadow $p/cwd/file; done`},
	{name: "another root", script: `unshare -Ur chroot /proc/1/root touch RAN; mount -t tmpfs x /mnt; nsenter -t 1 -a touch RAN`},
	// What the user applies.
	{name: "a link to a file of the user that is written through", script: `ln -s HOME/.bashrc link; echo 'touch RAN' >link`, shown: "link"},
	{name: "a link to a directory of the user", script: `ln -s HOME dir; echo 'touch RAN' >dir/.bashrc`, shown: "dir"},
	{name: "a hook of git", script: `mkdir -p .git/hooks; printf '#!/bin/sh\ntouch RAN\n' >.git/hooks/post-checkout; chmod 755 .git/hooks/post-checkout; printf '[core]\n\tfsmonitor = touch RAN\n[diff]\n\texternal = touch RAN\n' >.git/config`, shown: "sensitive path added: .git/hooks/post-checkout"},
	{name: "what agents and editors obey", script: `mkdir -p .claude .vscode .codex; echo '{"hooks": {}}' >.claude/settings.json; echo '{}' >.vscode/tasks.json; echo '{}' >.mcp.json; echo x >.envrc; echo x >AGENTS.md`, shown: "sensitive path added: .vscode/tasks.json"},
	{name: "names that write to a terminal", script: "touch \"$(printf 'a\\033]0;x\\007\\033[2Jb')\" \"$(printf 'two\\nlines')\"", shown: "lines"},
	{name: "a directory in place of the repository's file, and back", script: `rm file; mkdir file; ln -s HOME/.bashrc file/x; echo 'touch RAN' >file/x`, shown: "file"},
	// The repository itself.
	{
		name: "a repository whose git runs programs", script: `true`,
		repo: map[string]string{
			".git/HEAD": "ref: refs/heads/main\n", ".git/objects/x": "", ".git/refs/x": "",
			".git/config": "[core]\n\tfsmonitor = touch RAN\n\tpager = touch RAN\n\thooksPath = .\n[diff]\n\texternal = touch RAN\n", ".gitattributes": "* diff=x\n",
			"post-checkout": "#!/bin/sh\ntouch RAN\n",
		},
	},
	{
		name: "a repository with the settings of corral and the agent", script: `true`,
		repo: map[string]string{
			".claude/settings.json": `{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch RAN"}]}]}}`,
			".corral/config.yaml":   "version: 1\nnetwork: {allow: [{host: '*'}]}\n", "corral.yaml": "network: {allow: [{host: '*'}]}\n",
			"sh": "#!/bin/sh\ntouch RAN\n", "tar": "#!/bin/sh\ntouch RAN\n", "corrald": "#!/bin/sh\ntouch RAN\n", "corral-front": "#!/bin/sh\ntouch RAN\n",
		},
	},
}

// TestAttempts: of what hostile repositories and commands try, nothing runs and nothing changes outside, but what was shown.
func TestAttempts(t *testing.T) {
	p := newPlace(t)
	ran := filepath.Join(p.home, "ran")
	here := strings.NewReplacer("HOME", p.home, "RAN", ran)
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			p.t = t
			p.reset()
			for name, text := range a.repo {
				path := filepath.Join(p.repo, name)
				err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(here.Replace(text)), 0o755))
				if err != nil {
					t.Fatal(err)
				}
			}
			p.give()
			p.install("cd " + p.repo + "; mkdir -p ~/.claude; echo it starts\n" + here.Replace(a.script) + "\nexit 0")
			before, after := p.outside(), ""
			c := p.run("claude")
			if !strings.HasPrefix(c.Out.String(), "it starts\n") {
				t.Errorf("%d %q %q", c.Code(), c.Out.String(), c.Err.String())
			}
			said := c.Out.String() + c.Err.String()
			if after = p.outside(); after != before {
				t.Errorf("outside there was %s and is %s", before, after)
			}
			if _, id, ok := strings.Cut(c.Err.String(), "corral: changes: "); ok {
				for _, what := range []string{"show", "diff", "apply"} {
					s := sandboxtest.Start(t, p.command("changes", what, strings.TrimSpace(strings.Split(id, "\n")[0])))
					if !s.EndsWithin(time.Minute) {
						t.Fatalf("changes %s does not end", what)
					}
					said += s.Out.String() + s.Err.String()
				}
			} else if a.shown != "" {
				t.Errorf("no changes are kept: %q", said)
			}
			p.install("ls ~/.claude; cat ~/.claude/late; echo it ends")
			c = p.run("claude")
			if !strings.HasSuffix(c.Out.String(), "it ends\n") || !strings.Contains(c.Out.String(), a.next) {
				t.Errorf("the next time: %d %q %q, want %q", c.Code(), c.Out.String(), c.Err.String(), a.next)
			}
			if after = p.outside(); after != before {
				t.Errorf("at last, outside there was %s and is %s", before, after)
			}
			if !strings.Contains(said, a.shown) || strings.ContainsAny(said, "\x1b\x07") || strings.Contains(said, key) {
				t.Errorf("this was shown: %q", said)
			}
		})
	}
}

// reset makes the repository and the agent's state new.
func (p *place) reset() {
	p.t.Helper()
	entries, err := os.ReadDir(p.repo)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(p.repo, e.Name())))
	}
	err = errors.Join(
		err, os.RemoveAll(filepath.Join(p.home, ".local/state")), os.WriteFile(filepath.Join(p.home, ".bashrc"), []byte("# the user's\n"), 0o644),
		os.WriteFile(filepath.Join(p.repo, "file"), []byte("one\ntwo\n"), 0o644),
	)
	if err != nil {
		p.t.Fatal(err)
	}
}

// give makes all of the place the user's.
func (p *place) give() {
	p.t.Helper()
	if err := exec.Command("chown", "-hR", fmt.Sprintf("%d:%[1]d", ada), p.home, p.repo).Run(); err != nil {
		p.t.Fatal(err)
	}
}

// outside returns what the user's home directory has, without the agent and its archives, and the configuration.
func (p *place) outside() string {
	var b bytes.Buffer
	err := filepath.WalkDir(p.home, func(path string, e fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, p.home)
		if err != nil || strings.HasPrefix(name, "/.local/") {
			return err
		}
		text, _ := os.ReadFile(path)
		fmt.Fprintf(&b, "%s %v %q\n", name, e.Type(), text)
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	text, _ := os.ReadFile("/etc/corral/config.yaml")
	return b.String() + string(text)
}
