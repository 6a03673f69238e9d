package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/layer"
	"corral/isolate/wire"
	"corral/job"
)

// What is kept of a session with an overlay lies in the state directory, until it is discarded or too old:
//
//	DIR/layers/ID.layer    the file system
//	DIR/layers/ID.json     a kept, made by the supervisor; without the layer it means nothing
const (
	layerSuffix = ".layer"
	keptSuffix  = ".json"
)

// A kept says whose a kept layer is, and what of.
type kept struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	UID     uint32    `json:"uid"`
	Repo    string    `json:"repo"`
	Dev     uint64    `json:"dev"`
	Ino     uint64    `json:"ino"`
	Profile string    `json:"profile"`
	Opened  time.Time `json:"opened"`
	Kept    time.Time `json:"kept"`
	Disk    int64     `json:"disk"`
	Inodes  int64     `json:"inodes"`
	used    int64     // bytes of the host's disk
}

func (k *kept) words() job.Session {
	return job.Session{
		ID: k.ID, Name: k.Name, Repo: k.Repo, Workspace: job.Overlay, Kept: true, UID: k.UID, Opened: k.Opened, Used: k.Kept,
		Disk: k.Disk, DiskUsed: k.used,
	}
}

var idPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

func (s *Supervisor) keptPath(name string) string { return filepath.Join(s.layersDir(), name) }

func (s *Supervisor) layersDir() string { return filepath.Join(s.config.StateDir, "layers") }

// loadKept reads what is known of a kept layer.
func (s *Supervisor) loadKept(id string) (*kept, error) {
	if !idPattern.MatchString(id) {
		return nil, os.ErrNotExist
	}
	var st unix.Stat_t
	if err := unix.Lstat(s.keptPath(id+layerSuffix), &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: id, Err: err}
	}
	b, err := os.ReadFile(s.keptPath(id + keptSuffix))
	if err != nil {
		return nil, err
	}
	k := &kept{used: st.Blocks * 512}
	if err := json.Unmarshal(b, k); err != nil || k.ID != id {
		return nil, fmt.Errorf("kept layer %s: its description is broken: %w", id, err)
	}
	return k, nil
}

// ofPeer says whether a client may use what was kept: its own, and root everything. What front-ends of root itself left is
// for those.
func (k *kept) ofPeer(peer Peer) bool { return k.UID == peer.UID || peer.UID == 0 && !peer.Embedded }

// keptOf lists the kept layers that a client may use.
func (s *Supervisor) keptOf(peer Peer) []*kept {
	entries, err := os.ReadDir(s.layersDir())
	if err != nil {
		return nil
	}
	var list []*kept
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), layerSuffix)
		if !ok {
			continue
		}
		k, err := s.loadKept(id)
		if err != nil {
			s.config.Log.Warn("kept layer not listed", "layer", id, "error", err)
			continue
		}
		if k.ofPeer(peer) {
			list = append(list, k)
		}
	}
	return list
}

// expireKept removes what was kept for its time.
func (s *Supervisor) expireKept() {
	for _, k := range s.keptOf(Peer{}) {
		if time.Since(k.Kept) > s.config.Layers.Keep {
			err := s.dropKept(k.ID)
			s.config.Log.Info("kept layer removed", "layer", k.ID, "repo", k.Repo, "kept", k.Kept, "error", err)
		}
	}
}

// dropKept removes a kept layer. A session that goes on with it keeps it open, and has it until its end.
func (s *Supervisor) dropKept(id string) error {
	err := s.layers.Remove(id + layerSuffix)
	if e := os.Remove(s.keptPath(id + keptSuffix)); e != nil && !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}

// removeKept removes a kept layer for a client.
func (s *Supervisor) removeKept(peer Peer, id string) error {
	k, err := s.loadKept(id)
	if errors.Is(err, os.ErrNotExist) || err == nil && !k.ofPeer(peer) {
		return noSession(id)
	}
	if err != nil {
		return err
	}
	return s.dropKept(id)
}

// maxKept is how many layers of one user are kept: each may be as large as a layer gets.
const maxKept = 64

// roomToKeep refuses one more overlay to a user who has as many kept as there may be.
func (s *Supervisor) roomToKeep(peer Peer) error {
	n := 0
	for _, k := range s.keptOf(Peer{}) {
		if k.UID == peer.UID {
			n++
		}
	}
	if n < maxKept {
		return nil
	}
	return &job.Refusal{
		Step: "session", Message: fmt.Sprintf("%d layers with changes of yours are kept, which is the most", n),
		Hint: "apply or discard some: corral session list, corral changes",
	}
}

// resume opens a session that goes on with a kept layer, for a client that the repository is still served to. The caller
// must leave it.
func (s *Supervisor) resume(peer Peer, id string) (*session, error) {
	k, err := s.loadKept(id)
	if errors.Is(err, os.ErrNotExist) || err == nil && !k.ofPeer(peer) {
		return nil, noSession(id)
	}
	if err != nil {
		return nil, err
	}
	r, err := s.servesKept(peer, k)
	if err != nil {
		return nil, err
	}
	ss := &session{
		s: s, id: id, from: id, peer: Peer{UID: k.UID, Embedded: peer.Embedded}, opened: k.Opened, used: time.Now(),
		workspace: job.Overlay, profile: k.Profile, idle: resumedIdle, keep: true,
		spec: wire.Open{Flags: wire.FlagOverlay | wire.OpenLasting, Disk: k.Disk, Inodes: k.Inodes, Name: k.Name, Repo: k.Repo, Profile: k.Profile},
	}
	if ss, err = s.start(ss, r); err != nil {
		return nil, err
	}
	if !ss.of(peer) || !ss.use() {
		return nil, noSession(id)
	}
	return ss, nil
}

// resumedIdle is how long a kept layer stays mounted that nobody asks anything of.
const resumedIdle = 10 * time.Second

// servesKept pins the repository of a kept layer, if it is still served to the client; what root's own front-ends kept, root
// served then.
func (s *Supervisor) servesKept(peer Peer, k *kept) (*repo, error) {
	if err := s.checkPath(k.Repo); err != nil {
		return nil, err
	}
	r, err := pin(k.Repo, k.Dev, k.Ino)
	if err != nil {
		return nil, err
	}
	if s.config.servesTo(peer, k.Repo) || peer.UID == 0 || s.config.Own && r.uid == peer.UID {
		return r, nil
	}
	r.close()
	return nil, notServed(k.Repo)
}

// closeLayer unmounts the session's layer, and keeps or removes it.
func (ss *session) closeLayer() (bool, error) {
	ss.mu.Lock()
	keep := ss.keep
	ss.mu.Unlock()
	switch {
	case ss.imports() && keep:
		err := ss.layer.Keep(ss.spec.Import)
		return err == nil, err
	case ss.from != "":
		err := ss.layer.Close()
		if !keep {
			err = errors.Join(err, ss.s.dropKept(ss.from))
		}
		return keep, err
	case keep && ss.workspace == job.Overlay && ss.changed():
		err := ss.describe()
		if err == nil {
			return true, ss.layer.Keep(ss.id + layerSuffix)
		}
		return false, errors.Join(err, ss.layer.Close())
	}
	return false, ss.layer.Close()
}

// changed says whether the overlay has anything on it. What it is, only a job looks at.
func (ss *session) changed() bool {
	dir, err := os.Open(filepath.Join(ss.layer.Path(), "repo", "upper"))
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
	b, err := json.Marshal(kept{
		ID: ss.id, Name: ss.spec.Name, UID: ss.peer.UID, Repo: r.path, Dev: r.dev, Ino: r.ino, Profile: ss.profile,
		Opened: ss.opened, Kept: time.Now(), Disk: ss.spec.Disk, Inodes: ss.spec.Inodes,
	})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(ss.s.keptPath(ss.id+keptSuffix), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

// Layers says what sessions may have.
type Layers struct {
	Disk, Inodes       int64         // of a session that asks for none; 0 is job.DefaultLayerDisk and job.DefaultLayerInodes
	MaxDisk, MaxInodes int64         // the most a session may ask for; 0 is 64 GiB and 10 million
	Idle, MaxIdle      time.Duration // of a session that asks for none, and the most; 0 is job.DefaultSessionIdle and a day
	Keep               time.Duration // how long the layer of an ended session is kept; 0 is a week
}

func (l *Layers) complete() error {
	for field, value := range map[*int64]int64{
		&l.Disk: job.DefaultLayerDisk, &l.Inodes: job.DefaultLayerInodes, &l.MaxDisk: 64 << 30, &l.MaxInodes: 10_000_000,
	} {
		if *field == 0 {
			*field = value
		}
	}
	for field, value := range map[*time.Duration]time.Duration{
		&l.Idle: job.DefaultSessionIdle, &l.MaxIdle: 24 * time.Hour, &l.Keep: 7 * 24 * time.Hour,
	} {
		if *field == 0 {
			*field = value
		}
	}
	if l.Disk < layer.MinBytes || l.Disk > l.MaxDisk || l.MaxDisk > layer.MaxBytes {
		return fmt.Errorf("layers of %d bytes, at most %d: from %d to %d", l.Disk, l.MaxDisk, int64(layer.MinBytes), int64(layer.MaxBytes))
	}
	return nil
}
