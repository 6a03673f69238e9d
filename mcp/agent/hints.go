package agent

import (
	"regexp"

	"corral/internal/lazyregexp"
)

// hints has, for messages with which programs fail and which do not name the reason in a jail, that reason, the most telling ones first.
var hints = []struct {
	says func() *regexp.Regexp
	why  string
}{
	{ // Node, watchdog, inotifywait, watchman, notify for Rust, tail
		lazyregexp.New(`number of file watchers reached|inotify watch limit reached|limit on (?:the total number of )?inotify watches|` +
			`OS file watch limit reached|inotify resources exhausted`),
		"a job may use a quarter of the host's fs.inotify.max_user_watches: watch fewer files, poll (CHOKIDAR_USEPOLLING=1), or ask the user to raise it",
	},
	{
		lazyregexp.New(`EMFILE: too many open files, watch|inotify instance limit reached|limit on (?:the total number of )?inotify instances`),
		"a job may use a quarter of the host's fs.inotify.max_user_instances: start fewer watchers, poll (CHOKIDAR_USEPOLLING=1), or ask the user to raise it",
	},
	{
		lazyregexp.New(`gpg failed to sign the data|gpg: (?:signing|decryption) failed|gpg: can't connect to the (?:gpg-)?agent|` +
			`[Cc]ouldn't load public key|Could not open a connection to your authentication agent`),
		"the user's keys and agents are not here: commit without a signature (git -c commit.gpgsign=false commit), and leave signing to the user",
	},
}

// explained returns the reason for what a program writes; "" for other output.
func explained(parts ...string) string {
	for _, h := range hints {
		for _, output := range parts {
			if h.says().MatchString(output) {
				return h.why
			}
		}
	}
	return ""
}
