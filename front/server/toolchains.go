package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/front/cli"
	"corral/internal/directory"
	"corral/policy/runtimes"
)

// Bounds of a search for toolchains in a home directory. Package runtimes searches a few dozen places.
const (
	maxToolchains   = 64
	maxFound        = 256 << 10        // bytes of a list, in JSON
	findTimeout     = 10 * time.Second // timeout of the search
	toolchainPerm   = 0o005            // permissions of others that jobs need
	maxToolchainLen = 4095             // bytes of a path
)

// ToolchainFinder is the name of the command that searches a home directory for root. People do not type it.
const ToolchainFinder = "find-toolchains"

// A homeDir is the home directory in which an embedded supervisor finds programs besides those of the system.
type homeDir struct {
	path string
	uid  uint32
}

// homeOf returns the home directory of the account.
func homeOf(whose directory.Account) (homeDir, error) {
	u, err := user.LookupId(strconv.FormatUint(uint64(whose.UID), 10))
	if err != nil {
		return homeDir{}, err
	}
	return homeDir{u.HomeDir, whose.UID}, nil
}

// findToolchains returns the directories of programs, and the download caches, in the account's home directory that jobs in repos can
// see. It is called as root. What cannot be used is left out, with a line in the diagnostic log. Caches contain what the
// user downloaded, such as private modules, so they are left out unless each repository belongs to that user.
//
// A child that has become another user searches the home directory. Root takes only paths from it, and checks each; the
// supervisor holds the directory that it opens there, and refuses links.
func findToolchains(log *slog.Logger, whose directory.Account, repos []string) []string {
	h, err := homeOf(whose)
	var list []string
	if err == nil {
		list, err = h.find()
	}
	if err == nil {
		list, err = h.usable(list, repos)
	}
	if err != nil {
		log.Warn("no toolchains from the home directory", "error", err)
		return nil
	}
	return list
}

// find lists the directories. Root searches its own home directory itself, because nobody else can enter it.
func (h homeDir) find() ([]string, error) {
	if h.uid == 0 {
		return searchHome(h.path), nil
	}
	question, err := json.Marshal(h.path)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.Background(), findTimeout)
	defer stop()
	answer, err := cli.RunHelper(ctx, ToolchainFinder, question, maxFound)
	if err != nil {
		return nil, err
	}
	var list []string
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", ToolchainFinder, err)
	}
	return list, nil
}

// searchHome lists the directories of programs and the download caches in a home directory.
func searchHome(home string) []string {
	return slices.Concat(runtimes.Toolchains(home, nil), runtimes.ModuleCaches(home))
}

// usable returns the directories in list that belong to the home directory's owner or to root, lie in it and on its
// file system, are readable for everybody, and do not overlap a repository; of download caches, only if all repositories
// belong to the home directory's owner. It returns an error if the home directory
// belongs to another user, or the list is longer than any genuine one.
func (h homeDir) usable(list, repos []string) ([]string, error) {
	if len(list) > maxToolchains {
		return nil, fmt.Errorf("%d toolchains in %s: more than %d", len(list), h.path, maxToolchains)
	}
	if len(list) == 0 {
		return nil, nil
	}
	real, err := filepath.EvalSymlinks(h.path)
	if err != nil {
		return nil, err
	}
	dir, err := directory.Open(real)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	top := int(dir.Fd())
	if st, err := statOf(top); err != nil || st.Uid != h.uid && st.Uid != 0 {
		return nil, errors.Join(fmt.Errorf("the home directory %s does not belong to user %d", real, h.uid), err)
	}
	caches := h.ownsAll(repos)
	var taken []string
	for _, path := range list {
		name, below := strings.CutPrefix(path, real+"/")
		if below && wellFormed(path) && !overlapsAny(path, repos) && (caches || !runtimes.IsModuleCache(path)) && h.owns(top, name) {
			taken = append(taken, path)
		}
	}
	return taken, nil
}

func wellFormed(path string) bool {
	return len(path) <= maxToolchainLen && filepath.IsAbs(path) && filepath.Clean(path) == path &&
		!strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// overlapsAny reports whether a path lies in a repository or contains one. No jail can show it then.
func overlapsAny(path string, repos []string) bool {
	return slices.ContainsFunc(repos, func(repo string) bool { return directory.Overlap(path, repo) })
}

// owns reports whether name, below the directory top, is a directory that may be shown. Another file system is refused,
// because a user may serve it (FUSE).
func (h homeDir) owns(top int, name string) bool {
	fd, err := unix.Openat2(top, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	st, err := statOf(fd)
	return err == nil && (st.Uid == h.uid || st.Uid == 0) && st.Mode&toolchainPerm == toolchainPerm
}

// ownsAll reports whether all repositories belong to the home directory's owner.
func (h homeDir) ownsAll(repos []string) bool {
	return !slices.ContainsFunc(repos, func(repo string) bool {
		dir, err := directory.Open(repo)
		if err != nil {
			return true
		}
		defer dir.Close()
		st, err := statOf(int(dir.Fd()))
		return err != nil || st.Uid != h.uid
	})
}

func statOf(fd int) (st unix.Stat_t, err error) {
	err = unix.Fstat(fd, &st)
	return st, err
}

// ToolchainCommand is the cli.Command of ToolchainFinder, which runs as a helper process.
func ToolchainCommand(args []string) error {
	var dir string
	if err := cli.ReadQuestion(ToolchainFinder, args, maxFound, &dir); err != nil {
		return err
	}
	answer, err := json.Marshal(searchHome(dir))
	if err != nil {
		return err
	}
	return cli.Print(string(answer))
}
