package cell

import (
	"os"
	"sync"
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
