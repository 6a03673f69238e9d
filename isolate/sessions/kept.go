package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"corral/internal/lazyregexp"
	"corral/isolate/host"
	"corral/isolate/layer"
	"corral/job"
)

// The changes of a session with an overlay are kept in the state directory until they are discarded or expire:
//
//	DIR/layers/ID.layer    the file system
//	DIR/layers/ID.json     a keptLayer, written by the supervisor; ignored if the layer is missing
const (
	layerSuffix = ".layer"
	keptSuffix  = ".json"
	newSuffix   = ".new" // suffix of a description being written
)

// A keptLayer describes a kept layer: its owner, repository and limits.
type keptLayer struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	UID  uint32 `json:"uid"`
	Repo string `json:"repo"`
	// RepoBytes is Repo if it is not UTF-8: JSON replaces such bytes.
	RepoBytes []byte `json:"repoBytes,omitempty"`
	Dev       uint64 `json:"dev"`
	Ino       uint64 `json:"ino"`
	// Common is the path of the git directory that the repository is a worktree of; none: there is none, or jobs could not write there.
	Common    []byte `json:"common,omitempty"`
	CommonDev uint64 `json:"commonDev,omitempty"`
	CommonIno uint64 `json:"commonIno,omitempty"`
	// ReadOnly is set if the repository was passed from a read-only mount: changes cannot be applied to it.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Share is set if the session's jobs shared the home directory and /tmp, which are on the layer.
	Share   bool      `json:"share,omitempty"`
	Profile string    `json:"profile"`
	Network string    `json:"network,omitempty"` // see job.SessionSpec.Network
	Opened  time.Time `json:"opened"`
	Kept    time.Time `json:"kept"`
	Disk    int64     `json:"disk"`
	Inodes  int64     `json:"inodes"`
	used    int64     // bytes used on the host's disk
}

func (k *keptLayer) info() job.Session {
	return job.Session{
		ID: k.ID, Name: k.Name, Repo: k.Repo, Workspace: job.Overlay, Kept: true, UID: k.UID, Opened: k.Opened, Used: k.Kept,
		Disk: k.Disk, DiskUsed: k.used,
	}
}

var idPattern = lazyregexp.New(`^[0-9a-f]{32}$`)

// A keptStore has the layers that outlive their session.
type keptStore struct {
	dir       string
	store     *layer.Store
	retention time.Duration // how long a layer is kept; negative is forever
	log       *slog.Logger
}

func (ks *keptStore) path(name string) string { return filepath.Join(ks.dir, name) }

// load reads the description of a kept layer. The error is os.ErrNotExist if there is no such layer.
func (ks *keptStore) load(id string) (*keptLayer, error) {
	if !idPattern().MatchString(id) {
		return nil, os.ErrNotExist
	}
	var st unix.Stat_t
	if err := unix.Lstat(ks.path(id+layerSuffix), &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: id, Err: err}
	}
	b, err := os.ReadFile(ks.path(id + keptSuffix))
	if err != nil {
		return nil, err
	}
	k := &keptLayer{used: st.Blocks * 512}
	if err := json.Unmarshal(b, k); err != nil || k.ID != id {
		return nil, fmt.Errorf("kept layer %s: its description is broken: %w", id, err)
	}
	if k.RepoBytes != nil {
		k.Repo = string(k.RepoBytes)
	}
	return k, nil
}

// visibleTo reports whether a client may see the kept layer: users see their own, and root at a daemon's socket sees
// all. Embedded front-ends see the layers of all other embedded front-ends, because they need the repository's path;
// see mayUse.
func (k *keptLayer) visibleTo(peer host.Peer) bool {
	return k.UID == peer.UID || peer.UID == 0 && !peer.Embedded
}

// list lists the kept layers that a client may see.
func (ks *keptStore) list(peer host.Peer) []*keptLayer {
	entries, err := os.ReadDir(ks.dir)
	if err != nil {
		return nil
	}
	var list []*keptLayer
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), layerSuffix)
		if !ok {
			continue
		}
		k, err := ks.load(id)
		if err != nil {
			ks.log.Warn("kept layer not listed", "layer", id, "error", err)
			continue
		}
		if k.visibleTo(peer) {
			list = append(list, k)
		}
	}
	return list
}

// expireInterval is how often kept layers are checked for expiry.
const expireInterval = 24 * time.Hour

// expire runs expireOnce once per interval until ctx ends.
func (ks *keptStore) expire(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		ks.expireOnce()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// expireOnce removes kept layers older than Layers.Keep that are in use by no supervisor.
func (ks *keptStore) expireOnce() {
	for _, k := range ks.list(host.Peer{}) {
		if time.Since(k.Kept) <= ks.retention {
			continue
		}
		err := ks.store.RemoveUnused(k.ID + layerSuffix)
		if errors.Is(err, layer.ErrInUse) {
			continue
		}
		if err == nil {
			err = ks.forget(k.ID)
		}
		ks.log.Info("kept layer removed", "layer", k.ID, "repo", k.Repo, "kept", k.Kept, "error", err)
	}
}

// drop removes a kept layer. A session that has it open keeps it until the session ends.
func (ks *keptStore) drop(id string) error {
	return errors.Join(ks.store.Remove(id+layerSuffix), ks.forget(id))
}

func (ks *keptStore) forget(id string) error {
	var err error
	if e := os.Remove(ks.path(id + keptSuffix)); e != nil && !errors.Is(e, os.ErrNotExist) {
		err = e
	}
	return err
}

// write writes a description atomically.
func (ks *keptStore) write(k *keptLayer) error {
	if !utf8.ValidString(k.Repo) {
		k.RepoBytes = []byte(k.Repo)
	}
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	path := ks.path(k.ID + keptSuffix)
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

// renew restarts the retention time of a kept layer, unless the layer was removed in the meantime.
func (ks *keptStore) renew(id string) error {
	k, err := ks.load(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	k.Kept = time.Now()
	return ks.write(k)
}
