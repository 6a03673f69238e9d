package sessions

import (
	"os"

	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/wire"
)

// MaxUserOpenings bounds the sessions being opened for one user over all connections, and MaxOpenings those of all
// users. Connections to sessions have the same bounds. They bound the threads and processes that a client's own file system
// can block. A single connection reaches its own maximum first, which makes it wait instead of failing.
const (
	MaxUserOpenings = 64
	MaxOpenings     = 512
)

// OpenAdmitted opens a session unless too many are being opened. This is checked before anything that the client
// named or passed is accessed.
func (m *Manager) OpenAdmitted(peer host.Peer, spec wire.Open, dir, common *os.File) (*Session, error) {
	if err := m.openings.begin(peer.Payer(), "sessions"); err != nil {
		return nil, err
	}
	defer m.openings.end(peer.Payer())
	return m.open(peer, spec, dir, common)
}

// CheckAdmitted is OpenAdmitted for a client that only asks whether it could have the session. It runs the same
// checks.
func (m *Manager) CheckAdmitted(peer host.Peer, spec wire.Open, dir, common *os.File) error {
	if err := m.openings.begin(peer.Payer(), "sessions"); err != nil {
		return err
	}
	defer m.openings.end(peer.Payer())
	return m.checkOpen(peer, spec, dir, common)
}

// openings counts what is being opened: sessions, or connections to them. The zero value is ready to use.
type openings struct {
	mu   fault.Mutex
	user map[uint32]int // guarded by mu
	all  int            // guarded by mu
}

// begin counts one more of what is being opened, or refuses it. The caller must call end.
func (o *openings) begin(uid uint32, what string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.user[uid]
	if n >= MaxUserOpenings || o.all >= MaxOpenings {
		r := sessionRefusal("too many %s are being opened at once: %d of yours, %d of all users", what, n, o.all)
		r.Hint = "try again when one is open"
		return r
	}
	if o.user == nil {
		o.user = map[uint32]int{}
	}
	o.user[uid]++
	o.all++
	return nil
}

func (o *openings) end(uid uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all--
	if o.user[uid]--; o.user[uid] == 0 {
		delete(o.user, uid)
	}
}
