package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/layer"
	"corral/isolate/wire"
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
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
	// ReadOnly is set if the repository was passed from a read-only mount: changes cannot be applied to it.
	ReadOnly bool      `json:"readOnly,omitempty"`
	Profile  string    `json:"profile"`
	Opened   time.Time `json:"opened"`
	Kept     time.Time `json:"kept"`
	Disk     int64     `json:"disk"`
	Inodes   int64     `json:"inodes"`
	used     int64     // bytes used on the host's disk
}

func (k *keptLayer) info() job.Session {
	return job.Session{
		ID: k.ID, Name: k.Name, Repo: k.Repo, Workspace: job.Overlay, Kept: true, UID: k.UID, Opened: k.Opened, Used: k.Kept,
		Disk: k.Disk, DiskUsed: k.used,
	}
}

var idPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

func (s *Supervisor) keptPath(name string) string { return filepath.Join(s.layersDir(), name) }

func (s *Supervisor) layersDir() string { return filepath.Join(s.config.StateDir, "layers") }

// loadKept reads the description of a kept layer. The error is os.ErrNotExist if there is no such layer.
func (s *Supervisor) loadKept(id string) (*keptLayer, error) {
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
	k := &keptLayer{used: st.Blocks * 512}
	if err := json.Unmarshal(b, k); err != nil || k.ID != id {
		return nil, fmt.Errorf("kept layer %s: its description is broken: %w", id, err)
	}
	return k, nil
}

// visibleTo reports whether a client may see the kept layer: users see their own, and root at a daemon's socket sees
// all. Embedded front-ends see the layers of all other embedded front-ends, because they need the repository's path;
// see mayUse.
func (k *keptLayer) visibleTo(peer host.Peer) bool {
	return k.UID == peer.UID || peer.UID == 0 && !peer.Embedded
}

// mayUse reports whether a client may resume or remove the kept layer. Any sudo user can be behind an embedded
// front-end: it may only if root started its supervisor for the repository.
func (s *Supervisor) mayUse(peer host.Peer, k *keptLayer) bool {
	return k.visibleTo(peer) && (!peer.Embedded || s.served.ServesTo(peer, k.Repo))
}

// serveKept serves the repository of the kept layer that root named on the command line, if it exists and was left by
// an embedded front-end.
func (s *Supervisor) serveKept(id string) error {
	if id == "" {
		return nil
	}
	k, err := s.loadKept(id)
	if errors.Is(err, os.ErrNotExist) || err == nil && !k.visibleTo(host.Peer{Embedded: true}) {
		return nil // a client that requests it receives the reason
	}
	if err != nil {
		return err
	}
	s.served.Add(k.Repo, host.Inode{Dev: k.Dev, Ino: k.Ino})
	return nil
}

// keptOf lists the kept layers that a client may see.
func (s *Supervisor) keptOf(peer host.Peer) []*keptLayer {
	entries, err := os.ReadDir(s.layersDir())
	if err != nil {
		return nil
	}
	var list []*keptLayer
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
		if k.visibleTo(peer) {
			list = append(list, k)
		}
	}
	return list
}

// expireInterval is how often kept layers are checked for expiry.
const expireInterval = 24 * time.Hour

// expire runs expireKept once per interval until the supervisor ends.
func (s *Supervisor) expire(interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		s.expireKept()
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// expireKept removes kept layers older than Layers.Keep that are in use by no supervisor.
func (s *Supervisor) expireKept() {
	for _, k := range s.keptOf(host.Peer{}) {
		if time.Since(k.Kept) <= s.config.Layers.Keep {
			continue
		}
		err := s.layers.RemoveUnused(k.ID + layerSuffix)
		if errors.Is(err, layer.ErrInUse) {
			continue
		}
		if err == nil {
			err = s.forgetKept(k.ID)
		}
		s.config.Log.Info("kept layer removed", "layer", k.ID, "repo", k.Repo, "kept", k.Kept, "error", err)
	}
}

// dropKept removes a kept layer. A session that has it open keeps it until the session ends.
func (s *Supervisor) dropKept(id string) error {
	return errors.Join(s.layers.Remove(id+layerSuffix), s.forgetKept(id))
}

func (s *Supervisor) forgetKept(id string) error {
	var err error
	if e := os.Remove(s.keptPath(id + keptSuffix)); e != nil && !errors.Is(e, os.ErrNotExist) {
		err = e
	}
	return err
}

// removeKept removes a kept layer on behalf of a client.
func (s *Supervisor) removeKept(peer host.Peer, id string) error {
	k, err := s.loadKept(id)
	if errors.Is(err, os.ErrNotExist) || err == nil && !s.mayUse(peer, k) {
		return noSession(id)
	}
	if err != nil {
		return err
	}
	return s.dropKept(id)
}

// roomToKeep refuses another overlay session to a user with the maximum of kept layers.
func (s *Supervisor) roomToKeep(peer host.Peer) error {
	n := 0
	for _, k := range s.keptOf(host.Peer{}) {
		if s.subuids.PayerOf(k.UID) == peer.Payer() {
			n++
		}
	}
	if n < job.MaxKeptLayers {
		return nil
	}
	return &job.Refusal{
		Step: "session", Message: fmt.Sprintf("%d layers with your changes are kept, which is the maximum", n),
		Hint: "apply or discard some: corral session list, corral changes",
	}
}

// resume opens a session on a kept layer, if its repository is still served to the client. The caller must call
// leave.
func (s *Supervisor) resume(peer host.Peer, id string) (*session, error) {
	k, err := s.loadKept(id)
	if errors.Is(err, os.ErrNotExist) || err == nil && !k.visibleTo(peer) {
		return nil, noSession(id)
	}
	if err != nil {
		return nil, err
	}
	r, err := s.served.ServesAgain(peer, k.Repo, host.Inode{Dev: k.Dev, Ino: k.Ino}, k.ReadOnly)
	if err != nil {
		return nil, err
	}
	ss := &session{
		s: s, id: id, from: id, peer: host.Peer{UID: k.UID, Holder: s.subuids.Holder(k.UID), Embedded: peer.Embedded}, opened: k.Opened, used: time.Now(),
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

// resumedIdle is how long a kept layer stays mounted without requests.
const resumedIdle = 10 * time.Second

// diskKept returns the disk space of the kept layers charged to a user, without those that are open.
func (s *Supervisor) diskKept(payer uint32) int64 {
	list := slices.DeleteFunc(s.keptOf(host.Peer{}), func(k *keptLayer) bool { return s.subuids.PayerOf(k.UID) != payer })
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum int64
	for _, k := range list {
		if s.sessions[k.ID] == nil {
			sum += k.used
		}
	}
	return sum
}

// Layers configures the layers of sessions.
type Layers struct {
	Disk, Inodes       int64         // defaults; 0 is job.DefaultLayerDisk and job.DefaultLayerInodes
	MaxDisk, MaxInodes int64         // maximums per session; 0 is 64 GiB and 10 million
	Idle, MaxIdle      time.Duration // default and maximum idle timeout; 0 is job.DefaultSessionIdle and a day
	Keep               time.Duration // how long the layer of an ended session is kept; 0 is a week, negative is forever
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
		return fmt.Errorf("layer sizes: default %s, maximum %s; both must be from %s to %s, the default at most the maximum", job.FormatSize(l.Disk), job.FormatSize(l.MaxDisk),
			job.FormatSize(layer.MinBytes), job.FormatSize(layer.MaxBytes))
	}
	return nil
}
