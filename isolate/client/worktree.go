package client

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/wire"
	"corral/job"
)

// A worktree of git (git-worktree(1)) has a file .git that names a directory worktrees/NAME of another git directory,
// which contains its branches and objects. That of a submodule, or of a repository made with --separate-git-dir, names a git
// directory of its own. A job can write that file, so the directory is used only if it in turn names the repository, in a file
// that a job of the repository can never have written: worktrees/NAME/gitdir, or core.worktree in config.

// The maximum sizes of the files read: of one with a path and a word, and of a configuration.
const (
	maxGitFile    = wire.MaxPath + 64
	maxRepoConfig = 64 << 10
)

// errNoWorktree is returned for a directory whose git directory is not elsewhere.
var errNoWorktree = errors.New("not a worktree")

// Common opens the git directory of repo if it is elsewhere: repo is a worktree of it, or its only one. It returns its path. The
// caller closes dir. It fails if there is none, or it lies in repo or does not name repo. It reads files that jobs wrote, so root
// must not call it.
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
	own = absolutePath(repo, own)
	common, verify := own, verifySeparate
	if filepath.Base(filepath.Dir(own)) == "worktrees" {
		common, verify = filepath.Dir(filepath.Dir(own)), verifyWorktree
	}
	if directory.Within(common, repo) || len(common) > wire.MaxPath {
		return "", nil, errNoWorktree
	}
	if dir, err = directory.Open(common); err != nil {
		return "", nil, err
	}
	if err := errors.Join(verify(dir, own, repo), verifyGitDir(dir)); err != nil {
		dir.Close()
		return "", nil, err
	}
	return common, dir, nil
}

// common returns the git directory that a repository is a worktree of, or "", and the descriptor and the flag to send
// with it. Errors are ignored: without it git fails in the job with "not a git repository", and everything else works.
func (c *Client) common(repo string) (path string, dir *os.File, flag uint32) {
	if c.ByPath {
		return c.Commons[repo], nil, 0
	}
	if os.Getuid() == 0 { // root, or a user who called sudo: see package embed
		return "", nil, 0
	}
	path, dir, err := Common(repo)
	if err != nil {
		return "", nil, 0
	}
	return path, dir, wire.FlagCommon
}

// addWorktrees adds to a message the git directory that the job's repository is a worktree of, and the other worktrees. It returns the
// descriptor to send with it, which the caller closes, or nil.
func (c *Client) addWorktrees(m *wire.Run, spec job.Spec) *os.File {
	if spec.Workspace == job.NoRepo {
		return nil
	}
	path, dir, flag := c.common(spec.Repo)
	if spec.Tool == job.ToolNone && os.Getuid() != 0 { // root does not read what jobs write
		m.Worktrees = otherWorktrees(spec.Repo, path)
	}
	if spec.Session != "" { // it has its own common directory
		dir.Close()
		return nil
	}
	m.Common, m.Flags = path, m.Flags|flag
	return dir
}

// verifyWorktree returns nil if the git directory open as dir has the administrative directory own for the worktree repo.
func verifyWorktree(dir *os.File, own, repo string) error {
	const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV
	admin, err := openDir(int(dir.Fd()), filepath.Join("worktrees", filepath.Base(own)), beneath)
	if err != nil {
		return err
	}
	defer admin.Close()
	common := filepath.Dir(filepath.Dir(own))
	for name, want := range map[string]string{"gitdir": filepath.Join(repo, ".git"), "commondir": common} {
		text, err := readGitFile(admin, name)
		if err != nil {
			return err
		}
		if absolutePath(own, text) != want {
			return errNoWorktree
		}
	}
	return nil
}

// verifySeparate returns nil if the git directory own, open as dir, has repo as its worktree.
func verifySeparate(dir *os.File, own, repo string) error {
	text, err := readFile(dir, "config", maxRepoConfig)
	if err != nil {
		return err
	}
	if tree := coreWorktree(text); tree == "" || absolutePath(own, tree) != repo {
		return errNoWorktree
	}
	return nil
}

// maxWorktrees is the maximum number of entries that otherWorktrees reads.
const maxWorktrees = 1024

// otherWorktrees returns the paths of .git of the worktrees of a repository, whose git directory is at common or in it, that are
// outside of it: see wire.Run. A worktree counts only if it exists and names its entry in turn: jobs can write entries, and must not
// learn by them what the host has.
func otherWorktrees(repo, common string) (list string) {
	git := cmp.Or(common, filepath.Join(repo, ".git"))
	dir, err := directory.Open(filepath.Join(git, "worktrees"))
	if err != nil && common == "" { // a bare repository
		git = repo
		dir, err = directory.Open(filepath.Join(git, "worktrees"))
	}
	if err != nil {
		return ""
	}
	defer dir.Close()
	for _, name := range readNames(dir, maxWorktrees) {
		path := worktreeOf(dir, filepath.Join(git, "worktrees", name))
		if path != "" && !directory.Within(path, repo) && len(list)+len(path) < wire.MaxWorktrees {
			list += path + "\x00"
		}
	}
	return list
}

// readNames returns the names of at most so many entries of a directory that is open as dir, sorted.
func readNames(dir *os.File, most int) []string {
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), dir.Name())
	defer f.Close()
	names, _ := f.Readdirnames(most) // with an error: what was read before it
	slices.Sort(names)
	return names
}

// worktreeOf returns the path of .git of the worktree with the administrative directory own, which lies in dir; "" if there is none or
// it has another one.
func worktreeOf(dir *os.File, own string) string {
	admin, err := openDir(int(dir.Fd()), filepath.Base(own), unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_XDEV)
	if err != nil {
		return ""
	}
	defer admin.Close()
	text, err := readGitFile(admin, "gitdir")
	path := absolutePath(own, text)
	if err != nil || filepath.Base(path) != ".git" {
		return ""
	}
	tree, err := directory.Open(filepath.Dir(path))
	if err != nil {
		return ""
	}
	defer tree.Close()
	text, err = readGitFile(tree, ".git")
	if back, ok := strings.CutPrefix(text, "gitdir: "); err != nil || !ok || absolutePath(tree.Name(), back) != own {
		return ""
	}
	return path
}

// coreWorktree returns core.worktree of a configuration in the form in which git writes it, "" if it has none or another form.
func coreWorktree(text string) string {
	found, core := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, value, _ := strings.Cut(line, " = ")
		switch {
		case strings.HasPrefix(line, "["):
			core = line == "[core]"
		case !core || name != "worktree":
		case found != "" || strings.ContainsAny(value, "\\\";#"):
			return ""
		default:
			found = value
		}
	}
	return found
}

// verifyGitDir returns nil if dir looks like a git directory.
func verifyGitDir(dir *os.File) error {
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

// absolutePath returns the clean absolute path for a path in a file of dir.
func absolutePath(dir, path string) string {
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

// readGitFile reads the single line of a file in dir.
func readGitFile(dir *os.File, name string) (string, error) {
	b, err := readFile(dir, name, maxGitFile)
	text := strings.TrimRight(b, "\r\n")
	if err != nil || text == "" || strings.ContainsAny(text, "\x00\n") {
		return "", errors.Join(errNoWorktree, err)
	}
	return text, nil
}

// readFile reads a regular file in dir that is smaller than most bytes. It opens no other kind of file, as that may block or have
// side effects.
func readFile(dir *os.File, name string, most int64) (string, error) {
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
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err == nil && int64(len(b)) == most {
		err = errNoWorktree
	}
	return string(b), err
}
