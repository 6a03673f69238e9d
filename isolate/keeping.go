package isolate

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
)

// closeLayer unmounts the session's layer, and keeps or removes it.
func (ss *session) closeLayer() (bool, error) {
	ss.mu.Lock()
	keep := ss.keep
	ss.mu.Unlock()
	switch {
	case ss.imports() && keep:
		return ss.keepImage()
	case ss.from != "":
		err := ss.layer.Close()
		if !keep {
			return false, errors.Join(err, ss.s.dropKept(ss.from))
		}
		return true, errors.Join(err, ss.s.renewKept(ss.from))
	case keep && ss.workspace == job.Overlay && ss.has("repo/upper"):
		return ss.keepChanges()
	}
	return false, ss.layer.Close()
}

// keepImage makes what was unpacked a root file system.
func (ss *session) keepImage() (bool, error) {
	if !ss.has("root") {
		return false, errors.Join(sessionRefusal("root file system %q: there is nothing in it", ss.spec.Import), ss.layer.Close())
	}
	err := ss.layer.Keep(ss.spec.Import)
	return err == nil, err
}

// keepChanges keeps what the session's jobs changed in the repository.
func (ss *session) keepChanges() (bool, error) {
	if err := ss.describe(); err != nil {
		return false, errors.Join(err, ss.s.forgetKept(ss.id), ss.layer.Close())
	}
	if err := ss.layer.Keep(ss.id + layerSuffix); err != nil {
		return false, errors.Join(err, ss.s.forgetKept(ss.id))
	}
	return true, nil
}

// has says whether there is anything in a directory of the layer. What it is, only a job looks at.
func (ss *session) has(name string) bool {
	dir, err := os.Open(filepath.Join(ss.layer.Path(), name))
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(1)
	return len(names) > 0
}

// describe writes down whose the layer is that is about to be kept.
func (ss *session) describe() error {
	r := ss.jail.repo
	return ss.s.writeKept(&kept{
		ID: ss.id, Name: ss.spec.Name, UID: ss.peer.UID, Repo: r.path, Dev: r.dev, Ino: r.ino, ReadOnly: r.readOnly, Profile: ss.profile,
		Opened: ss.opened, Kept: time.Now(), Disk: ss.spec.Disk, Inodes: ss.spec.Inodes,
	})
}

// writeKept writes a description, which is there as a whole or not at all.
func (s *Supervisor) writeKept(k *kept) error {
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	path := s.keptPath(k.ID + keptSuffix)
	f, err := os.OpenFile(path+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+newSuffix, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path+newSuffix))
	}
	return nil
}

// renewKept has a kept layer's time begin anew, unless it was removed meanwhile.
func (s *Supervisor) renewKept(id string) error {
	k, err := s.loadKept(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	k.Kept = time.Now()
	return s.writeKept(k)
}
