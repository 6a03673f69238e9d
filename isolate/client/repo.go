package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/job"
)

// openRepo opens a repository, to be passed to the supervisor; it returns nil with ByPath. A path with a symbolic link in
// it is refused: whoever can write to a directory above, for example a job, would choose what is opened.
func (c *Client) openRepo(path string) (*os.File, error) {
	err := CheckPrivate(path)
	if err == nil && c.Vet != nil {
		err = c.Vet(path)
	}
	if err != nil || c.ByPath {
		return nil, err
	}
	dir, err := directory.OpenFor(c.Account, path)
	if err != nil {
		return nil, refuseRepo(path, err)
	}
	want, known := c.owner(path)
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); known && (err != nil || st.Uid != want) {
		dir.Close()
		return nil, &job.Refusal{
			Step:    "repo",
			Message: fmt.Sprintf("%q belongs to user %d, and its entry in the configuration says user %d", path, st.Uid, want),
			Hint:    "find out who replaced it; if that is as it should be, change `owner` of the entry",
		}
	}
	return dir, nil
}

// owner returns the user that must own a repository, and false if anybody may.
func (c *Client) owner(path string) (uid uint32, known bool) {
	if c.Owner == nil {
		return 0, false
	}
	return c.Owner(path)
}

func refuseRepo(path string, err error) error {
	refusal := &job.Refusal{Step: "repo", Message: fmt.Sprintf("repository %q: %v", path, err)}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		refusal.Errno = int(errno)
		refusal.Message = fmt.Sprintf("repository %q: %v", path, errno)
	}
	var link *directory.LinkError
	if errors.As(err, &link) {
		refusal.Message = "repository " + link.Error()
		refusal.Hint = directory.LinkHint
	}
	return refusal
}

// CheckPrivate refuses a repository that is, contains or lies in the directory of the front-end's own configuration or
// state, also if links lead there: a job there would control what front-ends do outside of any jail, and read what earlier
// jobs of others wrote.
func CheckPrivate(path string) error {
	for _, own := range private(os.Getenv) {
		trail := directory.Trail(own)
		in := directory.Within(path, own) || directory.Within(path, trail[len(trail)-1])
		if path != "/" && (in || directory.Passes(own, trail, path)) { // the supervisor refuses / with its own message
			return &job.Refusal{
				Step:    "repo",
				Message: fmt.Sprintf("%q is refused: corral keeps its configuration or state in %q", path, own),
				Hint:    "name a project's own directory",
			}
		}
	}
	return nil
}

// private returns the directories in which front-ends of this user keep configuration and state (XDG Base Directory
// Specification: a path that is not absolute is ignored).
func private(getenv func(string) string) []string {
	var list []string
	for variable, inHome := range map[string]string{"XDG_CONFIG_HOME": ".config", "XDG_STATE_HOME": ".local/state"} {
		dirs := []string{getenv(variable)}
		if home := getenv("HOME"); filepath.IsAbs(home) {
			dirs = append(dirs, filepath.Join(home, inHome))
		}
		for _, dir := range dirs {
			if filepath.IsAbs(dir) {
				list = append(list, filepath.Join(dir, "corral"))
			}
		}
	}
	return list
}
