package doctor

import (
	"errors"
	"os"
	"path/filepath"
)

// A Place is a directory created for an examination, with a repository for its jobs and a file outside it that no job may
// see.
type Place struct{ dir string }

// MakePlace creates a Place below the first of parents in which it can. The caller calls Remove.
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
	// Everybody may read the bait, so that permissions are not what keeps a job from it.
	err = errors.Join(
		os.Chmod(dir, 0o755), os.Mkdir(p.Repo(), 0o755),
		os.WriteFile(p.Bait(), []byte("bait\n"), 0o644), os.WriteFile(p.owned(), []byte("owned\n"), 0o600),
	)
	if err != nil {
		return Place{}, errors.Join(err, p.Remove())
	}
	return p, nil
}

// Repo returns the directory that jobs run in.
func (p Place) Repo() string { return filepath.Join(p.dir, "repo") }

// Bait returns the file outside the repository.
func (p Place) Bait() string { return filepath.Join(p.dir, "bait") }

// owned returns a file in the repository that only its owner may read.
func (p Place) owned() string { return filepath.Join(p.Repo(), "owned") }

// Give changes the owner and group of the Place and its files.
func (p Place) Give(uid, gid int) error {
	return errors.Join(
		os.Lchown(p.owned(), uid, gid), os.Lchown(p.Bait(), uid, gid), os.Lchown(p.Repo(), uid, gid), os.Lchown(p.dir, uid, gid),
	)
}

// Remove removes the Place with all files that jobs left in it. Removing the zero Place does nothing.
func (p Place) Remove() error {
	if p.dir == "" {
		return nil
	}
	return os.RemoveAll(p.dir)
}
