package isolate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"corral/internal/fault"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/wire"
)

// Serve runs the job to its end and returns its result, with which no process of the job is left. If the job has a
// terminal, Serve calls terminal with its master.
func (r *run) Serve(ctx context.Context, q *admit.Request, terminal func(*os.File)) wire.Result {
	s := r.s
	if !s.work.Begin() {
		q.Close(s.probes, r.peer.Payer())
		return admit.RefusedResult(host.ErrEnding)
	}
	defer s.work.Done()
	r.claim = q.Claim
	var result wire.Result
	err := fault.Contain(s.config.Log, "a job", func() (err error) {
		result, err = s.acquire(ctx, r, q, terminal)
		return err
	}, "job", r.id, "uid", r.peer.UID)
	switch {
	case errors.Is(err, fault.ErrInternal):
		result = wire.Result{Outcome: wire.Refused}
		result.Step, result.Message, result.Hint = r.internal()
	case err != nil:
		result = admit.RefusedResult(err)
	}
	result.Job, result.ReadOnly = r.id, q.Narrowed
	s.record(r, q, &result)
	return result
}

// internal is what the client of a job is told that the supervisor's own mistake has ended.
func (r *run) internal() (step, message, hint string) {
	state := "the job was not started"
	if !r.sent.IsZero() {
		state = "the job had started, and was ended"
	}
	return "internal", fmt.Sprintf("%v: %s", fault.ErrInternal, state), "the operator finds the reason in the log of corrald: internal error, job " + r.id
}

// Log writes the end of a job to the diagnostic log. It is called after the client has the result, so the
// client does not wait for it. Of a user's refused jobs, which cost the user nothing, not all are logged.
func (r *run) Log(result *wire.Result) {
	omitted := 0
	if result.Outcome == wire.Refused {
		var ok bool
		if ok, omitted = r.s.refusals.Allow(r.peer.Payer(), time.Now()); !ok {
			return
		}
	}
	r.s.config.Log.LogAttrs(r.s.ctx, slog.LevelInfo, "job ended", slog.String("job", r.id), slog.Uint64("uid", uint64(r.peer.UID)),
		slog.String("repo", r.repo), slog.String("session", r.session), slog.String("request", r.request()),
		slog.String("outcome", result.Outcome.String()), slog.Uint64("status", uint64(result.WaitStatus)),
		slog.String("step", result.Step), slog.Int64("wall_ms", result.Wall/1e6), slog.Int("omitted", omitted))
}

// acquire registers r and has it executed, unless there are too many jobs. r counts until its descriptors are closed.
func (s *Supervisor) acquire(ctx context.Context, r *run, q *admit.Request, terminal func(*os.File)) (wire.Result, error) {
	err := s.jobs.register(r)
	if err == nil {
		defer s.jobs.unregister(r)
	}
	defer q.Close(s.probes, r.peer.Payer())
	if err != nil {
		return wire.Result{}, err
	}
	return s.execute(ctx, r, q, terminal)
}
