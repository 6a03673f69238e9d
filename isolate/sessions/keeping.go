package sessions

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/layer"
	"corral/job"
)

// closeLayer unmounts the session's layer and keeps or removes it. kept reports which.
func (ss *Session) closeLayer() (bool, error) {
	ss.layerMu.Lock()
	defer ss.layerMu.Unlock()
	ss.closed = true
	// If the jail ended by itself, nobody decided to discard the changes.
	keep := fault.Get(&ss.mu, func() bool { return ss.keep || !ss.ending && !ss.imports() })
	switch {
	case ss.imports() && keep:
		return ss.keepImage()
	case ss.from != "":
		err := ss.layer.Close()
		if !keep {
			return false, errors.Join(err, ss.m.kept.drop(ss.from))
		}
		if err := ss.m.kept.renew(ss.from); err != nil { // it keeps its old time
			ss.m.Log.Warn("kept layer: time not renewed", "layer", ss.from, "error", err)
		}
		return true, err
	case keep && ss.workspace == job.Overlay:
		return ss.keepChanges()
	}
	ss.removeNames()
	return false, ss.layer.Close()
}

// ensureKeepable makes sure, before the session ends, that its changes can be kept: it gives the layer and its
// description their names and writes the layer to disk. If it fails, the error is for the client, and the session
// continues. What jobs write after this is written out by keepChanges.
func (ss *Session) ensureKeepable() error {
	ss.layerMu.Lock()
	defer ss.layerMu.Unlock()
	jobs := fault.Get(&ss.mu, func() int { return ss.jobs })
	if ss.closed || ss.from != "" || jobs == 0 && !ss.changed() {
		return nil
	}
	err := ss.nameLayer()
	if err == nil {
		err = ss.layer.Sync()
	}
	if err == nil {
		return nil
	}
	// If the layer already has its name it keeps it: it has no other, and it is in use.
	ss.m.Log.Warn("session not ended: its changes cannot be kept", "session", ss.id, "error", err)
	if errors.Is(err, layer.ErrLost) {
		return ss.refuseLost(err)
	}
	return &job.Refusal{
		Step: "changes", Errno: int(host.ErrnoOf(err)),
		Message: fmt.Sprintf("session %s stays open because its jobs' changes cannot be kept: %s", ss.id,
			strings.ReplaceAll(err.Error(), "\n", "; ")),
		Hint: fmt.Sprintf("free space on the file system of %s and close the session again; or apply the changes first (corral changes apply), or discard them (corral session close --discard)",
			ss.m.StateDir),
	}
}

// refuseLost returns the refusal of what needs all that the session's jobs wrote.
func (ss *Session) refuseLost(err error) error {
	return &job.Refusal{
		Step: "changes", Errno: int(host.ErrnoOf(err)),
		Message: fmt.Sprintf("session %s has lost data that its jobs wrote: %s", ss.id, strings.ReplaceAll(err.Error(), "\n", "; ")),
		Hint: fmt.Sprintf("the file system of %s was full, so changed files may be incomplete: look at them (corral changes diff), copy what is good by hand, and discard the rest (corral changes discard, corral session close --discard)",
			ss.m.StateDir),
	}
}

// lost reports whether data of the session's jobs is known to be lost.
func (ss *Session) lost() bool {
	ss.layerMu.Lock()
	defer ss.layerMu.Unlock()
	return ss.layer.Lost() != nil
}

// checkWritten refuses to apply changes if a part of them was lost.
func (ss *Session) checkWritten() error {
	ss.layerMu.Lock()
	defer ss.layerMu.Unlock()
	if ss.closed || ss.layer == nil { // the request fails for that
		return nil
	}
	if err := ss.layer.Sync(); err != nil {
		ss.m.Log.Warn("changes not applied", "session", ss.id, "error", err)
		return ss.refuseLost(err)
	}
	return nil
}

// nameLayer gives the session's layer and its description the names under which they are found after the session has
// ended. The caller holds layerMu.
func (ss *Session) nameLayer() error {
	if ss.layer.Named() {
		return nil
	}
	err := ss.writeDescription()
	if err == nil {
		err = ss.layer.Name(ss.id + layerSuffix)
	}
	if err != nil && !ss.layer.Named() {
		return errors.Join(err, ss.m.kept.forget(ss.id))
	}
	return err
}

// removeNames removes the names of a session that ends and is not kept. The caller holds layerMu.
func (ss *Session) removeNames() {
	if !ss.layer.Named() {
		return
	}
	if err := ss.m.kept.drop(ss.id); err != nil {
		ss.m.Log.Error("layer not removed", "layer", ss.id, "error", err)
	}
}

// keepImage turns what was unpacked into a root file system.
func (ss *Session) keepImage() (bool, error) {
	if !ss.layerHas("root") {
		return false, errors.Join(sessionRefusal("root file system %q: nothing was unpacked", ss.spec.Import), ss.layer.Close())
	}
	err := ss.layer.Keep(ss.spec.Import)
	return err == nil, err
}

// keepChanges keeps what the session's jobs changed in the repository, if anything. No job of the session is left,
// and the caller holds layerMu.
func (ss *Session) keepChanges() (bool, error) {
	if !ss.changed() {
		ss.removeNames()
		return false, ss.layer.Close()
	}
	if err := ss.nameLayer(); err != nil {
		err = fmt.Errorf("the changes of session %s are lost: %w", ss.id, err)
		ss.m.Log.Error("changes are lost", "session", ss.id, "repo", ss.spec.Repo, "error", err)
		return false, errors.Join(err, ss.layer.Close())
	}
	err := ss.layer.Sync()
	if err != nil {
		err = fmt.Errorf("the changes of session %s are kept, but the last writes of its jobs may be missing: %w", ss.id, err)
	}
	return true, errors.Join(err, ss.layer.Close())
}

// changed reports whether jobs have changed the repository, or written objects to their copy of the git directory that it is a worktree
// of. What else git writes there, such as an index, is of no use without the session.
func (ss *Session) changed() bool {
	var st unix.Stat_t
	committed := unix.Lstat(filepath.Join(ss.layer.Path(), "common/upper/objects"), &st)
	return ss.layerHas("repo/upper") || committed == nil
}

// layerHas reports whether a directory of the layer has, or may have, entries: one that cannot be read is not treated
// as empty. Only a job examines the entries themselves.
func (ss *Session) layerHas(name string) bool {
	dir, err := os.Open(filepath.Join(ss.layer.Path(), name))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(1)
	return len(names) > 0 || !errors.Is(err, io.EOF)
}

// writeDescription writes the description of the layer that is about to be kept.
func (ss *Session) writeDescription() error {
	r := ss.jail.Repo()
	k := &keptLayer{
		ID: ss.id, Name: ss.spec.Name, UID: ss.peer.UID, Repo: r.Path, Dev: r.Dev, Ino: r.Ino, ReadOnly: r.ReadOnly, Share: ss.shares(),
		Profile: ss.profile, Network: ss.spec.Network,
		Opened: ss.opened, Kept: time.Now(), Disk: ss.spec.Disk, Inodes: ss.spec.Inodes,
	}
	if c := r.Common; c != nil {
		k.Common, k.CommonDev, k.CommonIno = []byte(c.Path), c.Dev, c.Ino
	}
	return ss.m.kept.write(k)
}
