package isolate

import (
	"context"
	"log/slog"
	"os"

	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// serveJob runs one job to its end and returns its result, with which no process of the job is left. If the job has a
// terminal, serveJob calls terminal with its master.
func (s *Supervisor) serveJob(ctx context.Context, r *run, q *admit.Request, terminal func(*os.File)) wire.Result {
	if !s.begin() {
		q.Close(s.probes, r.peer.Payer())
		return admit.RefusedResult(host.ErrEnding)
	}
	defer s.work.Done()
	result, err := s.acquire(ctx, r, q, terminal)
	if err != nil {
		result = admit.RefusedResult(err)
	}
	result.Job, result.ReadOnly = r.id, q.Narrowed
	s.record(r, q, &result)
	return result
}

// logResult writes the end of a job to the diagnostic log. It is called after the client has the result, which so
// does not wait for it.
func (s *Supervisor) logResult(r *run, result *wire.Result) {
	s.config.Log.LogAttrs(s.ctx, slog.LevelInfo, "job ended", slog.String("job", r.id), slog.Uint64("uid", uint64(r.peer.UID)),
		slog.String("repo", r.repo), slog.Uint64("outcome", uint64(result.Outcome)), slog.Uint64("status", uint64(result.WaitStatus)),
		slog.String("step", result.Step), slog.Int64("wall_ms", result.Wall/1e6))
}

// acquire runs r unless there are too many jobs. r counts until its descriptors are closed.
func (s *Supervisor) acquire(ctx context.Context, r *run, q *admit.Request, terminal func(*os.File)) (wire.Result, error) {
	err := s.register(r)
	if err == nil {
		defer s.unregister(r)
	}
	defer q.Close(s.probes, r.peer.Payer())
	if err != nil {
		return wire.Result{}, err
	}
	return s.execute(ctx, r, q, terminal)
}

// execute runs the job within the operator's limits. A front-end cannot get around these, whatever its own policy is.
func (s *Supervisor) execute(ctx context.Context, r *run, q *admit.Request, terminal func(*os.File)) (wire.Result, error) {
	limits, err := s.served.Check(r.peer, q)
	if err != nil {
		return wire.Result{}, err
	}
	if err := admit.CheckProfile(q.Profile); err != nil {
		return wire.Result{}, err
	}
	admit := s.authorize
	if q.Session != "" {
		admit = s.authorizeInSession
	}
	j, leave, err := admit(r, q, limits)
	if err != nil {
		return wire.Result{}, err
	}
	defer leave()
	sl, err := j.takeSlot(q.Tool != string(job.ToolNone))
	if err != nil {
		return wire.Result{}, err
	}
	defer sl.release() // the teardown takes the kernel time, and the job does not wait for it
	return s.runIn(ctx, sl, r, q, terminal)
}

// authorize decides about a job without a session, and returns its jail. The caller must call the returned leave.
func (s *Supervisor) authorize(r *run, q *admit.Request, limits job.Limits) (*jail, func(), error) {
	if err := admit.CheckSessionless(q, s.programs.Starlark != nil); err != nil {
		return nil, nil, err
	}
	repo, err := s.served.Serves(r.peer, q.Repo, q.RepoDir)
	if err != nil {
		return nil, nil, err
	}
	if q.Flags&wire.FlagNoRepo == 0 {
		repo.Common = s.served.Common(r.peer, q.Common, q.CommonDir, repo)
	}
	limits, profile, err := s.served.Clamp(repo, q, limits)
	if err != nil {
		repo.Close()
		return nil, nil, err
	}
	profile = admit.ProfileOf(q, profile)
	s.setRepo(r, repo.Path)
	r.limits, r.protect = limits, s.served.Protection(repo, q)
	if err := s.decide(r, q, repo, profile); err != nil {
		repo.Close()
		return nil, nil, err
	}
	j, err := s.cells.enter(r.peer, repo, profile)
	if err != nil {
		return nil, nil, err
	}
	return j, j.leave, nil
}
