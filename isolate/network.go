package isolate

import (
	"os"
	"path/filepath"
	"runtime"

	"corral/egress/control"
	"corral/isolate/admit"
	"corral/isolate/door"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/seccomp"
)

// newDoors returns the doors of a supervisor, with the programs of a directory. Program and filter of corral-egress are read for the first job with network access:
// most supervisors have none.
func newDoors(c door.Config, programs string) *door.Doors {
	c.Program = func() (*os.File, error) { return host.LoadProgram(filepath.Join(programs, door.Program)) }
	c.Filter = func() (*os.File, error) {
		filter, err := seccomp.Compile(seccomp.Egress, runtime.GOARCH)
		if err != nil {
			return nil, err
		}
		return wire.Seal("filter", filter, 0)
	}
	return door.New(c)
}

// opening returns the request for the door of a job or session of peer in a repository. The rules are those of the
// configuration that was read last, whenever the door is opened: none if it does not serve the repository to peer any more.
func opening(served *admit.Current, peer host.Peer, repo *admit.Repo, name, ask string) door.Opening {
	at := repo.Snapshot()
	return door.Opening{
		Payer: peer.Payer(), Name: name, Ask: ask,
		Access: func() control.Access { return served.Now().AccessAgain(peer, at).Control() },
	}
}
