package egress

import (
	"strings"
	"sync"

	"corral/egress/control"
	"corral/internal/text"
)

// maxShown bounds each text of a denial, in bytes.
const maxShown = 200

// A record has what a door was used for.
type record struct {
	up, down meter // bytes from the job, and to it

	mu sync.Mutex
	// The fields below are guarded by mu. They are of the time since the last report.
	connections, denied int64
	denials             []control.Denial
	lost                bool // a former process has counted, and did not report
}

// allow counts a connection.
func (r *record) allow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connections++
}

// deny counts a denial, and returns whether it is the first one with its name and port. A denial that is quiet is not counted
// again: clients look up several kinds of records of a name.
func (r *record) deny(d control.Denial, quiet bool) bool {
	// Text that is not UTF-8 becomes longer in JSON.
	d.Why, d.Allow = text.Cut(strings.ToValidUTF8(d.Why, "?"), maxShown), text.Cut(strings.ToValidUTF8(d.Allow, "?"), maxShown)
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := range r.denials {
		if known := &r.denials[n]; known.Name == d.Name && known.Port == d.Port {
			if !quiet {
				r.denied++
				known.Count++
			}
			return false
		}
	}
	r.denied++
	if len(r.denials) < control.MaxDenials {
		d.Count = 1
		r.denials = append(r.denials, d)
	}
	return true
}

// take returns what the door was used for since the last call.
func (r *record) take() control.Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := control.Summary{
		Connections: r.connections, Denied: r.denied, BytesUp: r.up.take(), BytesDown: r.down.take(), Denials: r.denials,
		Lost: r.lost,
	}
	r.connections, r.denied, r.denials, r.lost = 0, 0, nil, false
	return s
}

// take returns the bytes since the last call. The caller holds record.mu.
func (m *meter) take() int64 {
	total := m.total.Load()
	n := max(0, total-m.reported) // bytes that were counted are taken back if they are not sent
	m.reported += n
	return n
}
