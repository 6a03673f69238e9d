package isolate

import (
	"os"
	"sync"

	"corral/isolate/host"
	"corral/isolate/wire"
)

// maxUserOpenings bounds the sessions being opened for one user over all connections, and maxOpenings those of all
// users. They bound the threads and processes that a client's own file system can block. A single connection reaches
// its own maximum first, which makes it wait instead of failing.
const (
	maxUserOpenings = 64
	maxOpenings     = 512
)

// openAdmitted opens a session unless too many are being opened. This is checked before anything that the client
// named or passed is accessed.
func (m *manager) openAdmitted(peer host.Peer, spec wire.Open, dir, common *os.File) (*session, error) {
	if err := m.openings.begin(peer.Payer()); err != nil {
		return nil, err
	}
	defer m.openings.end(peer.Payer())
	return m.open(peer, spec, dir, common)
}

// checkAdmitted is openAdmitted for a client that only asks whether it could have the session. It runs the same
// checks.
func (m *manager) checkAdmitted(peer host.Peer, spec wire.Open, dir, common *os.File) error {
	if err := m.openings.begin(peer.Payer()); err != nil {
		return err
	}
	defer m.openings.end(peer.Payer())
	return m.checkOpen(peer, spec, dir, common)
}

// openings counts the sessions being opened. The zero value is ready to use.
type openings struct {
	mu   sync.Mutex
	user map[uint32]int // guarded by mu
	all  int            // guarded by mu
}

// begin counts one more session that is being opened, or refuses it. The caller must call end.
func (o *openings) begin(uid uint32) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.user[uid]
	if n >= maxUserOpenings || o.all >= maxOpenings {
		r := sessionRefusal("too many sessions are being opened at once: %d of yours, %d of all users", n, o.all)
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
