package client

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/wire"
)

// A worktree of git (git-worktree(1)) has a file .git, which names a directory worktrees/NAME of another git directory,
// where its branches and objects are. A job can write that file: so the directory counts only if it names the worktree in
// turn, in a file that a job of the worktree never could write.

// maxGitFile bounds what is read of each file: a path and a word.
const maxGitFile = wire.MaxPath + 64

// errNoWorktree is a directory that is no worktree of a git directory elsewhere.
var errNoWorktree = errors.New("no worktree")

// Common opens the git directory that repo is a worktree of, and returns its path. It is an error that there is none, that
// it lies in repo, or that it does not know of repo. It reads what jobs wrote, so it is not for root.
func Common(repo string) (path string, dir *os.File, err error) {
	root, err := directory.Open(repo)
	if err != nil {
		return "", nil, err
	}
	defer root.Close()
	text, err := readGitFile(root, ".git")
	if err != nil {
		return "", nil, err
	}
	own, ok := strings.CutPrefix(text, "gitdir: ")
	if !ok {
		return "", nil, errNoWorktree
	}
	own = from(repo, own)
	common := filepath.Dir(filepath.Dir(own))
	if filepath.Base(filepath.Dir(own)) != "worktrees" || directory.Within(common, repo) || len(common) > wire.MaxPath {
		return "", nil, errNoWorktree
	}
	if dir, err = directory.Open(common); err != nil {
		return "", nil, err
	}
	if err := knows(dir, common, own, repo); err != nil {
		dir.Close()
		return "", nil, err
	}
	return common, dir, nil
}

// common returns the git directory that a repository is a worktree of, or "", and the descriptor and the flag that are sent
// with it. Without it git says in the job that there is no repository, and nothing else is amiss.
func (c *Client) common(repo string) (path string, dir *os.File, flag uint32) {
	if c.ByPath {
		return c.Commons[repo], nil, 0
	}
	if os.Geteuid() == 0 {
		return "", nil, 0
	}
	path, dir, err := Common(repo)
	if err != nil {
		return "", nil, 0
	}
	return path, dir, wire.FlagCommon
}

// knows says whether the git directory common, open as dir, has the directory own for the worktree repo.
func knows(dir *os.File, common, own, repo string) error {
	const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV
	admin, err := openDir(int(dir.Fd()), filepath.Join("worktrees", filepath.Base(own)), beneath)
	if err != nil {
		return err
	}
	defer admin.Close()
	for name, want := range map[string]string{"gitdir": filepath.Join(repo, ".git"), "commondir": common} {
		text, err := readGitFile(admin, name)
		if err != nil {
			return err
		}
		if from(own, text) != want {
			return errNoWorktree
		}
	}
	for name, kind := range map[string]uint32{"HEAD": unix.S_IFREG, "objects": unix.S_IFDIR, "refs": unix.S_IFDIR} {
		var st unix.Stat_t
		if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if st.Mode&unix.S_IFMT != kind {
			return errNoWorktree
		}
	}
	return nil
}

// from is a path that a file of a directory names.
func from(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

func openDir(at int, path string, resolve uint64) (*os.File, error) {
	fd, err := unix.Openat2(at, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// readGitFile reads the line of a file in dir. Nothing else is opened: what is no file may block, or do something.
func readGitFile(dir *os.File, name string) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", errNoWorktree
	}
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return "", &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxGitFile))
	text := strings.TrimRight(string(b), "\r\n")
	if err != nil || len(b) == maxGitFile || text == "" || strings.ContainsAny(text, "\x00\n") {
		return "", errors.Join(errNoWorktree, err)
	}
	return text, nil
}
