package probe

import (
	"os"
	"time"

	"corral/isolate/inside"
	"corral/isolate/wire"
)

// Walk measures how long the kernel takes to pass the names that it keeps for an open directory, see [inside.ProbeWalk]. It takes over
// dir, which must not be O_PATH and whose position nobody else uses meanwhile: a helper moves that and sets it back. So after an error
// the position is not known. Errors are as for Identify, after patience at most.
func (p *Prober) Walk(user uint32, dir *os.File, patience time.Duration) (time.Duration, error) {
	by := userOf(user)
	defer p.closer.add(by, closable{file: dir}, true)
	if err := p.acquireIn(by, patience); err != nil {
		return 0, err
	}
	question := inside.Probe{Kind: inside.ProbeWalk}
	answer, files, err := p.query(by, request{Probe: question, fds: []int{int(dir.Fd())}, patience: patience})
	wire.CloseAll(files)
	if err != nil {
		return 0, err
	}
	found, err := inside.ReadProbed(answer)
	return found.Walk, err
}
