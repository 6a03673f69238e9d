package main

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestFollow: a page is followed to its end, unless a command fails or prints something else.
func TestFollow(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, tt := range []struct{ name, commands, want string }{
		{"variables and directories last", "$ cd /usr/bin; x=7\n$ echo $x; pwd\n7\n/usr/bin\n", ""},
		{"what varies", "$ printf 'a\\nb\\nc'\na\n…c\n", ""},
		{"both streams, in order", "$ echo a; echo b >&2; echo c\na\nb\nc\n", ""},
		{"an exit status beside output", "$ echo a; false\na\n", ""},
		{"no standard input", "$ cat\n", ""},
		{"dates and ids", "$ echo 'at Jan  2 03:04'; echo 11111111111111111111111111111111\nat Nov 21 10:03\n" +
			"22222222222222222222222222222222\n$ [ 22222222222222222222222222222222 = 11111111111111111111111111111111 ]\n", ""},
		{"ids of jobs", "$ echo 'uid=1000(job) 7(job)'\nuid=1001(job) 7(job)\n", ""},
		{"other ids", "$ echo 'uid=1000(ada)'\nuid=1001(ada)\n", "the page has"},
		{"a status", "$ echo why; (exit 3)\n", "exit status 3: why"},
		{"another output", "$ echo a\nb\n", "the page has\nb\ngot\na"},
		{"nothing that fits", "$ true\nb\n", "the page has\nb"},
		{"a later command", "$ true\n$ false\n$ touch " + dir + "/never\n", "page.md:4: false: exit status 1"},
		{"the shell ends", "$ exit 0\n", "the shell ended in it"},
		{"no command", "", "it has no block to follow"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			page := filepath.Join(t.TempDir(), "page.md")
			text := "<!-- run: as " + me.Username + " -->\n```console\n" + tt.commands + "```\n"
			if tt.commands == "" {
				text = "# nothing\n"
			}
			if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			log, err := os.Create(filepath.Join(t.TempDir(), "log")) //nolint:forbidigo // in a directory of its own
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			_, err = follow(log, page)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	if _, err := os.Stat(dir + "/never"); err == nil {
		t.Error("a command after one that failed was run")
	}
}

// TestFollowServer: a command in the background runs until the end of the page, and has to say what the page shows.
func TestFollowServer(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for commands, want := range map[string]string{
		"$ echo $BASHPID; exec sleep 1000\n…\n": "",
		"$ echo other\nready\n":                 "it has ended",
	} {
		dir := t.TempDir()
		page := filepath.Join(dir, "page.md")
		text := "<!-- run: as " + me.Username + ", in the background -->\n```console\n" + commands + "```\n" +
			"<!-- run: write " + dir + "/file -->\n```yaml\na: 1\n```\n"
		if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := follow(os.Stderr, page)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && n != 2 {
			t.Errorf("%q: %d steps, %v, want %q", commands, n, err, want)
		}
		if written, err := os.ReadFile(dir + "/file"); want == "" && (err != nil || string(written) != "a: 1\n") {
			t.Errorf("%q, %v", written, err)
		}
	}
}
