package cell

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/scan"
	"corral/isolate/wire"
	"corral/job"
	"corral/rootfs"
)

// pathsToProtect asks the jail's scanner for the paths to protect. The answer is passed on to the stub unread. It is
// nil without protection.
func (j *Jail) pathsToProtect(p job.Protection) (*inside.Kept, error) {
	op := scan.OpKeepHooks
	switch p {
	case job.ProtectNone:
		return nil, nil
	case job.ProtectAll:
		op = scan.OpKeepAll
	}
	a, err := j.watcher().askKept(op)
	switch {
	case errors.Is(err, scan.ErrTooMany):
		return nil, &job.Refusal{
			Step: "protect",
			Message: fmt.Sprintf("%q has more sensitive paths than can be protected (%d), or too many directories to search",
				j.repo.Path, scan.MaxKept),
			Hint: "keep nested repositories elsewhere, or run the job with workspace readonly or overlay",
		}
	case err != nil:
		j.dropScanner()
		return nil, &job.Refusal{Step: "protect", Message: fmt.Sprintf("sensitive paths of %q cannot be protected: %v", j.repo.Path, err)}
	}
	return &inside.Kept{Count: a.Count, List: a.List}, nil
}

// maxMountPoints is the maximum number of file systems below a repository that keepMountPoints keeps jobs from writing beneath.
const maxMountPoints = 64

// keepMountPoints adds to the paths to protect those below the repository where another file system is mounted on the host. Jobs do not
// see it, and what they wrote beneath it would not be where their user looks. The job's result names them, unless an earlier one did.
func (sl *Slot) keepMountPoints(kept *inside.Kept, tool bool) (*inside.Kept, error) {
	j := sl.jail
	points, err := j.s.mounts.Below(j.repo.Path, maxMountPoints)
	if err != nil || len(points) == 0 {
		return kept, err
	}
	all := kept.Copy()
	for _, p := range points { // after all others: a mount on a directory above would hide it
		all.Add(byte(scan.ReadOnly), p)
	}
	if told := strings.Join(points, "\n"); !tool && j.toldMounts.Swap(told) != told {
		sl.news = points
		j.s.Log.Info("file systems are mounted below the repository: jobs do not see them, and their places are read-only",
			"jail", j.name, "repo", j.repo.Path, "paths", points)
	}
	return all, nil
}

// addWorktrees has directories made in place of a list of worktrees, see wire.Run: by the stub in the job's private directories and in a
// session's own root, otherwise here in the root of the jail. A job can spare an eighth of the files that it may have.
func (sl *Slot) addWorktrees(kept *inside.Kept, list string, files int64) *inside.Kept {
	if list == "" {
		return kept
	}
	all := kept.Copy()
	for path := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		parts, holds := int64(strings.Count(path, "/")), func(d rootfs.Dir) bool { return directory.Within(path, d.Path) }
		switch {
		case len(sl.jail.view.roots) == 0 && !slices.ContainsFunc(rootfs.Private, holds):
			if !sl.jail.root.addWorktree(path) && sl.jail.session == nil {
				sl.jail.Retire() // the next job gets a new one
			}
		case parts <= files/8:
			files -= 8 * parts
			all.Add(inside.Worktree, path)
		}
	}
	return all
}

// addBounds adds what a client asks for to the paths to protect. What it opens and pins comes before them, because they may lie in it;
// what is read-only and hidden after them, because each mount is of one path without the mounts below it.
func addBounds(kept *inside.Kept, b job.Bounds) (*inside.Kept, error) {
	n, ok := b.Count()
	if n == 0 && ok {
		return kept, nil
	}
	all := kept.Copy()
	if !ok || len(all.List)+len(b) > inside.MaxKept {
		return nil, &job.Refusal{Step: "protect", Message: "the bounds of the job are not valid, or too long with the sensitive paths of its repository"}
	}
	before, readOnly, hidden := "", "", ""
	for e := range b.Entries() {
		switch {
		case e[0] == job.BoundHidden:
			hidden += e
		case e[0] == job.BoundReadOnly && e[1:] != ".\x00":
			readOnly += e
		default:
			before += e
		}
	}
	all.Count, all.List = all.Count+uint32(n), before+all.List+readOnly+hidden
	return all, nil
}

// A Job is a job to be started in a slot.
type Job struct {
	Request *admit.Request
	Repo    string // path of the repository
	Limits  job.Limits
	Protect job.Protection
	// Ready is called when everything else is done: the job is sent when it returns nil. nil: nothing is to be waited for.
	Ready func() error
	Env   []string // variables, NAME=value, that the job gets unless its request sets them; at most inside.MaxEnv bytes with a NUL each
}

// Start sends the job to the slot's stub. It returns when the job was sent: its wall time counts from then.
func (sl *Slot) Start(r *Job) (sent time.Time, err error) {
	q := r.Request
	if want := sl.jail.s.groupLimits(r.Limits); want != sl.limits {
		if err := sl.group.Update(want); err != nil {
			return sent, err
		}
	}
	mount, kept, err := sl.repository(r)
	if err != nil {
		return sent, err
	}
	defer mount.Close()
	tmpBytes, tmpFiles := r.Limits.Private()
	plan := inside.Plan{
		Terminal: q.Flags&wire.FlagTerminal != 0, ReadOnly: q.Flags&wire.FlagReadOnly != 0, Stdin: q.Stdin != nil,
		TmpBytes: tmpBytes, TmpInodes: tmpFiles, Rows: q.Rows, Cols: q.Cols,
		Rlimits: host.Rlimits(r.Limits, sl.others()), Repo: r.Repo, Kept: kept != nil, NoRepo: mount == nil,
		Modes: r.Protect != job.ProtectNone,
	}
	if plan.Env, err = sl.environment(r); err != nil {
		return sent, err
	}
	if r.Limits.Wall != job.Unlimited && !inside.Skips(sl.jail.s.Skip, inside.StubDeadline) {
		plan.Wall = r.Limits.Wall + r.Limits.KillAfter + stubGrace
	}
	plan.Dir, plan.RootDir = strings.CutPrefix(q.WorkDir(), "/")
	extra, err := sl.tool(q, &plan)
	if err != nil {
		return sent, err
	}
	defer wire.CloseAll(extra.owned)
	common, err := sl.addCommon(&plan, func() (*os.File, error) { return sl.commonFor(q, r.Protect) })
	if err != nil {
		return sent, err
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
			return sent, fmt.Errorf("fchown of a pipe: %w", err)
		}
		files = append(files, f)
	}
	if r.Ready != nil {
		if err := r.Ready(); err != nil {
			return sent, err
		}
	}
	sent = time.Now()
	return sent, sl.stub.send(&plan, kept, slices.Concat(files, extra.files, common))
}

// offline are variables with which package managers report at once that a job reaches no host. They would try again, each time after
// a longer pause, and npm would ask for audits and new versions, too. A registry in the job's own network can be used.
var offline = []string{
	"npm_config_fetch_retries=0", "npm_config_audit=false", "npm_config_fund=false", "npm_config_update_notifier=false",
	"PIP_RETRIES=0", "PIP_DISABLE_PIP_VERSION_CHECK=1", "CARGO_NET_RETRY=0",
}

// environment returns the variables that the job gets unless its request sets them: its own, those that name the files of
// the jail's authority to clients, and offline if it is asked for and there is no network. Corral's own programs have no network. The
// stub adds them, in the job's own process: the supervisor does not read a request's environment.
func (sl *Slot) environment(r *Job) ([]string, error) {
	env, size := r.Env, 0
	if r.Request.Tool == string(job.ToolNone) {
		env = slices.Concat(env, sl.jail.trusted.Env())
		if r.Request.Flags&wire.FlagUsual != 0 && sl.kind == inside.NoDoor {
			env = slices.Concat(env, offline)
		}
	}
	for _, v := range env {
		size += len(v) + 1
	}
	if size > inside.MaxEnv {
		return nil, fmt.Errorf("variables for the job have %d bytes, the maximum is %d", size, inside.MaxEnv)
	}
	return env, nil
}

// stubGrace is how long after the last moment at which a job is killed the stub ends it itself: by then the supervisor has done so, unless
// it is stopped.
const stubGrace = 100 * time.Millisecond

// extra holds descriptors of a plan beyond those of every job. The caller closes owned after sending the plan.
type extra struct{ files, owned []*os.File }

// tool makes the plan run one of corral's own programs, if the job requests a tool.
func (sl *Slot) tool(q *admit.Request, plan *inside.Plan) (extra, error) {
	if q.Tool == string(job.ToolNone) {
		return extra{}, nil
	}
	plan.ExecFD = true
	if q.Tool == string(job.ToolStarlark) {
		return extra{files: []*os.File{sl.jail.s.Programs.Starlark}}, nil
	}
	e := extra{files: []*os.File{sl.jail.s.Programs.Layer}}
	if q.Tool == string(job.ToolChanges) {
		// An apply writes to the layer, too. No other job runs in the session meanwhile.
		part, err := sl.jail.view.fromLayer("repo", q.Flags&wire.FlagReadOnly != 0)
		if err != nil {
			return extra{}, err
		}
		plan.Layer = true
		e.files, e.owned = append(e.files, part), []*os.File{part}
	}
	return e, nil
}

// repository makes the mount of the repository for a job, nil if the job has none, and lists the paths in it that are to be protected.
func (sl *Slot) repository(r *Job) (mount *os.File, kept *inside.Kept, err error) {
	kept, err = sl.jail.pathsToProtect(r.Protect)
	if err == nil {
		kept, err = addBounds(kept, r.Request.Bounds)
	}
	if err != nil {
		return nil, nil, err
	}
	mount, err = sl.workspace(r.Request)
	if err != nil || mount == nil || sl.jail.session != nil && sl.jail.session.Import {
		return mount, kept, err
	}
	if kept, err = sl.keepMountPoints(kept, r.Request.Tool != string(job.ToolNone)); err != nil {
		mount.Close()
		return nil, nil, err
	}
	_, files := r.Limits.Private()
	return mount, sl.addWorktrees(kept, r.Request.Worktrees, files), nil
}

// workspace makes the mount of the repository for a job; nil if the job has none.
func (sl *Slot) workspace(q *admit.Request) (*os.File, error) {
	j, readOnly := sl.jail, q.Flags&wire.FlagReadOnly != 0
	switch {
	case q.Flags&wire.FlagNoRepo != 0:
		return nil, nil
	case j.session != nil && j.session.Import:
		return j.view.fromLayer("root", readOnly)
	case j.view.merged != "" && job.Tool(q.Tool).InRepository():
		return cloneMount(j.view.merged, nil, readOnly)
	}
	return sl.mount(readOnly)
}

// addCommon adds the common directory, if there is one, to the plan, and returns its mount, which the function makes.
func (sl *Slot) addCommon(plan *inside.Plan, mount func() (*os.File, error)) ([]*os.File, error) {
	c := sl.jail.repo.Common
	if c == nil {
		return nil, nil
	}
	m, err := mount()
	if err != nil {
		return nil, fmt.Errorf("the git directory of the worktree: %w", err)
	}
	plan.Common = c.Path
	return []*os.File{m}, nil
}

// commonFor makes a mount of the common directory for a job: of its overlay if there is one.
func (sl *Slot) commonFor(q *admit.Request, p job.Protection) (*os.File, error) {
	if merged := sl.jail.view.common; merged != "" && job.Tool(q.Tool).InRepository() {
		return cloneMount(merged, nil, q.Flags&wire.FlagReadOnly != 0)
	}
	return sl.common(!q.Writes() || p == job.ProtectAll)
}

// common makes a mount of the common directory itself. It is read-only if the repository is, if the operator made either readonly or
// overlay, or if the job must not change git directories.
func (sl *Slot) common(readOnly bool) (*os.File, error) {
	c := sl.jail.repo.Common
	readOnly = readOnly || sl.jail.s.Served.Now().CommonReadOnly(c.Path)
	ids := sl.idmap
	if r := sl.jail.repo; c.Owner != r.Owner {
		var err error
		if ids, err = sl.jail.s.Userns.RepoMap(c.Owner, sl.hostUID(), sl.jail.base); err != nil {
			return nil, err
		}
		defer ids.Close()
	}
	return c.Clone(ids, readOnly)
}

// mount makes a mount of the repository for the slot's job. It is not made ahead: it must have the flags that the
// host's mount has when the job comes, and must fail if the operator has unmounted it.
func (sl *Slot) mount(readOnly bool) (*os.File, error) {
	return sl.jail.repo.Clone(sl.idmap, readOnly)
}
