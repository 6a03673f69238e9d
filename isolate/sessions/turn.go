package sessions

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// startTurn lets a job start, unless what is applied could then differ from what was reviewed: changes are not
// applied while another job may write to the layer, and no such job starts while they are being applied. The caller
// must call done when the job has ended.
func (ss *Session) startTurn(q *admit.Request) (done func(), err error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	tool, readOnly := job.Tool(q.Tool) == job.ToolChanges, q.Flags&wire.FlagReadOnly != 0
	busy := &job.Refusal{Step: "changes", Errno: int(unix.EBUSY)}
	switch {
	case tool && readOnly:
		return func() {}, nil
	case ss.applying:
		busy.Message, busy.Hint = "the changes of the session are being applied", "try again when that is done"
		return nil, busy
	case !tool:
		ss.writers++
		return func() {
			ss.mu.Lock()
			defer ss.mu.Unlock()
			ss.writers--
		}, nil
	case ss.writers > 0:
		busy.Message = fmt.Sprintf("%d jobs run in the session, and may still change its files", ss.writers)
		busy.Hint = "wait for them to end, or end them (corral ps); then review the changes again"
		return nil, busy
	}
	ss.applying = true
	return func() {
		ss.mu.Lock()
		defer ss.mu.Unlock()
		ss.applying = false
	}, nil
}

// applyPatience is how long an apply waits for others to the same repository.
const applyPatience = 10 * time.Second

// excludeApplies keeps changes of other sessions from being applied to the repository before done is called. It returns the function to be
// called in place of done, also with an error.
func (ss *Session) excludeApplies(done func()) (both func(), err error) {
	unlock, err := host.LockApply(ss.m.Context, ss.jail.Repo().Inode, applyPatience)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return done, &job.Refusal{
			Step: "changes", Errno: int(unix.EBUSY), Message: fmt.Sprintf("changes of another session are being applied to %q", ss.jail.Repo().Path),
			Hint: "try again when that is done: corral ps lists it",
		}
	case err != nil:
		return done, err
	}
	return func() {
		// The overlay is not made for changes below it. No job is in it now, so all of it is looked up again.
		if err := ss.jail.DropCaches(); err != nil {
			ss.m.Log.Warn("jobs of the session may see some files as they were", "session", ss.id, "error", err)
		}
		unlock()
		done()
	}, nil
}

// checkRequest refuses a job that requests another workspace, profile or tool than the session has.
func (ss *Session) checkRequest(q *admit.Request) error {
	tool, overlay, readOnly := job.Tool(q.Tool), q.Flags&wire.FlagOverlay != 0, q.Flags&wire.FlagReadOnly != 0
	switch {
	case q.Profile != "" && q.Profile != ss.profile:
		return &job.Refusal{Step: "profile", Message: fmt.Sprintf("the session has profile %q, not %q", ss.profile, q.Profile)}
	case q.Repo != "" && q.Repo != ss.jail.Repo().Path:
		return sessionRefusal("the session's repository is %q, not %q", ss.jail.Repo().Path, q.Repo)
	case q.Flags&wire.FlagNoRepo != 0:
		return &job.Refusal{Step: "workspace", Message: "the jobs of a session see its repository: workspace none cannot be used in a session"}
	case strings.HasPrefix(q.Dir, "/") && !ss.root():
		return &job.Refusal{Step: "cwd", Message: "the working directory must be a path relative to the repository"}
	case q.Network != "" && q.Network != ss.spec.Network && !ss.Narrows(q):
		return &job.Refusal{
			Step: "network", Message: fmt.Sprintf("the session was opened with network %q, and its jobs share it: got %.100q", ss.spec.Network, q.Network),
			Hint: "request the network when opening a session; a job of a session that asked for no less can ask for less",
		}
	case tool == job.ToolUnpack != ss.imports() || tool == job.ToolChanges && (ss.workspace != job.Overlay || overlay):
		return sessionRefusal("tool %.40q cannot be used in this session", q.Tool)
	case tool == job.ToolChanges || tool == job.ToolUnpack:
		return nil
	case !tool.InRepository():
		return sessionRefusal("unknown tool %.40q", q.Tool)
	case tool.OnFiles() && admit.CheckEdit(q, ss.root()) != nil:
		return admit.CheckEdit(q, ss.root())
	case readOnly:
		return nil
	case overlay != (ss.workspace == job.Overlay) || ss.workspace == job.ReadOnly:
		return &job.Refusal{Step: "workspace", Message: fmt.Sprintf("the session's workspace is %v", ss.workspace)}
	}
	return nil
}

// Narrows reports whether a job may reach less than other jobs of the session, and so shares no network with them. Only a session that
// asked for all that the rules allow has such jobs, or jobs without a network: whether one word asks for less than another is not
// decided here.
func (ss *Session) Narrows(q *admit.Request) bool {
	return q.Network != "" && q.Network != ss.spec.Network && (q.Network == job.NoNetwork || ss.spec.Network == "") && !ss.root()
}

// Enter lets a job of peer's into the session that it requests. The caller must call leave when the job has ended.
func (m *Manager) Enter(peer host.Peer, q *admit.Request) (ss *Session, leave func(), err error) {
	ss, err = m.sessionOf(peer, q.Session)
	if err != nil {
		return nil, nil, err
	}
	done, err := ss.startTurn(q)
	if err == nil {
		switch tool := job.Tool(q.Tool); {
		case tool.InRepository():
			err = ss.jail.Repo().CheckUnmoved()
		case tool == job.ToolChanges && q.Flags&wire.FlagReadOnly == 0:
			if err = ss.checkWritten(); err == nil {
				done, err = ss.excludeApplies(done)
			}
		}
		if err != nil {
			done()
		}
	}
	if err != nil {
		ss.leave()
		return nil, nil, err
	}
	return ss, func() {
		done()
		ss.leave()
	}, nil
}

// Admit checks a request against the session and the operator's configuration, and returns the job's limits.
func (ss *Session) Admit(served *admit.Served, q *admit.Request, limits job.Limits) (job.Limits, error) {
	if ss.workspace == job.ReadOnly && q.Writes() {
		q.Narrow() // otherwise checkRequest refuses it
	}
	if err := ss.checkRequest(q); err != nil {
		return limits, err
	}
	if ss.imports() {
		return limits, nil
	}
	if err := served.StillServes(ss.peer, ss.jail.Repo()); err != nil {
		return limits, err
	}
	clamped, profile, err := served.Clamp(ss.jail.Repo(), q, limits)
	switch {
	case err != nil:
		return limits, err
	case profile != "" && profile != ss.profile:
		return limits, &job.Refusal{Step: "profile", Message: fmt.Sprintf("jobs in %q must use profile %q, but the session has %q",
			ss.jail.Repo().Path, profile, ss.profile)}
	}
	return clamped, nil
}

// Access returns what the rules allow the session's jobs to reach. If the session was opened when they allowed nothing, and asked for
// no less, its jail gets a door now. A root of its own has the name server's address since it was made.
func (ss *Session) Access(served *admit.Served) (admit.Access, error) {
	access := served.Access(ss.peer, ss.jail.Repo().Paths())
	if access.Rules == nil || ss.imports() || ss.root() || ss.spec.Network == job.NoNetwork {
		return access, nil
	}
	return access, ss.jail.Allow()
}
