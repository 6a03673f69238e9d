package cell

import (
	"os"
	"sync"
	"sync/atomic"

	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/inside"
)

// A Network is what the jobs of a jail have besides a loopback interface. The zero Network is nothing.
type Network struct {
	Door bool // they may reach hosts, through a door
	// Authority is the certificate, in PEM, of the authority that they trust; empty: none. Only jobs with a door have one.
	Authority []byte
}

// A Door answers for hosts outside in the network namespace of a job, or of the jobs of a session.
type Door interface {
	// Report returns what the jobs have reached through the door since it was opened or last asked, see wire.Result.Network.
	Report() string
	// Close closes the door, and returns its last report.
	Close() string
}

// A sharedDoor is the door of a session whose jobs share a network namespace. Its first job opens it.
type sharedDoor struct {
	listener uint64 // host.Cookie of the name server's listener

	mu      sync.Mutex
	sockets []*os.File // guarded by mu
	open    Door       // guarded by mu: nil before
}

// use opens the door unless it is open.
func (d *sharedDoor) use(open func(sockets []*os.File) (Door, error)) (Door, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open != nil {
		return d.open, nil
	}
	door, err := open(d.sockets)
	if err == nil {
		d.open = door
	}
	return door, err
}

// close ends the door with its session, and returns its sockets.
func (d *sharedDoor) close() []*os.File {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open != nil {
		d.open.Close()
	}
	return d.sockets
}

// lateDoors are the doors of a session's jail that was built when its jobs could reach no host.
type lateDoors struct {
	open atomic.Bool // jobs that begin from now on have a door

	mu    fault.Mutex
	ended bool // guarded by mu: no door is made any more
}

// Allow lets the jobs of a session's jail that begin from now on reach hosts, because the operator's rules have some since. Jobs that
// run have no door: their namespaces are made. It may be called again.
func (j *Jail) Allow() error {
	j.doors.mu.Lock()
	defer j.doors.mu.Unlock()
	switch {
	case j.Connects():
		return nil
	case j.doors.ended:
		return errJailEnded
	case j.session.sharesNetwork():
		if err := j.makeSharedDoor(true); err != nil {
			return err
		}
	}
	j.doors.open.Store(true)
	return nil
}

// makeSharedDoor makes the door of a session's network namespace, together with the slot of a job: late is set if the jail was built
// without one.
func (j *Jail) makeSharedDoor(late bool) error {
	sl, err := j.plainSlot(kindOf{opens: late})
	if err != nil {
		return err
	}
	listener, err := host.Cookie(sl.door[inside.DoorListener])
	if err != nil {
		sl.destroy()
		return err
	}
	j.door.Store(&sharedDoor{listener: listener, sockets: sl.door})
	sl.door = nil
	j.pool.keep(sl)
	return nil
}

// closeDoor ends the door of a session's network namespace with its jail.
func (j *Jail) closeDoor() {
	j.doors.mu.Lock()
	defer j.doors.mu.Unlock()
	j.doors.ended = true
	if door := j.door.Load(); door != nil {
		j.discard(door.close())
	}
}
