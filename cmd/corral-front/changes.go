package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"corral/front/cli"
	"corral/front/privilege"
	"corral/front/supervisor"
	"corral/internal/text"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/job"
	"corral/workspace/changes"
	"corral/workspace/changes/stream"
)

const changesHelp = `corral changes reviews and applies what the jobs of a session changed behind an overlay of its repository.

Usage:
  corral changes show HANDLE [PATH]...    list the changes
  corral changes diff HANDLE [PATH]...    write a patch, for git apply and patch -p1
  corral changes apply HANDLE [PATH]...   apply the changes to the repository
  corral changes discard HANDLE           remove the changes of a session that has ended

HANDLE is the session's id or name (corral session list). PATH is in the repository, and includes everything below it.

  --dry-run             with apply: only report what would be done
  --expect DIGEST       with apply: apply nothing unless the changes have this digest
  --json                with show and apply: print one JSON object
  --supervisor SOCKET   use the supervisor on this socket (default ` + "`" + client.DefaultSocket + "`" + `)

show and diff print the digest of the changes at PATH to standard error. apply --expect DIGEST, with the same paths, applies
what was reviewed, or nothing. Nothing is applied while a job of the session runs.

apply checks everything first. A path that the session changed, and that was changed differently in the repository since
the session was opened, is a conflict. If there is one, nothing is applied, and standard error lists the conflicts. Each
file is replaced atomically, and an interrupted apply can be repeated. When all changes of a session that has ended are
applied, its layer is removed.

Exit code: 0; 1 if apply found a conflict or other changes than expected, or if a patch cannot contain all changes.
`

// maxShown bounds the number of changes that are listed. A patch and an apply have no bound.
const maxShown = 100_000

// A changesOptions is the command line of corral changes.
type changesOptions struct {
	verb, handle string
	paths        []string
	dry, json    bool
	expect       stream.Digest
	supervisor   string
}

func changesCommand(args []string) (int, error) {
	var o changesOptions
	if ended, code, err := o.parse(args); ended {
		return code, err
	}
	ctx, stop := cli.UntilStopped()
	defer stop()
	var p pipes
	c, finish, err := o.connect(&p)
	if err != nil {
		return cli.Failure, err
	}
	defer finish()
	defer p.close()
	s, err := findSession(ctx, c, o.handle)
	if err != nil {
		return cli.Failure, err
	}
	if o.paths, err = below(s.Repo, o.paths); err != nil {
		return cli.Failure, err
	}
	v := &changesView{options: o, sessions: c, runner: c, session: s, layer: changes.Of(s)}
	v.layer.Pipe, v.layer.Digest = p.take, o.verb != "apply" || o.dry
	v.layer.Claim = job.Claim{Tool: "changes " + o.verb, Principal: fmt.Sprintf("user:%d", os.Getuid())}
	return v.do(ctx)
}

// connect connects to the supervisor, or starts one for the session's layer if root runs this and no supervisor
// listens, and drops root. It puts two pipes into p, which belong to the user that the supervisor accepts descriptors
// from.
func (o *changesOptions) connect(p *pipes) (*client.Client, func(), error) {
	c, err := client.Dial(o.supervisor)
	switch {
	case err == nil: // before root is dropped: the supervisor identifies its client
		if err := errors.Join(p.make(2), privilege.Drop()); err != nil {
			return nil, nil, errors.Join(err, c.Close())
		}
		return c, func() { _ = c.Close() }, nil
	case o.supervisor != "" || os.Geteuid() != 0 || !sessionID.MatchString(o.handle):
		return nil, nil, errors.Join(supervisor.Hint(err, o.supervisor), privilege.Drop())
	}
	c, finish, err := supervisor.Embed(embed.Options{Kept: o.handle})
	if err != nil {
		return nil, nil, err
	}
	if err := p.make(2); err != nil {
		finish()
		return nil, nil, err
	}
	return c, finish, nil
}

// sessionID matches the ids of sessions. A supervisor that is started for one layer does not know names of sessions.
var sessionID = regexp.MustCompile("^[0-9a-f]{32}$")

// pipes are created before they are used, by another user.
type pipes [][2]*os.File

func (p *pipes) make(n int) error {
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			p.close()
			return err
		}
		*p = append(*p, [2]*os.File{r, w})
	}
	return nil
}

// take removes and returns a pipe, which the caller closes.
func (p *pipes) take() (r, w *os.File, err error) {
	if len(*p) == 0 {
		return nil, nil, errors.New("no pipe left")
	}
	first := (*p)[0]
	*p = (*p)[1:]
	return first[0], first[1], nil
}

func (p *pipes) close() {
	for _, one := range *p {
		_ = one[0].Close()
		_ = one[1].Close()
	}
	*p = nil
}

// parse parses the command line. Everything after a double dash is a path.
func (o *changesOptions) parse(args []string) (ended bool, code int, err error) {
	var paths []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, paths = args[:i], args[i+1:]
	}
	f := flag.NewFlagSet("changes", flag.ContinueOnError)
	f.BoolVar(&o.dry, "dry-run", false, "")
	f.BoolVar(&o.json, "json", false, "")
	f.Func("expect", "", func(s string) (err error) {
		o.expect, err = stream.ParseDigest(s)
		return err
	})
	f.StringVar(&o.supervisor, "supervisor", "", "")
	words, ended, code, err := cli.ParseMixed(f, args, changesHelp)
	if ended {
		return true, code, err
	}
	words = append(words, paths...)
	if len(words) > 0 {
		o.verb = words[0]
	}
	if len(words) > 1 {
		o.handle, o.paths = words[1], words[2:]
	}
	switch {
	case len(words) == 0:
		err = errors.New("no command given")
	case !slices.Contains([]string{"show", "diff", "apply", "discard"}, o.verb):
		err = fmt.Errorf("changes: %q is not a command", o.verb)
	case o.handle == "":
		err = errors.New("missing HANDLE of a session")
	case o.dry && o.verb != "apply":
		err = errors.New("--dry-run requires apply")
	case o.expect != (stream.Digest{}) && o.verb != "apply":
		err = errors.New("--expect requires apply")
	case o.json && o.verb != "show" && o.verb != "apply":
		err = errors.New("--json requires show or apply")
	case o.verb == "discard" && len(o.paths) > 0:
		err = errors.New("discard removes all changes: it takes no paths")
	}
	if err != nil {
		return true, cli.Failure, errors.Join(fmt.Errorf("%w\nhint: corral changes --help", err), privilege.Drop())
	}
	return false, 0, nil
}

// findSession returns the session with this id, or the only one with this name.
func findSession(ctx context.Context, c job.Sessions, handle string) (job.Session, error) {
	list, err := c.ListSessions(ctx)
	if err != nil {
		return job.Session{}, err
	}
	var found []job.Session
	for _, s := range list {
		if s.ID == handle {
			return s, nil
		}
		if s.Name == handle {
			found = append(found, s)
		}
	}
	switch len(found) {
	case 0:
		return job.Session{}, fmt.Errorf("there is no session %s\nhint: it may have ended without changes: corral session list", text.Quote(handle))
	case 1:
		return found[0], nil
	}
	return job.Session{}, fmt.Errorf("%d sessions are called %s\nhint: use the id: corral session list", len(found), text.Quote(handle))
}

// below returns paths relative to the repository. Relative paths are relative to it already.
func below(repo string, paths []string) ([]string, error) {
	var all []string
	for _, p := range paths {
		rel := filepath.Clean(p)
		if filepath.IsAbs(p) {
			var err error
			if rel, err = filepath.Rel(repo, p); err != nil {
				return nil, err
			}
		}
		if p == "" || rel == ".." || strings.HasPrefix(rel, "../") {
			return nil, fmt.Errorf("%s is not in the repository %s", text.Quote(p), text.Quote(repo))
		}
		all = append(all, rel)
	}
	return all, nil
}

// A changesView has what one command works with.
type changesView struct {
	options  changesOptions
	sessions job.Sessions
	runner   job.Runner
	session  job.Session
	layer    changes.Layer
}

func (v *changesView) do(ctx context.Context) (int, error) {
	if v.session.Workspace != job.Overlay {
		return cli.Failure, fmt.Errorf("session %s has no overlay: its jobs changed the repository itself", v.session.ID)
	}
	switch v.options.verb {
	case "show":
		return v.show(ctx)
	case "diff":
		return v.diff(ctx)
	case "apply":
		return v.apply(ctx)
	}
	return v.discard(ctx)
}

func (v *changesView) discard(ctx context.Context) (int, error) {
	if !v.session.Kept {
		return cli.Failure, fmt.Errorf("session %s is open\nhint: corral session close --discard %s ends it, and every job in it", v.session.ID, v.session.ID)
	}
	if _, err := v.sessions.CloseSession(ctx, v.session.ID, false); err != nil {
		return cli.Failure, err
	}
	return 0, nil
}

// diff writes the patch, and reports what is not in it.
func (v *changesView) diff(ctx context.Context) (int, error) {
	out := cli.Sink(os.Stdout)
	sum, err := changes.Patch(ctx, v.runner, v.layer, out, v.options.paths)
	if err = errors.Join(err, out.Flush()); err != nil {
		return cli.Failure, err
	}
	for _, line := range notIn(sum) {
		cli.Complain("%s", line)
	}
	if sum.Files+sum.LeftCount+sum.OfGit > 0 {
		tellDigest(sum.Digest)
	}
	if !sum.Whole() {
		return 1, nil
	}
	return 0, nil
}

// tellDigest writes the last line of show and diff.
func tellDigest(d stream.Digest) {
	if d == (stream.Digest{}) {
		cli.Complain("these changes have no digest: not everything could be examined")
		return
	}
	cli.Complain("digest of these changes: %v", d)
}

// apply applies the changes, and removes the layer of a session that has ended if nothing is left to apply.
func (v *changesView) apply(ctx context.Context) (int, error) {
	r := &applyReport{view: v, out: cli.Sink(os.Stdout), done: []changeJSON{}, conflicts: []conflictJSON{}}
	var err error
	r.sum, err = changes.Apply(ctx, v.runner, v.layer, v.options.expect, v.options.dry, v.options.paths, r.applied, r.conflict)
	if err != nil {
		return cli.Failure, errors.Join(err, r.out.Flush())
	}
	if v.finished(r.sum) {
		if _, err := v.sessions.CloseSession(ctx, v.session.ID, false); err != nil {
			return cli.Failure, errors.Join(fmt.Errorf("the changes are applied, but the layer was not removed: %w", err), r.out.Flush())
		}
		r.removed = true
	}
	if err := errors.Join(r.end(), r.out.Flush()); err != nil {
		return cli.Failure, err
	}
	if r.sum.Conflicts > 0 || r.sum.Failed != "" {
		return 1, nil
	}
	return 0, nil
}

// finished reports whether nothing is left in the layer of a session that has ended.
func (v *changesView) finished(s *stream.Sum) bool {
	return v.session.Kept && !v.options.dry && len(v.options.paths) == 0 && s.Conflicts == 0 && s.Failed == "" && s.Skipped == 0
}
