package sessions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"time"

	"corral/internal/fault"
	"corral/isolate/admit"
	"corral/isolate/cell"
	"corral/isolate/host"
	"corral/isolate/layer"
	"corral/isolate/wire"
	"corral/job"
)

// Config is the configuration of the sessions of a supervisor.
type Config struct {
	Context  context.Context // ends with the supervisor
	Work     *host.Work      // what the supervisor waits for when it ends
	Dir      string          // the instance's directory
	StateDir string          // directory of kept layers and images
	Layers   Layers          // defaults and maximums
	Jails    *cell.Jails
	// Admitting refuses a session because no new work is taken at present. It is called concurrently; nil admits all.
	Admitting func() error
	// Network returns what the jobs of a new session have that may reach hosts.
	Network func(host.Peer, admit.Access) (cell.Network, error)
	Served  *admit.Current
	Userns  *host.UsernsMaker
	Subuids *host.Subordinates
	Log     *slog.Logger
}

// A Manager has the sessions of a supervisor's clients: open ones, and layers that outlived theirs.
type Manager struct {
	Config
	layers   *layer.Store
	kept     *keptStore
	images   *images
	openings openings
	connects openings       // connections to sessions
	expiring sync.WaitGroup // the goroutine that expires kept layers
	stop     context.CancelFunc

	mu     fault.Mutex
	all    map[string]*Session // guarded by mu: open ones, by id
	limits Layers              // guarded by mu: defaults and maximums for sessions that are opened from now on
}

// New opens the stores of layers and of images, and starts the expiry of kept layers. The caller must call close.
func New(c Config) (*Manager, error) {
	m := &Manager{Config: c, all: map[string]*Session{}, limits: c.Layers}
	for _, dir := range []string{"layers", "images"} {
		if err := host.MakeDir(filepath.Join(m.Dir, dir)); err != nil {
			return nil, err
		}
	}
	var err error
	dir := filepath.Join(m.StateDir, "layers")
	if m.layers, err = layer.Open(dir, layer.Options{Reserve: m.Layers.Reserve, Log: m.Log}); err != nil {
		return nil, err
	}
	m.kept = &keptStore{dir: dir, store: m.layers, retention: m.Layers.Keep, log: m.Log}
	path := filepath.Join(m.StateDir, "images")
	store, err := layer.Open(path, layer.Options{}, m.layers)
	if err != nil {
		return nil, errors.Join(err, m.layers.Close())
	}
	m.images = &images{store: store, dir: filepath.Join(m.Dir, "images"), path: path, open: map[string]*image{}}
	for _, store := range []*layer.Store{m.layers, store} {
		if n, err := store.Sweep(); n > 0 || err != nil { // if it fails there is only less room
			m.Log.Warn("detached loop devices that a killed supervisor left", "detached", n, "error", err)
		}
	}
	ctx, stop := context.WithCancel(m.Context)
	m.stop = stop
	if m.Layers.Keep > 0 {
		m.expiring.Go(func() { m.kept.expire(ctx, expireInterval) })
	}
	return m, nil
}

// Adjust changes the defaults and maximums for sessions that are opened from now on. Layers.Keep stays as it was.
func (m *Manager) Adjust(l Layers) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limits = l
}

// bounds returns the defaults and maximums for a session that is opened now.
func (m *Manager) bounds() Layers {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.limits
}

// Close closes the stores. No session is open any more.
func (m *Manager) Close() error {
	m.stop()
	m.expiring.Wait()
	return errors.Join(m.images.store.Close(), m.layers.Close())
}

// sessionOf returns a session that peer may use: an open one, or a new one that resumes a kept layer. The caller must
// call leave.
func (m *Manager) sessionOf(peer host.Peer, id string) (*Session, error) {
	ss := m.find(id)
	if ss == nil {
		return m.resume(peer, id)
	}
	if !ss.of(peer) || ss.jail.AwaitBuilt() != nil || !ss.use() {
		return nil, noSession(id)
	}
	return ss, nil
}

// find returns the open session with an id, or nil.
func (m *Manager) find(id string) *Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[id]
}

// SessionsOf lists the sessions of a client's user, or all for root: open ones and kept layers.
func (m *Manager) SessionsOf(peer host.Peer) []job.Session {
	var open []*Session
	busy := map[string]bool{}
	fault.With(&m.mu, func() {
		for _, ss := range m.all {
			busy[ss.id], busy[ss.from] = true, true // a session that is being ended may have its name on the layer already
			if ss.of(peer) && ss.jail.IsBuilt() {
				open = append(open, ss)
			}
		}
	})
	var list []job.Session
	for _, ss := range open {
		list = append(list, ss.Info())
	}
	for _, k := range m.kept.list(peer) {
		if !busy[k.ID] {
			list = append(list, k.info())
		}
	}
	sort.Slice(list, func(i, k int) bool { return list[i].Opened.Before(list[k].Opened) })
	return list
}

// CloseSession ends a session of peer's, or removes a kept layer of peer's.
func (m *Manager) CloseSession(peer host.Peer, id string, keep bool) (bool, error) {
	ss := m.find(id)
	if ss == nil && !keep {
		return false, m.removeKept(peer, id)
	}
	if ss == nil || !ss.of(peer) || ss.jail.AwaitBuilt() != nil {
		return false, noSession(id)
	}
	return ss.end(keep)
}

// roomToKeep refuses another overlay session to a user with the maximum of kept layers.
func (m *Manager) roomToKeep(peer host.Peer) error {
	n := 0
	for _, k := range m.kept.list(host.Peer{}) {
		if m.Subuids.PayerOf(k.UID) == peer.Payer() {
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
func (m *Manager) resume(peer host.Peer, id string) (*Session, error) {
	k, err := m.kept.load(id)
	if errors.Is(err, os.ErrNotExist) || err == nil && !k.visibleTo(peer) {
		return nil, noSession(id)
	}
	if err != nil {
		return nil, err
	}
	r, err := m.Served.Now().ServesAgain(peer, k.Repo, host.Inode{Dev: k.Dev, Ino: k.Ino}, k.ReadOnly)
	if err != nil {
		return nil, err
	}
	if len(k.Common) > 0 {
		r.Common = m.Served.Now().CommonAgain(peer, string(k.Common), host.Inode{Dev: k.CommonDev, Ino: k.CommonIno}, r)
	}
	flags := uint32(wire.FlagOverlay | wire.OpenLasting)
	if k.Share {
		flags |= wire.OpenShare
	}
	ss := &Session{
		m: m, id: id, from: id, peer: host.Peer{UID: k.UID, Holder: m.Subuids.Holder(k.UID), Embedded: peer.Embedded}, opened: k.Opened,
		used:      time.Now(),
		workspace: job.Overlay, profile: k.Profile, idle: resumedIdle, keep: true,
		spec: wire.Open{Flags: flags, Disk: k.Disk, Inodes: k.Inodes, Name: k.Name, Repo: k.Repo, Profile: k.Profile, Network: k.Network},
	}
	if ss, err = m.start(ss, r); err != nil {
		return nil, err
	}
	if !ss.of(peer) || !ss.use() {
		return nil, noSession(id)
	}
	return ss, nil
}

// diskKept returns the disk space of the kept layers charged to a user, without those that are open.
func (m *Manager) diskKept(payer uint32) int64 {
	list := slices.DeleteFunc(m.kept.list(host.Peer{}), func(k *keptLayer) bool { return m.Subuids.PayerOf(k.UID) != payer })
	m.mu.Lock()
	defer m.mu.Unlock()
	var sum int64
	for _, k := range list {
		if m.all[k.ID] == nil {
			sum += k.used
		}
	}
	return sum
}

// ServeKept serves the repository of the kept layer that root named on the command line, if it exists and was left by
// an embedded front-end.
func (m *Manager) ServeKept(id string) error {
	if id == "" {
		return nil
	}
	k, err := m.kept.load(id)
	if errors.Is(err, os.ErrNotExist) || err == nil && !k.visibleTo(host.Peer{Embedded: true}) {
		return nil // a client that requests it receives the reason
	}
	if err != nil {
		return err
	}
	m.Served.Now().Add(k.Repo, host.Inode{Dev: k.Dev, Ino: k.Ino})
	return nil
}

// removeKept removes a kept layer on behalf of a client.
func (m *Manager) removeKept(peer host.Peer, id string) error {
	k, err := m.kept.load(id)
	if errors.Is(err, os.ErrNotExist) || err == nil && !m.mayUse(peer, k) {
		return noSession(id)
	}
	if err != nil {
		return err
	}
	return m.kept.drop(id)
}

// mayUse reports whether a client may resume or remove the kept layer. Any sudo user can be behind an embedded
// front-end: it may only if root started its supervisor for the repository.
func (m *Manager) mayUse(peer host.Peer, k *keptLayer) bool {
	return k.visibleTo(peer) && (!peer.Embedded || m.Served.Now().ServesTo(peer, k.Repo))
}

// resumedIdle is how long a kept layer stays mounted without requests.
const resumedIdle = 10 * time.Second

// ListImages lists the root file systems, sorted by name.
func (m *Manager) ListImages() ([]job.Image, error) { return m.images.list() }

// RemoveImage removes an image on behalf of a client.
func (m *Manager) RemoveImage(peer host.Peer, name string) error {
	if !peer.MayManage() {
		return onlyRoot("remove a root file system")
	}
	if job.CheckImageName(name) != nil || !m.images.has(name) {
		return noImage(name)
	}
	return m.images.remove(name)
}
