package execute

import (
	"fmt"
	"strings"

	"corral/job"

	safe "corral/internal/text"
)

const sandboxDescription = `Run a shell command in an isolated Linux system of your own. Files written anywhere, /etc too, last for the session; variables, the working directory and processes do not%s.

Give command (for bash) or args (without a shell). The result is JSON: stdout, stderr, exit_code (124: timeout, 128+n: signal n), exec_duration_ms.

No network, no root, no apt. A command that times out or writes over 2 MiB returns no output%s: use head, tail or grep. Secrets in output become [REDACTED:...].

%s`

// runsOn is the part of the description about commands in the background.
const runsOn = `, but a server does with background: true`

// foundLater is the part of the description about output that is not returned.
const foundLater = " (ctx_search finds what it wrote)"

// repoDescription returns the part of the description about the repositories: where they are, and whether commands change them.
func (t *Sandbox) repoDescription() string {
	ids := t.Repos
	if t.Repo != "" && (len(ids) == 1 || !t.Named) {
		ids = []string{t.Repo}
	}
	where := "The repository is at its own absolute path, and relative directories with repoId are in it. It"
	switch n := len(ids); {
	case t.Named && n == 1 && len(t.Paths[ids[0]]) <= maxPathShown:
		where = "The repository is at " + safe.Quote(t.Paths[ids[0]]) + " and"
	case t.Named && n > 1:
		where = "Argument repoId chooses one of the repositories " + t.list(ids) + "; it"
	}
	seen := map[job.Workspace]bool{}
	for _, id := range ids {
		seen[t.workspace(id)] = true
	}
	switch {
	case len(seen) > 1:
		return where + " may be the real directory (direct), read-only, or a copy: ask the operator before you change or delete files in it."
	case seen[job.Direct]:
		return where + " is the real directory, not a copy: what you change or delete in it, .git included, is changed or deleted on the machine at once, and is not undone when the session ends."
	case seen[job.ReadOnly]:
		return where + " is read-only."
	}
	return where + " is a copy-on-write copy: only your later calls of this tool see changes in it, and people review and apply them (corral changes)."
}

// maxListed is the maximum number of repositories that the description lists.
const maxListed = 8

// list returns repositories with their paths.
func (t *Sandbox) list(ids []string) string {
	var names []string
	for _, id := range ids[:min(len(ids), maxListed)] {
		name := safe.Quote(id)
		if path := t.Paths[id]; path != "" && len(path) <= maxPathShown/2 {
			name += " at " + safe.Quote(path)
		}
		if id == t.Repo || t.Repo == "" && id == ids[0] {
			name += " (default)"
		}
		names = append(names, name)
	}
	if more := len(ids) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// maxPathShown is the maximum length of a path included in the description, because hosts bound a description's length.
const maxPathShown = 300

// workspace returns the workspace mode of a repository. The default is the policy's, overlay.
func (t *Sandbox) workspace(id string) job.Workspace {
	if w, ok := t.Workspaces[id]; ok {
		return w
	}
	return job.Overlay
}
