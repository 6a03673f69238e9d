package client

import (
	"os"
	"path"
	"time"

	"corral/job"
)

// gitLocks are the locks that git holds while it changes a repository, and leaves if it is killed: then no git changes it until somebody
// has removed them.
var gitLocks = []string{"index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock"}

// tick is how much the times of files lag behind the clock at most: the kernel's timer has at least 100 ticks per second.
const tick = 10 * time.Millisecond

// locksLeft returns the locks of git in the repository that are not older than since. It looks with the rights of the front-end, and
// follows no link out of the repository. Of a session with an overlay, or a worktree, the locks are elsewhere.
func locksLeft(spec *job.Spec, since time.Time) (left []string) {
	if spec.Workspace != job.Direct || spec.Repo == "" {
		return nil
	}
	root, err := os.OpenRoot(spec.Repo)
	if err != nil {
		return nil
	}
	defer func() { _ = root.Close() }()
	for _, name := range gitLocks {
		lock := path.Join(".git", name)
		if info, err := root.Lstat(lock); err == nil && !info.ModTime().Before(since.Add(-tick)) {
			left = append(left, lock)
		}
	}
	return left
}
