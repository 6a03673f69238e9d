package agent

import (
	"strings"
	"testing"

	"corral/internal/test/mcptest"
)

// TestHints checks that a reply explains what programs write when a jail is the reason and they do not say so. The texts are those of
// the programs, with a limit of watches or without keys.
func TestHints(t *testing.T) {
	const watches, instances, keys = "max_user_watches: watch fewer files", "max_user_instances: start fewer", "git -c commit.gpgsign=false"
	for _, tt := range []struct{ program, stderr, want string }{
		{"node", "Error: ENOSPC: System limit for number of file watchers reached, watch '/tmp/wq/b'\n    at FSWatcher.<computed> (node:internal/fs/watchers:247:19)\n", watches},
		{"node, instances", "Error: EMFILE: too many open files, watch '/tmp/wq/a'\n", instances},
		{"watchdog", "OSError: [Errno 28] inotify watch limit reached\n", watches},
		{"watchdog, instances", "OSError: [Errno 24] inotify instance limit reached\n", instances},
		{"inotifywait", "Failed to watch /x; upper limit on inotify watches reached!\nPlease increase the amount of inotify watches allowed per user\n", watches},
		{"watchman", "The user limit on the total number of inotify watches was reached; increase the fs.inotify.max_user_watches sysctl\n", watches},
		{"tail", "tail: inotify resources exhausted\ntail: inotify cannot be used, reverting to polling\n", watches},
		{"git commit -S", "error: gpg failed to sign the data\nfatal: failed to write commit object\n", keys},
		{"gpg --sign", "gpg: no default secret key: No secret key\ngpg: signing failed: No secret key\n", keys},
		{"gpg --decrypt", "gpg: decryption failed: No secret key\n", keys},
		{"git with ssh", "error: Couldn't load public key /home/job/.ssh/id.pub: No such file or directory?\n\nfatal: failed to write commit object\n", keys},
		{"ssh-add", "Could not open a connection to your authentication agent.\n", keys},
		{"too many files", "EMFILE: too many open files, open '/x'\n", ""},
		{"a full disk", "No space left on device\n", ""},
	} {
		f := mcptest.NewFakeRunner()
		f.ExitsWith(1).Stderr = tt.stderr
		r := call(t, &Run{newSuite(t, f)}, `{"code":"x"}`)
		if _, footer, _ := strings.Cut(r.Text, "[exit 1, "); !strings.Contains(footer, tt.want) || tt.want == "" && footer != "1.5 s]" {
			t.Errorf("%s: %q", tt.program, r.Text)
		}
	}
	f := mcptest.NewFakeRunner()
	f.ExitsWith(-1).Result.Signal = 7
	if r := call(t, &Run{newSuite(t, f)}, `{"code":"x"}`); !strings.HasPrefix(r.Text, "[killed by SIGBUS, 1.5 s, a file that it had mapped into memory became shorter") {
		t.Errorf("%q", r.Text)
	}
}
