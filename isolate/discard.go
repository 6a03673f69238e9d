package isolate

import (
	"sync"
	"time"

	"corral/isolate/inside"
	"corral/isolate/wire"
)

// To close a connection closes what its client has sent and nobody has received, which can take as long as the client wants it to:
// the last descriptor of a mount of its own, a socket that lingers. A process that ends does that without a thread of the
// supervisor's. So sockets of which messages are left are passed to helpers, many to one, which end.

const (
	// maxDiscards is how many sockets wait to be passed on. Who has one more waits.
	maxDiscards = 1024
	// discardBatch is how many sockets one helper takes with it.
	discardBatch = 64
	// maxEnding is how many of these helpers may have been told to end and not have ended. From there on helpers are not told to,
	// and hold what they get until the supervisor ends.
	maxEnding = 16
	// maxHeld is what such a helper holds, below its limit of descriptors, and maxHolders how many there are. What is beyond
	// stays open here.
	maxHeld    = 900
	maxHolders = 16
)

// A discarder closes connections of which messages were not received.
type discarder struct {
	probes *prober

	mu      sync.Mutex
	room    sync.Cond    // of mu
	waiting []*wire.Conn // guarded by mu
	busy    bool         // guarded by mu: a goroutine takes from waiting
	ending  int          // guarded by mu: helpers that were told to end and have not
	started int          // guarded by mu: helpers that there were

	holders []*probeHelper // the busy goroutine's, and close's
	held    int            // by the last of them
	left    []*wire.Conn   // likewise: those that nobody could take
}

func (d *discarder) begin(p *prober) { d.probes, d.room.L = p, &d.mu }

// add takes over a connection.
func (d *discarder) add(conn *wire.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.waiting) >= maxDiscards {
		d.room.Wait()
	}
	d.waiting = append(d.waiting, conn)
	if !d.busy {
		d.busy = true
		go d.work()
	}
}

// work passes on what waits, until nothing does.
func (d *discarder) work() {
	for {
		d.mu.Lock()
		n := min(len(d.waiting), discardBatch)
		batch := d.waiting[:n:n]
		d.waiting = d.waiting[n:]
		full := d.ending >= maxEnding
		if n == 0 {
			d.busy = false
		}
		d.room.Broadcast()
		d.mu.Unlock()
		switch {
		case n == 0:
			return
		case full:
			d.hold(batch)
		default:
			d.end(batch)
		}
	}
}

// start starts a helper, nil if none can be.
func (d *discarder) start() *probeHelper {
	h, err := d.probes.start()
	if err != nil {
		d.probes.log.Warn("no process to close connections", "error", err)
		return nil
	}
	d.mu.Lock()
	d.started++
	d.mu.Unlock()
	return h
}

// end passes connections to a helper that ends.
func (d *discarder) end(batch []*wire.Conn) {
	h := d.start()
	if h == nil {
		d.left = append(d.left, batch...)
		return
	}
	for _, conn := range batch {
		d.pass(h, conn)
	}
	d.mu.Lock()
	d.ending++
	d.mu.Unlock()
	d.probes.kill(h, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ending--
	})
}

// hold passes connections to a helper that stays.
func (d *discarder) hold(batch []*wire.Conn) {
	if len(d.holders) == 0 || d.held+len(batch) > maxHeld {
		h := (*probeHelper)(nil)
		if len(d.holders) < maxHolders {
			h = d.start()
		}
		if h == nil {
			d.left = append(d.left, batch...)
			return
		}
		d.holders, d.held = append(d.holders, h), 0
	}
	for _, conn := range batch {
		d.pass(d.holders[len(d.holders)-1], conn)
		d.held++
	}
}

// pass has a helper hold a connection's socket, which is closed here then: not as the last one. One that cannot be passed stays.
func (d *discarder) pass(h *probeHelper, conn *wire.Conn) {
	h.conn.SetDeadline(time.Now().Add(slotPatience))
	err := conn.Hand(func(socket int) error {
		return h.conn.SendDescriptors(inside.Probe{Kind: inside.ProbeHold}.Append(), socket)
	})
	if err != nil {
		d.left = append(d.left, conn)
		return
	}
	conn.Close()
}

// close ends the helpers that hold something. Nothing is added any more.
func (d *discarder) close() {
	d.mu.Lock()
	for d.busy {
		d.room.Wait()
	}
	d.mu.Unlock()
	for _, h := range d.holders {
		d.probes.kill(h, func() {})
	}
}
