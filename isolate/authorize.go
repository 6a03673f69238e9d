package isolate

import (
	"context"
	"os"

	"corral/isolate/admit"
	"corral/isolate/cell"
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
	r.session = ss.ID()
	limits, err = ss.Admit(served, q, limits)
	if err == nil {
		s.jobs.setRepo(r, ss.Jail().Repo().Path)
		r.limits, r.protect = limits, served.Protection(ss.Jail().Repo(), q)
		if repo := ss.Jail().Repo(); ss.Jail().Connects() && q.Tool == string(job.ToolNone) {
			access := served.Access(ss.Peer(), repo.Paths())
			r.connect(access, s.network.opening(ss.Peer(), repo, ss.ID(), ss.Network(), ss.Placeholder()))
		}
		err = s.decide(r, q, ss.Jail().Repo(), ss.Profile())
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
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
	if q.Flags&wire.FlagNoRepo == 0 {
		repo.Common = served.Common(r.peer, q.Common, q.CommonDir, repo)
	}
	limits, profile, err := served.Clamp(repo, q, limits)
	if err != nil {
		repo.Close()
		return nil, nil, err
	}
	profile = admit.ProfileOf(q, profile)
	access := served.Access(r.peer, repo.Paths())
	if err := admit.CheckNetwork(q.Network, access.Rules); err != nil {
		repo.Close()
		return nil, nil, err
	}
	var n cell.Network
	if access.Rules != nil && q.Network != job.NoNetwork && q.Tool == string(job.ToolNone) {
		if n, err = s.network.jail(r.peer, access); err != nil {
			repo.Close()
			return nil, nil, err
		}
		o := s.network.opening(r.peer, repo, r.id, q.Network, sessions.NewPlaceholder())
		o.Request = r.request()
		r.connect(access, o)
	}
	s.jobs.setRepo(r, repo.Path)
	r.limits, r.protect = limits, served.Protection(repo, q)
	if err := s.decide(r, q, repo, profile); err != nil {
		repo.Close()
		return nil, nil, err
	}
	j, err := s.cells.Enter(r.peer, repo, profile, n)
	if err != nil {
		return nil, nil, err
	}
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
	sl, err := j.TakeSlot(q.Tool != string(job.ToolNone))
	if err != nil {
		return wire.Result{}, err
	}
	defer sl.Release() // the teardown takes the kernel time, and the job does not wait for it
	door := s.network.use(r.door, sl)
	result, err := s.runIn(ctx, sl, r, q, door, terminal)
	result.Reached = door.report()
	return result, err
}
