package sessions

import (
	"os"

	"corral/isolate/host"
	"corral/isolate/wire"
)

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
	return ss.jail.Connect(q.Port, q.IPv6)
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
