package sessions

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// maxHeld is the maximum number of sessions of a user that have ended and whose network namespaces last, because a client
// holds sockets of them. Each takes some 300 KiB of kernel memory, most of which is charged to no group.
const maxHeld = 16

// Connect begins a connection to a port of an open session that peer may run jobs in. It does not resume a kept layer:
// nothing runs there. A session is not idle while clients connect to it.
func (m *Manager) Connect(peer host.Peer, q wire.Connect) (*os.File, error) {
	if err := m.connects.begin(peer.Payer(), "connections"); err != nil {
		return nil, err
	}
	defer m.connects.end(peer.Payer())
	ss := m.openTo(peer, q.ID)
	if ss == nil || !ss.use() {
		return nil, noSession(q.ID)
	}
	defer ss.leave()
	if err := m.held.check(ss.peer.Payer()); err != nil {
		return nil, err
	}
	f, err := ss.jail.Connect(q.Port, q.IPv6)
	if err != nil {
		return nil, err
	}
	if err := ss.network.mark(f); err != nil {
		f.Close() // nobody else has it
		return nil, fmt.Errorf("session %s: %w", ss.id, err)
	}
	return f, nil
}

// openTo returns an open session that peer may run jobs in, or nil.
func (m *Manager) openTo(peer host.Peer, id string) *Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ss := m.all[id]; ss != nil && ss.of(peer) && ss.jail.IsBuilt() {
		return ss
	}
	return nil
}

// Ports returns the ports of an open session at which processes listen. The session can be idle meanwhile.
func (m *Manager) Ports(peer host.Peer, id string) (wire.PortList, error) {
	if err := m.connects.begin(peer.Payer(), "connections"); err != nil {
		return wire.PortList{}, err
	}
	defer m.connects.end(peer.Payer())
	ss := m.openTo(peer, id)
	if ss == nil {
		return wire.PortList{}, noSession(id)
	}
	ports, more, err := ss.jail.Ports()
	return wire.PortList{Ports: ports, More: more}, err
}

// A sessionNetwork is the network namespace of a session's jobs, as far as clients have sockets of it.
type sessionNetwork struct {
	mu     sync.Mutex
	marked bool  // guarded by mu
	id     int32 // guarded by mu: see host.MarkNetwork
}

func (n *sessionNetwork) mark(socket *os.File) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.marked {
		n.id, err = host.MarkNetwork(socket)
		n.marked = err == nil
	}
	return err
}

// heldNetworks are the network namespaces of ended sessions that clients hold, by the payer of the session. The zero value is
// ready to use.
type heldNetworks struct {
	mu   fault.Mutex
	user map[uint32][]int32 // guarded by mu
}

// add records the network of a session that has ended, if clients had sockets of it.
func (h *heldNetworks) add(payer uint32, n *sessionNetwork) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.marked {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.user == nil {
		h.user = map[uint32][]int32{}
	}
	for user, list := range h.user { // the kernel gives an id again only if the namespace that had it is gone
		h.user[user] = slices.DeleteFunc(list, func(id int32) bool { return id == n.id })
	}
	h.user[payer] = append(h.user[payer], n.id)
	h.forget(payer)
}

// forget drops the networks of a payer that are gone, and returns how many are left. The caller holds h.mu.
func (h *heldNetworks) forget(payer uint32) int {
	h.user[payer] = slices.DeleteFunc(h.user[payer], host.NetworkGone)
	n := len(h.user[payer])
	if n == 0 {
		delete(h.user, payer)
	}
	return n
}

// check refuses a connection to a user who holds too many networks.
func (h *heldNetworks) check(payer uint32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.user[payer]) < maxHeld {
		return nil
	}
	n := h.forget(payer)
	if n < maxHeld {
		return nil
	}
	return &job.Refusal{
		Step: "connect", Message: fmt.Sprintf("clients of yours hold connections to %d sessions that have ended, and the maximum is %d", n, maxHeld),
		Hint: "end the programs that have them: corral session forward, corral serve",
	}
}
