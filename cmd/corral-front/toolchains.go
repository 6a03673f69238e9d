package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/policy/runtimes"
)

// Bounds of what a home directory is asked for: package runtimes knows a few dozen places.
const (
	maxToolchains   = 64
	maxFound        = 256 << 10 // bytes of a list, in JSON
	toolchainsWait  = 10 * time.Second
	toolchainPerm   = 0o005 // what jobs need of a directory
	maxToolchainLen = 4095  // bytes of a path
)

// finder is the name of the command that looks into a home directory for root: not one that people type.
const finder = "find-toolchains"

// A homeDir is whose programs an embedded supervisor shows beside those of the system.
type homeDir struct {
	path string
	uid  uint32
}

// home is the home directory of the account.
func home(whose directory.Account) (homeDir, error) {
	u, err := user.LookupId(strconv.FormatUint(uint64(whose.UID), 10))
	if err != nil {
		return homeDir{}, err
	}
	return homeDir{u.HomeDir, whose.UID}, nil
}

// ownToolchains returns the directories of programs in the home directory of the account that jobs in repos can be shown.
// It is for root. What cannot be had is left out, with a line in the log.
//
// What is in a user's directory is looked at by a child who has become somebody else. Root takes paths from it and makes
// sure of each; the supervisor holds the directory that it finds there, and refuses one that it is led to by a link.
func ownToolchains(log *slog.Logger, whose directory.Account, repos []string) []string {
	h, err := home(whose)
	var list []string
	if err == nil {
		list, err = h.find()
	}
	if err == nil {
		list, err = h.usable(list, repos)
	}
	if err != nil {
		log.Warn("no toolchains of the home directory", "error", err)
		return nil
	}
	return list
}

// find lists the directories. Root's own are looked for by root: nobody else can enter.
func (h homeDir) find() ([]string, error) {
	if h.uid == 0 {
		return runtimes.Toolchains(h.path, nil), nil
	}
	question, err := json.Marshal(h.path)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.Background(), toolchainsWait)
	defer stop()
	answer, err := askUser(ctx, finder, question, maxFound)
	if err != nil {
		return nil, err
	}
	var list []string
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", finder, err)
	}
	return list, nil
}

// usable returns those of a list that are a directory of the home directory's owner, or of root, in it and on its file
// system, that everybody may read, and that has nothing to do with a repository. It is an error that the home directory
// itself is somebody else's, or that the list is longer than anybody's.
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
	top, err := unix.Openat2(unix.AT_FDCWD, real, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: real, Err: err}
	}
	defer unix.Close(top)
	if st, err := stat(top); err != nil || st.Uid != h.uid && st.Uid != 0 {
		return nil, errors.Join(fmt.Errorf("the home directory %s does not belong to user %d", real, h.uid), err)
	}
	var taken []string
	for _, path := range list {
		name, below := strings.CutPrefix(path, real+"/")
		if below && wellFormed(path) && !overlaps(path, repos) && h.owns(top, name) {
			taken = append(taken, path)
		}
	}
	return taken, nil
}

func wellFormed(path string) bool {
	return len(path) <= maxToolchainLen && filepath.IsAbs(path) && filepath.Clean(path) == path &&
		!strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// overlaps says whether a path lies in a repository, or holds one: no jail shows it then.
func overlaps(path string, repos []string) bool {
	return slices.ContainsFunc(repos, func(repo string) bool { return directory.Overlap(path, repo) })
}

// owns says whether name, below the directory top, is a directory that may be shown. Another file system may be one that
// a user answers for (FUSE).
func (h homeDir) owns(top int, name string) bool {
	fd, err := unix.Openat2(top, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	st, err := stat(fd)
	return err == nil && (st.Uid == h.uid || st.Uid == 0) && st.Mode&toolchainPerm == toolchainPerm
}

func stat(fd int) (st unix.Stat_t, err error) {
	err = unix.Fstat(fd, &st)
	return st, err
}

// finderCommand is that child.
func finderCommand(args []string) (int, error) {
	var dir string
	if ended, code, err := beAsked(finder, args, maxFound, &dir); ended {
		return code, err
	}
	answer, err := json.Marshal(runtimes.Toolchains(dir, nil))
	if err != nil {
		return failure, err
	}
	return say(string(answer))
}
