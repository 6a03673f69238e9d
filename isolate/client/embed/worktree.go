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

// FindCommon is the first argument of this program when it runs as a child of Start, see FindCommand; users do not type
// it.
const FindCommon = "find-common-directory"

// findWait is the timeout of a child that examines one directory.
const findWait = 5 * time.Second

// nobody is user and group nobody of every distribution. A child runs as it if this process's identity is not known yet.
const nobody = 65534

// FindCommand writes to standard output the path of the git directory that args, one directory, is a worktree of. It
// refuses to run as root, as it reads files that jobs may have written.
func FindCommand(args []string) error {
	if Root() || len(args) != 1 {
		return errors.New(FindCommon + " is for internal use by corral")
	}
	path, dir, err := client.Common(args[0])
	if err != nil {
		return err
	}
	dir.Close()
	_, err = io.WriteString(os.Stdout, path)
	return err
}

// commons returns, by repository, the git directories of those that are worktrees. Each is looked up in a child that runs
// as the account they are served for, or as the identity this process is about to get, never as root. Repositories for
// which that fails are left out.
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

// maybeWorktree reports whether .git is a file, as seen with the account's rights. It reads no content.
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
		return "", fmt.Errorf("%s: %.80q must be a clean absolute path", FindCommon, path)
	}
	return path, nil
}
