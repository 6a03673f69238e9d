package isolate

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"corral/egress/control"
	"corral/internal/fault"
	"corral/isolate/admit"
	"corral/isolate/cell"
	"corral/isolate/door"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
	"corral/store/authority"
)

// A network is how jobs of a supervisor reach hosts.
type network struct {
	doors       *door.Doors
	served      *admit.Current
	authorities *authority.Store // that jobs trust where rules are about requests, one for each user
}

// newNetwork returns the network of a supervisor, with the programs of a directory and the authority of a state directory. Program and
// filter of corral-egress are read for the first job with network access: most supervisors have none.
func newNetwork(c door.Config, served *admit.Current, programs, state string) *network {
	c.Program = func() (*os.File, error) { return host.LoadProgram(filepath.Join(programs, door.Program)) }
	c.Filter = func(store bool) (*os.File, error) {
		profile := seccomp.Egress
		if store {
			profile = seccomp.EgressStore
		}
		filter, err := seccomp.Compile(profile, runtime.GOARCH)
		if err != nil {
			return nil, err
		}
		return wire.Seal("filter", filter, 0)
	}
	c.Keep = func(payer uint32) int64 { return served.Now().Keep(payer) }
	if !hasLandlock() { // nothing bounds the process to its directory
		c.Store = func(uint32, uint32, int64) (*os.File, int64, error) { return nil, 0, errLandlock }
	}
	return &network{door.New(c), served, authority.New(filepath.Join(state, "authority"))}
}

// errLandlock is logged for each process that should keep packages.
var errLandlock = errors.New("the kernel has no Landlock\nhint: use Linux 5.13 or newer with `landlock` in its list of security modules (lsm=)")

// hasLandlock reports whether the kernel has Landlock (landlock_create_ruleset(2)).
func hasLandlock() bool {
	_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0
}

// jail returns what the jobs of peer in a new jail have that may reach hosts. Where rules are about requests, they trust the authority of
// the user whose process answers them, which is made now if there is none.
func (n *network) jail(peer host.Peer, access admit.Access) (cell.Network, error) {
	has := cell.Network{Door: true}
	if access.Requests == nil {
		return has, nil
	}
	a, err := n.authorities.Current(peer.Payer())
	if err != nil {
		return has, err
	}
	has.Authority = a.PEM
	return has, nil
}

// opening returns the request for the door of a job or session of peer in a repository. The rules are those of the
// configuration that was read last, whenever the door is opened: none if it does not serve the repository to peer any more.
func (n *network) opening(peer host.Peer, repo *admit.Repo, name, ask, placeholder string) door.Opening {
	at := repo.Snapshot()
	return door.Opening{
		Payer: peer.Payer(), Name: name, Ask: ask, Placeholder: placeholder,
		Access: func() control.Access { return n.served.Now().AccessAgain(peer, at).Control() },
	}
}

// open opens a door in a jail with an authority, in PEM, or none.
func (n *network) open(o door.Opening, trusted []byte) (cell.Door, error) {
	if len(trusted) > 0 {
		a := n.authorities.Of(o.Payer, trusted)
		if a == nil {
			return nil, &job.Refusal{
				Step: "network", Message: "the authority that the session trusts was replaced many times since", Hint: "open another session",
			}
		}
		o.Authority = &a.Control
	}
	d, err := n.doors.Open(o)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// A doorUse is a job's use of its door, which is opened and closed beside everything else that beginning and ending the job takes. A nil
// doorUse is that of a job without a door.
type doorUse struct {
	log    *slog.Logger
	opened chan struct{} // closed when the fields below are set
	end    func() (reached string)
	err    error

	closing sync.Once
	closed  chan struct{} // closed when reached is set
	reached string
}

// use begins to open the door that o requests, in the network namespace of a slot. nil requests none: corral's own programs reach no host,
// whatever other jobs of their jail may reach. The caller must call report.
func (n *network) use(o *door.Opening, sl *cell.Slot) *doorUse {
	if o == nil {
		return nil
	}
	u := &doorUse{log: n.doors.Log, opened: make(chan struct{}), closed: make(chan struct{})}
	go func() {
		defer close(u.opened)
		u.err = fault.Contain(u.log, "opening a door", func() (err error) {
			u.end, err = sl.UseDoor(func(sockets []*os.File) (cell.Door, error) {
				in := *o
				in.Sockets = sockets
				return n.open(in, sl.Jail().Authority())
			})
			return err
		}, "for", o.Name)
	}()
	return u
}

// ready waits until the door is open. The job must not begin before: the rules may not allow what it asks for.
func (u *doorUse) ready() error {
	if u == nil {
		return nil
	}
	<-u.opened
	return u.err
}

// close begins to close the door.
func (u *doorUse) close() {
	if u == nil {
		return
	}
	u.closing.Do(func() {
		go func() {
			defer close(u.closed)
			if u.ready() == nil && fault.Do(u.log, "closing a door", func() { u.reached = u.end() }) {
				u.reached = control.Lost()
			}
		}()
	})
}

// report closes the door, and returns what the job reached. It may be called again.
func (u *doorUse) report() string {
	if u == nil {
		return ""
	}
	u.close()
	<-u.closed
	return u.reached
}

// reload applies the configuration and the authority that were read or replaced since.
func (n *network) reload() {
	n.authorities.Reload()
	n.doors.Update()
}
