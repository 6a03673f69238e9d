package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
)

// closeLayer unmounts the session's layer, and keeps or removes it.
func (ss *session) closeLayer() (bool, error) {
	ss.layerMu.Lock()
	defer ss.layerMu.Unlock()
	ss.closed = true
	ss.mu.Lock()
	// Of a session whose jail ended by itself, nobody has said that its changes may go.
	keep := ss.keep || !ss.ending && !ss.imports()
	ss.mu.Unlock()
	switch {
	case ss.imports() && keep:
		return ss.keepImage()
	case ss.from != "":
		err := ss.layer.Close()
		if !keep {
			return false, errors.Join(err, ss.s.dropKept(ss.from))
		}
		if err := ss.s.renewKept(ss.from); err != nil { // it has its old time
			ss.s.config.Log.Warn("a kept layer's time is not renewed", "layer", ss.from, "error", err)
		}
		return true, err
	case keep && ss.workspace == job.Overlay:
		return ss.keepChanges()
	}
	ss.unname()
	return false, ss.layer.Close()
}

// secure sees to it, before the session ends, that its changes can be kept: their description and the layer have their names,
// and what was written is on the disk. If not, the caller is told, and the session is to go on. What jobs write from here on is
// written out by keepChanges.
func (ss *session) secure() error {
	ss.layerMu.Lock()
	defer ss.layerMu.Unlock()
	ss.mu.Lock()
	jobs := ss.jobs
	ss.mu.Unlock()
	if ss.closed || ss.from != "" || jobs == 0 && !ss.has("repo/upper") {
		return nil
	}
	err := ss.name()
	if err == nil {
		err = ss.layer.Sync()
	}
	if err == nil {
		return nil
	}
	// A name that it has it keeps: there is no other, and the layer is in use.
	ss.s.config.Log.Warn("a session cannot be ended: its changes cannot be kept", "session", ss.id, "error", err)
	return &job.Refusal{
		Step: "changes", Errno: int(errnoOf(err)),
		Message: fmt.Sprintf("session %s stays open, for what its jobs changed cannot be kept: %s", ss.id, strings.ReplaceAll(err.Error(), "\n", "; ")),
		Hint: fmt.Sprintf("make room on the file system of %s and close it again; or apply the changes first (corral changes apply), or give them up (corral session close --discard)",
			ss.s.config.StateDir),
	}
}

// name gives the layer of the session and its description the names by which they are found when it has ended. The caller holds
// layerMu.
func (ss *session) name() error {
	if ss.layer.Named() {
		return nil
	}
	err := ss.describe()
	if err == nil {
		err = ss.layer.Name(ss.id + layerSuffix)
	}
	if err != nil && !ss.layer.Named() {
		return errors.Join(err, ss.s.forgetKept(ss.id))
	}
	return err
}

// unname removes the names of a session that ends and is not kept. The caller holds layerMu.
func (ss *session) unname() {
	if !ss.layer.Named() {
		return
	}
	if err := ss.s.dropKept(ss.id); err != nil {
		ss.s.config.Log.Error("a layer is not removed", "layer", ss.id, "error", err)
	}
}

// keepImage makes what was unpacked a root file system.
func (ss *session) keepImage() (bool, error) {
	if !ss.has("root") {
		return false, errors.Join(sessionRefusal("root file system %q: there is nothing in it", ss.spec.Import), ss.layer.Close())
	}
	err := ss.layer.Keep(ss.spec.Import)
	return err == nil, err
}

// keepChanges keeps what the session's jobs changed in the repository, if that is anything. No job of it is left, and the caller
// holds layerMu.
func (ss *session) keepChanges() (bool, error) {
	if !ss.has("repo/upper") {
		ss.unname()
		return false, ss.layer.Close()
	}
	if err := ss.name(); err != nil {
		err = fmt.Errorf("what the jobs of session %s changed is lost: %w", ss.id, err)
		ss.s.config.Log.Error("changes are lost", "session", ss.id, "repo", ss.spec.Repo, "error", err)
		return false, errors.Join(err, ss.layer.Close())
	}
	err := ss.layer.Sync()
	if err != nil {
		err = fmt.Errorf("the changes of session %s are kept, and some of what its jobs wrote last may be missing: %w", ss.id, err)
	}
	return true, errors.Join(err, ss.layer.Close())
}

// has says whether there is anything in a directory of the layer, or may be: one that cannot be read is not taken for empty. What
// it is, only a job looks at.
func (ss *session) has(name string) bool {
	dir, err := os.Open(filepath.Join(ss.layer.Path(), name))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(1)
	return len(names) > 0 || !errors.Is(err, io.EOF)
}

// describe writes down whose the layer is that is about to be kept.
func (ss *session) describe() error {
	r := ss.jail.repo
	return ss.s.writeKept(&keptLayer{
		ID: ss.id, Name: ss.spec.Name, UID: ss.peer.UID, Repo: r.path, Dev: r.dev, Ino: r.ino, ReadOnly: r.readOnly, Profile: ss.profile,
		Opened: ss.opened, Kept: time.Now(), Disk: ss.spec.Disk, Inodes: ss.spec.Inodes,
	})
}

// writeKept writes a description, which is there as a whole or not at all.
func (s *Supervisor) writeKept(k *keptLayer) error {
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
