package isolate

import (
	"context"
	"errors"
	"os"

	"corral/isolate/admit"
	"corral/isolate/cell"
	"corral/isolate/host"
	"corral/isolate/sessions"
	"corral/isolate/wire"
	"corral/job"
)

// authorizeInSession decides about a job in a session, and returns its jail. The caller must call the returned leave.
// That the client may use the repository was decided when the session was opened, and is decided again if the
// configuration was read since.
func (s *Supervisor) authorizeInSession(served *admit.Served, r *run, q *admit.Request, limits job.Limits) (*cell.Jail, func(), error) {
	ss, leave, err := s.sessions.Enter(r.peer, q)
	if err != nil {
		return nil, nil, err
	}
	var u host.Cleanup
	defer u.Run()
	u.Push(leave)
	r.session, r.retire = ss.ID(), ss.Retire
	limits, err = ss.Admit(served, q, limits)
	if err != nil {
		return nil, nil, err
	}
	repo := ss.Jail().Repo()
	s.jobs.setRepo(r, repo.Path)
	r.limits, r.protect = limits, served.Protection(repo, q)
	if q.Tool == string(job.ToolNone) {
		access, err := ss.Access(served)
		if err != nil {
			return nil, nil, err
		}
		r.apart = ss.Narrows(q)
		switch {
		case !ss.Jail().Connects() || r.apart && q.Network == job.NoNetwork:
		case r.apart:
			o := s.network.opening(ss.Peer(), repo, r.id, q.Network, sessions.NewPlaceholder())
			o.Request = r.request()
			r.connect(access, o)
		default:
			r.connect(access, s.network.opening(ss.Peer(), repo, ss.ID(), ss.Network(), ss.Placeholder()))
		}
	}
	if err := s.decide(r, q, repo, ss.Profile()); err != nil {
		return nil, nil, err
	}
	u.Cancel()
	return ss.Jail(), leave, nil
}

// authorize decides about a job without a session, and returns its jail. The caller must call the returned leave.
func (s *Supervisor) authorize(served *admit.Served, r *run, q *admit.Request, limits job.Limits) (*cell.Jail, func(), error) {
	if err := admit.CheckSessionless(q, s.programs.Starlark != nil); err != nil {
		return nil, nil, err
	}
	repo, err := served.Serves(r.peer, q.Repo, q.RepoDir)
	if err != nil {
		return nil, nil, err
	}
	var u host.Cleanup
	defer u.Run()
	u.Push(repo.Close)
	if q.Flags&wire.FlagNoRepo == 0 {
		repo.Common = served.Common(r.peer, q.Common, q.CommonDir, repo)
	}
	limits, profile, err := served.Clamp(repo, q, limits)
	if err != nil {
		return nil, nil, err
	}
	profile = admit.ProfileOf(q, profile)
	access := served.Access(r.peer, repo.Paths())
	if err := admit.CheckNetwork(q.Network, access.Rules); err != nil {
		return nil, nil, err
	}
	var n cell.Network
	if access.Rules != nil && q.Network != job.NoNetwork && q.Tool == string(job.ToolNone) {
		if n, err = s.network.jail(r.peer, access); err != nil {
			return nil, nil, err
		}
		o := s.network.opening(r.peer, repo, r.id, q.Network, sessions.NewPlaceholder())
		o.Request = r.request()
		r.connect(access, o)
	}
	s.jobs.setRepo(r, repo.Path)
	r.limits, r.protect = limits, served.Protection(repo, q)
	if err := s.decide(r, q, repo, profile); err != nil {
		return nil, nil, err
	}
	u.Cancel()
	j, err := s.cells.Enter(r.peer, repo, profile, n)
	if err != nil {
		return nil, nil, err
	}
	r.retire = j.Retire
	return j, j.Leave, nil
}

// execute runs the job within the operator's limits. A front-end cannot get around these, whatever its own policy is.
func (s *Supervisor) execute(ctx context.Context, r *run, q *admit.Request, terminal func(*os.File)) (wire.Result, error) {
	served := s.served.Now()
	limits, err := served.Check(r.peer, q)
	if err != nil {
		return wire.Result{}, err
	}
	if err := admit.CheckProfile(q.Profile); err != nil {
		return wire.Result{}, err
	}
	authorize := s.authorize
	if q.Session != "" {
		authorize = s.authorizeInSession
	}
	j, leave, err := authorize(served, r, q, limits)
	if err != nil {
		return wire.Result{}, err
	}
	defer leave()
	whole := false
	defer func() {
		if !whole { // a panic: nobody knows the state in which it left the jail
			r.retire()
		}
	}()
	result, err := s.inSlot(ctx, j, r, q, terminal)
	whole = true
	return result, err
}

// inSlot runs the job in a slot of its jail, or, if that was killed before it began the job, in one that is made now.
func (s *Supervisor) inSlot(ctx context.Context, j *cell.Jail, r *run, q *admit.Request, terminal func(*os.File)) (wire.Result, error) {
	take := func() (*cell.Slot, error) { return j.TakeSlot(q.Tool != string(job.ToolNone)) }
	if r.apart {
		take = func() (*cell.Slot, error) { return j.TakeApart(r.door != nil) }
	}
	sl, err := take()
	if err != nil {
		return wire.Result{}, err
	}
	result, err := s.useSlot(ctx, sl, r, q, terminal)
	if !errors.Is(err, cell.ErrSlotKilled) {
		return result, err
	}
	s.config.Log.Warn("a prepared slot was killed; its job gets another one", "job", r.id)
	if sl, err = sl.Replace(); err != nil {
		return wire.Result{}, err
	}
	return s.useSlot(ctx, sl, r, q, terminal)
}

// useSlot runs the job in sl, which it releases.
func (s *Supervisor) useSlot(ctx context.Context, sl *cell.Slot, r *run, q *admit.Request, terminal func(*os.File)) (wire.Result, error) {
	defer sl.Release() // the teardown takes the kernel time, and the job does not wait for it
	door := s.network.use(r.door, sl)
	defer door.report()
	result, err := s.runIn(ctx, sl, r, q, door, terminal)
	result.Reached = door.report()
	return result, err
}
