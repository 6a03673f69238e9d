package doctor

import (
	"errors"
	"os"
	"path/filepath"
)

// A Place is a directory made for an examination: a repository for its jobs, and beside it a file that no job may see.
type Place struct{ dir string }

// MakePlace makes one below the first directory of parents where that is possible.
func MakePlace(parents ...string) (Place, error) {
	var failed error
	for _, parent := range parents {
		real, err := filepath.EvalSymlinks(parent) // a supervisor refuses a repository that is reached through a link
		if err == nil {
			var p Place
			if p, err = makePlace(real); err == nil {
				return p, nil
			}
		}
		failed = errors.Join(failed, err)
	}
	return Place{}, failed
}

func makePlace(parent string) (Place, error) {
	dir, err := os.MkdirTemp(parent, "corral-doctor-")
	if err != nil {
		return Place{}, err
	}
	p := Place{dir}
	// Only permissions that a job must be kept out by other means: everybody may read the bait.
	err = errors.Join(
		os.Chmod(dir, 0o755), os.Mkdir(p.Repo(), 0o755),
		os.WriteFile(p.Bait(), []byte("bait\n"), 0o644), os.WriteFile(p.owned(), []byte("owned\n"), 0o600),
	)
	if err != nil {
		return Place{}, errors.Join(err, p.Remove())
	}
	return p, nil
}

// Repo is the directory that jobs run in.
func (p Place) Repo() string { return filepath.Join(p.dir, "repo") }

// Bait is a file outside of the repository.
func (p Place) Bait() string { return filepath.Join(p.dir, "bait") }

// owned is a file in the repository, which only its owner may read.
func (p Place) owned() string { return filepath.Join(p.Repo(), "owned") }

// Give makes all of it another user's.
func (p Place) Give(uid, gid int) error {
	return errors.Join(
		os.Lchown(p.owned(), uid, gid), os.Lchown(p.Bait(), uid, gid), os.Lchown(p.Repo(), uid, gid), os.Lchown(p.dir, uid, gid),
	)
}

// Remove removes it, with what jobs left in it.
func (p Place) Remove() error {
	if p.dir == "" {
		return nil
	}
	return os.RemoveAll(p.dir)
}
