package embed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/client"
	"corral/isolate/wire"
)

// FindCommon is the first argument of this program as a child of Start, which FindCommand is: not one that people type.
const FindCommon = "find-common-directory"

// findWait bounds how long a child looks at one directory.
const findWait = 5 * time.Second

// nobody is who looks when it is not known yet who this process becomes: user and group nobody of every distribution.
const nobody = 65534

// FindCommand writes the path of the git directory that args, one directory, is a worktree of. It is for who is not root: a
// job may have written what it reads.
func FindCommand(args []string) error {
	if os.Geteuid() == 0 || len(args) != 1 {
		return errors.New(FindCommon + " is for corral itself")
	}
	path, dir, err := client.Common(args[0])
	if err != nil {
		return err
	}
	dir.Close()
	_, err = io.WriteString(os.Stdout, path)
	return err
}

// commons finds the git directories that some of the repositories are worktrees of, by the repository. Who looks is the
// account that they are served for, in a child each, or who this process is about to become; root does not. What cannot
// be found is left out.
func (o *Options) commons(whose directory.Account) map[string]string {
	found := map[string]string{}
	for _, repo := range o.Repos {
		if !maybeWorktree(whose, repo) {
			continue
		}
		if path, err := findCommon(whose, repo); err == nil {
			found[repo] = path
		}
	}
	return found
}

// maybeWorktree says whether .git is a file, as far as the account can see, which is all that is asked of it here.
func maybeWorktree(whose directory.Account, repo string) (maybe bool) {
	err := whose.Do(func() {
		dir, err := directory.Open(repo)
		if err != nil {
			return
		}
		defer dir.Close()
		var st unix.Stat_t
		maybe = unix.Fstatat(int(dir.Fd()), ".git", &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
	})
	return maybe && err == nil
}

func findCommon(whose directory.Account, repo string) (string, error) {
	if whose.UID == 0 {
		who, err := Choose(Identity{nobody, nobody})
		if err != nil {
			return "", err
		}
		whose = directory.Account{UID: uint32(who.UID), GID: uint32(who.GID)}
	}
	ctx, stop := context.WithTimeout(context.Background(), findWait)
	defer stop()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", FindCommon, repo)
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{}, "/", time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: whose.UID, Gid: whose.GID, Groups: whose.Groups},
		Pdeathsig:  syscall.SIGKILL,
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(stdout, wire.MaxPath+1))
	path := string(answer)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return "", err
	}
	if len(path) > wire.MaxPath || !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("%s: %.80q is no path", FindCommon, path)
	}
	return path, nil
}
