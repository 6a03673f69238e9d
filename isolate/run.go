package isolate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/probe"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// A Request is a job to run: the wire message and its descriptors.
type Request struct {
	wire.Run
	Payload, Stdin, Stdout, Stderr, RepoDir, CommonDir *os.File // owned by the request

	narrowed bool // it would have written to a read-only repository, and reads it instead
}

// close closes and clears the descriptors of a user's request.
func (q *Request) close(p *probe.Prober, user uint32) {
	p.Discard(user, q.Payload, q.Stdin, q.Stdout, q.Stderr, q.RepoDir, q.CommonDir)
	q.Payload, q.Stdin, q.Stdout, q.Stderr, q.RepoDir, q.CommonDir = nil, nil, nil, nil, nil, nil
}

// serveJob runs one job to its end and returns its result, with which no process of the job is left. If the job has a
// terminal, serveJob calls terminal with its master.
func (s *Supervisor) serveJob(ctx context.Context, r *run, q *Request, terminal func(*os.File)) wire.Result {
	if !s.begin() {
		q.close(s.probes, r.peer.Payer())
		return refusedResult(host.ErrEnding)
	}
	defer s.work.Done()
	result, err := s.acquire(ctx, r, q, terminal)
	if err != nil {
		result = refusedResult(err)
	}
	result.Job, result.ReadOnly = r.id, q.narrowed
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
func (s *Supervisor) acquire(ctx context.Context, r *run, q *Request, terminal func(*os.File)) (wire.Result, error) {
	err := s.register(r)
	if err == nil {
		defer s.unregister(r)
	}
	defer q.close(s.probes, r.peer.Payer())
	if err != nil {
		return wire.Result{}, err
	}
	return s.execute(ctx, r, q, terminal)
}

// refusedResult converts an error to the result of a job that was not started.
func refusedResult(err error) wire.Result {
	r := wire.Result{Outcome: wire.Refused, Step: "jail", Message: err.Error()}
	var refusal *job.Refusal
	if errors.As(err, &refusal) {
		r.Step, r.Errno, r.Message, r.Hint = refusal.Step, uint32(refusal.Errno), refusal.Message, refusal.Hint
	}
	return r
}

func stepFailed(r inside.Report) error {
	return &job.Refusal{
		Step: r.Step, Errno: int(r.Errno),
		Message: fmt.Sprintf("%s: %v", r.Step, unix.Errno(r.Errno)),
	}
}

// execute runs the job within the operator's limits. A front-end cannot get around these, whatever its own policy is.
func (s *Supervisor) execute(ctx context.Context, r *run, q *Request, terminal func(*os.File)) (wire.Result, error) {
	limits, err := s.check(r.peer, q)
	if err != nil {
		return wire.Result{}, err
	}
	if q.Profile != "" && !knownProfile(q.Profile) {
		return wire.Result{}, unknownProfile(q.Profile)
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
	defer j.pool.release(sl) // the teardown takes the kernel time, and the job does not wait for it
	return s.runIn(ctx, sl, r, q, terminal)
}

// authorize decides about a job without a session, and returns its jail. The caller must call the returned leave.
func (s *Supervisor) authorize(r *run, q *Request, limits job.Limits) (*jail, func(), error) {
	if err := s.checkSessionless(q); err != nil {
		return nil, nil, err
	}
	repo, err := s.serves(r.peer, q.Repo, q.RepoDir)
	if err != nil {
		return nil, nil, err
	}
	if q.Flags&wire.FlagNoRepo == 0 {
		repo.common = s.common(r.peer, q.Common, q.CommonDir, repo)
	}
	limits, profile, err := s.config.clampLimits(repo, q, limits)
	if err != nil {
		repo.close()
		return nil, nil, err
	}
	profile = profileOf(q, profile)
	s.setRepo(r, repo.path)
	r.limits, r.protect = limits, s.config.protection(repo, q)
	if err := s.decide(r, q, repo, profile); err != nil {
		repo.close()
		return nil, nil, err
	}
	j, err := s.enter(r.peer, repo, profile)
	if err != nil {
		return nil, nil, err
	}
	return j, j.leave, nil
}

func knownProfile(profile string) bool { return slices.Contains(seccomp.Profiles(), profile) }

func unknownProfile(name string) error {
	return &job.Refusal{
		Step: "profile", Message: fmt.Sprintf("profile %q is not known", name), Hint: fmt.Sprintf("one of %q", seccomp.Profiles()),
	}
}

// check refuses requests for reasons that do not depend on the repository, and returns the job's limits with defaults
// filled in.
func (s *Supervisor) check(peer host.Peer, q *Request) (job.Limits, error) {
	l := requestedLimits(q)
	if err := l.Check(); err != nil {
		return l, err
	}
	l = l.Or(s.config.Defaults)
	if err := l.Within(s.config.Ceilings); err != nil {
		return l, err
	}
	// In a session with a root of its own an absolute working directory is allowed, see session.checkRequest.
	if strings.HasPrefix(q.Dir, "/") && q.Session == "" || strings.IndexByte(q.Dir, 0) >= 0 {
		return l, &job.Refusal{Step: "cwd", Message: "the working directory must be a path relative to the repository"}
	}
	if !wire.Sealed(q.Payload) {
		return l, &job.Refusal{Step: "payload", Message: "the payload (arguments and environment) must be a sealed memfd"}
	}
	for _, f := range []*os.File{q.Stdin, q.Stdout, q.Stderr} {
		if f == nil {
			continue
		}
		if err := s.checkStream(peer, f); err != nil {
			return l, err
		}
	}
	return l, nil
}

// checkStream refuses a standard stream that is not an anonymous pipe made by the peer: a named pipe would be some
// user's file, whose owner startup changes (see sendJob).
func (s *Supervisor) checkStream(peer host.Peer, f *os.File) error {
	// Only a pipe has a pipe size, and only the kernel is asked for it. A named pipe is on a real file system.
	_, err := unix.FcntlInt(f.Fd(), unix.F_GETPIPE_SZ, 0)
	var pipe probe.Identity
	if err == nil {
		pipe, err = probe.IdentifyCached(int(f.Fd()))
	}
	if err != nil || pipe.Dev != s.pipes || pipe.Mode&unix.S_IFMT != unix.S_IFIFO {
		return &job.Refusal{Step: "request", Message: "a standard stream is not an anonymous pipe: jobs get no files of the host"}
	}
	if !peer.Owns(pipe.UID) {
		return &job.Refusal{Step: "request", Message: "a standard stream is a pipe that another user created"}
	}
	return nil
}

// pipeDevice returns the device number of the kernel's internal file system of anonymous pipes. There is one, it is
// never unmounted, and no other file system has its number.
func pipeDevice() (uint64, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return 0, fmt.Errorf("pipe: %w", err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	var st unix.Stat_t
	if err := unix.Fstat(fds[0], &st); err != nil {
		return 0, fmt.Errorf("fstat of a pipe: %w", err)
	}
	return st.Dev, nil
}

// sendJob sends the job to its slot's stub.
func (s *Supervisor) sendJob(sl *slot, r *run, q *Request) error {
	if want := groupLimits(r.limits); want != sl.limits {
		if err := sl.group.Update(want); err != nil {
			return err
		}
	}
	kept, err := sl.jail.pathsToProtect(r.protect)
	if err != nil {
		return err
	}
	mount, err := sl.workspace(q)
	if err != nil {
		return err
	}
	defer mount.Close()
	plan := inside.Plan{
		Terminal: q.Flags&wire.FlagTerminal != 0, ReadOnly: q.Flags&wire.FlagReadOnly != 0, Stdin: q.Stdin != nil,
		TmpBytes: r.limits.Tmp, TmpInodes: r.limits.TmpInodes, Rows: q.Rows, Cols: q.Cols,
		Rlimits: host.Rlimits(r.limits, sl.others()), Repo: r.repo, Kept: kept != nil, NoRepo: mount == nil,
	}
	if r.limits.Wall != job.Unlimited {
		plan.Wall = r.limits.Wall + stubGrace
	}
	plan.Dir, plan.RootDir = strings.CutPrefix(q.workDir(), "/")
	extra, err := sl.tool(q, &plan)
	if err != nil {
		return err
	}
	defer wire.CloseAll(extra.owned)
	common, err := sl.addCommon(&plan, r.commonReadOnly(q))
	if err != nil {
		return err
	}
	defer wire.CloseAll(common)
	var files []*os.File
	if mount != nil {
		files = append(files, mount)
	}
	files = append(files, q.Payload)
	for _, f := range []*os.File{q.Stdout, q.Stderr, q.Stdin} {
		if f == nil {
			continue
		}
		// Opening a pipe again by name (/dev/stderr) checks its owner.
		if err := unix.Fchown(int(f.Fd()), int(sl.hostUID()), int(sl.hostUID())); err != nil {
			return fmt.Errorf("fchown of a pipe: %w", err)
		}
		files = append(files, f)
	}
	r.sent = time.Now()
	return sl.send(&plan, kept, slices.Concat(files, extra.files, common))
}

// stubGrace is how long after the deadline the stub ends the job itself: by then the supervisor has done so, unless
// it is stopped.
const stubGrace = 100 * time.Millisecond
