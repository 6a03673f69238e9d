package sessions

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/admit"
	"corral/isolate/cell"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// open opens a session for a client. Only clients with the same user id, and root, can run jobs in it.
func (m *Manager) open(peer host.Peer, spec wire.Open, dir, common *os.File) (*Session, error) {
	if !m.Work.Begin() {
		return nil, host.ErrEnding
	}
	defer m.Work.Done()
	if m.Admitting != nil {
		if err := m.Admitting(); err != nil {
			return nil, err
		}
	}
	ss := &Session{m: m, id: sessionID(), spec: spec, peer: peer, opened: time.Now(), used: time.Now()}
	if err := ss.check(); err != nil {
		return nil, err
	}
	if ss.workspace == job.Overlay {
		if err := m.roomToKeep(peer); err != nil {
			return nil, err
		}
	}
	r, err := ss.pinRepo(dir, common)
	if err != nil {
		return nil, err
	}
	if ss, err = m.start(ss, r); err != nil {
		return ss, err
	}
	ss.stamp()
	return ss, nil
}

// checkOpen reports why a client cannot have a session, as far as that depends on the request and the repository. It
// creates no state.
func (m *Manager) checkOpen(peer host.Peer, spec wire.Open, dir, common *os.File) error {
	if !m.Work.Begin() {
		return host.ErrEnding
	}
	defer m.Work.Done()
	ss := &Session{m: m, spec: spec, peer: peer}
	if err := ss.check(); err != nil {
		return err
	}
	r, err := ss.pinRepo(dir, common)
	if err != nil {
		return err
	}
	defer r.Close()
	if ss.imports() {
		return nil
	}
	if err := m.Served.Now().Inspect(peer.Payer(), r); err != nil {
		return err
	}
	// Whether the file system supports id maps is known only by trying.
	ids, err := m.Userns.IDMap(r.UID, r.GID, r.UID, 1)
	if err != nil {
		return err
	}
	defer ids.Close()
	mount, err := r.Clone(ids, true)
	if err != nil {
		return err
	}
	return mount.Close()
}

// start builds the session's jail, including the layer, and returns the session once it is built. If a session with
// the same id, which resumes the same kept layer, is open, start returns that one instead. It takes over r.
func (m *Manager) start(ss *Session, r *admit.Repo) (*Session, error) {
	if ss.profile == "" {
		ss.profile = seccomp.Profiles()[0]
	}
	var u host.Cleanup
	defer u.Run()
	u.Push(r.Close)
	network, err := ss.networkIn(r)
	if err != nil {
		return nil, err
	}
	ss.placeholder = NewPlaceholder()
	t := &cell.Session{
		Owner: ss, ID: ss.id, Workspace: ss.workspace, Root: ss.root(), Share: ss.shares(), Import: ss.imports(),
		Image: ss.spec.Image, Resumed: ss.from != "", Network: network,
	}
	other, err := m.build(ss, t, r)
	if other != nil {
		return other, other.jail.AwaitBuilt()
	}
	if err != nil {
		return nil, err
	}
	u.Cancel()
	if err := ss.jail.AwaitBuilt(); err != nil {
		return nil, err
	}
	ss.armIdleTimer()
	return ss, nil
}

// build starts to build the session's jail, which takes over r, unless a session with the same id is open: then it returns that one.
func (m *Manager) build(ss *Session, t *cell.Session, r *admit.Repo) (other *Session, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other := m.all[ss.id]; other != nil {
		return other, nil
	}
	return nil, m.Jails.StartFor(t, ss.peer, r, ss.profile, func(j *cell.Jail) error {
		if ss.from == "" {
			if err := m.nameTaken(ss); err != nil {
				return err
			}
		}
		ss.jail, m.all[ss.id] = j, ss
		return nil
	})
}

// networkIn returns what the session's jobs have in a repository.
func (ss *Session) networkIn(r *admit.Repo) (cell.Network, error) {
	if ss.imports() || ss.spec.Network == job.NoNetwork {
		return cell.Network{}, nil
	}
	access := ss.m.Served.Now().Access(ss.peer, r.Paths())
	if access.Rules == nil {
		return cell.Network{}, nil
	}
	return ss.m.Network(ss.peer, access)
}

// nameTaken refuses a name that another open session of the same user has, because commands accept names in place of
// ids. The caller holds m.mu.
func (m *Manager) nameTaken(ss *Session) error {
	if ss.spec.Name == "" {
		return nil
	}
	for _, other := range m.all {
		if other.from == "" && other.spec.Name == ss.spec.Name && other.peer.UID == ss.peer.UID && other.peer.Embedded == ss.peer.Embedded {
			r := sessionRefusal("you already have a session named %q: %s", ss.spec.Name, other.id)
			r.Errno = int(unix.EEXIST) // to a client that opens it unless it is there
			r.Hint = "choose another name, or end it: corral session close " + ss.spec.Name
			return r
		}
	}
	return nil
}

// pinRepo pins the repository and applies the operator's configuration for it to the session.
func (ss *Session) pinRepo(dir, common *os.File) (*admit.Repo, error) {
	if ss.imports() {
		return &admit.Repo{Path: cell.ImportDir}, nil
	}
	served := ss.m.Served.Now()
	r, err := served.Serves(ss.peer, ss.spec.Repo, dir)
	if err != nil {
		return nil, err
	}
	var u host.Cleanup
	defer u.Run()
	u.Push(r.Close)
	q := &admit.Request{Run: wire.Run{Flags: ss.spec.Flags & (wire.FlagReadOnly | wire.FlagOverlay), Profile: ss.spec.Profile}}
	r.Common = served.Common(ss.peer, ss.spec.Common, common, r)
	if _, ss.profile, err = served.Clamp(r, q, served.Defaults); err != nil {
		return nil, err
	}
	if err := admit.CheckNetwork(ss.spec.Network, served.Access(ss.peer, r.Paths()).Rules); err != nil {
		return nil, err
	}
	if q.Narrowed {
		ss.spec.Flags |= wire.FlagReadOnly
		ss.workspace = job.ReadOnly
	}
	ss.spec.Repo = r.Path
	u.Cancel()
	return r, nil
}

// stamp sets the session's opening time so that changes of the repository can be told apart by it: a change made
// before the request to open has an earlier time, and a change made after stamp returns has no earlier time. A change
// in between precedes the session's first job.
//
// File times come either from a clock that advances in ticks, which other processors of a virtual machine may delay
// for long, or from the exact clock (Documentation/filesystems/multigrain-ts.rst). So stamp waits until the tick
// clock has passed the opening time, which was read from the exact clock.
func (ss *Session) stamp() {
	began, opened := ss.opened, host.FileTime() // no other goroutine changes ss.opened
	if opened.After(began) {                    // processors may differ
		began = opened
	}
	for n := 0; n < 1000 && !opened.After(began); n++ { // bounded in case the clock was set back
		time.Sleep(time.Millisecond)
		opened = host.FileTime()
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.opened = opened
}
