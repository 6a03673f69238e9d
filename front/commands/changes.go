package commands

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"corral/front/cli"
	"corral/front/server"
	"corral/front/store"
	"corral/internal/text"
	"corral/isolate/client"
	"corral/job"
	"corral/workspace/changes"
	"corral/workspace/changes/stream"
)

// changesHelp is the help text of the command.
const changesHelp = `corral changes reviews and applies what the jobs of a session changed behind an overlay of its repository.

Usage:
  corral changes show HANDLE [PATH]...    list the changes
  corral changes diff HANDLE [PATH]...    write a patch, for git apply and patch -p1
  corral changes apply HANDLE [PATH]...   apply the changes to the repository
  corral changes refresh HANDLE [PATH]... take the repository's present state for what the session has not changed
  corral changes revert HANDLE PATH...    give up the changes at PATH
  corral changes discard HANDLE           remove the changes of a session that has ended

HANDLE is the session's id or name (corral session list). PATH is in the repository, and includes everything below it.

  --dry-run             with apply: only report what would be done
  --expect DIGEST       with apply: apply nothing unless the changes have this digest
  --json                not with diff and discard: print one JSON object
  --supervisor SOCKET   use the supervisor on this socket (default ` + "`" + client.DefaultSocket + "`" + `)

show and diff print the digest of the changes at PATH to standard error. apply --expect DIGEST, with the same paths, applies
what was reviewed, or nothing. Nothing is applied while a job of the session runs.

apply checks everything first. A path that the session changed, and that was changed differently in the repository since
the session took the repository's state, is a conflict. If there is one, nothing is applied, and standard error lists the
conflicts. Each file is replaced atomically, and an interrupted apply can be repeated. When all changes of a session that has
ended are applied, its layer is removed.

A session takes the repository's state when it is opened. What changes in the repository later it may see or not: show names
that on standard error. apply, refresh and revert take the repository's present state: the session then sees it in all that it
has not changed. refresh lists what is newer, and the conflicts that are left. Settle one by revert, which gives the session
the repository's file, or by refresh with its PATH, which lets a later apply replace the repository's file by the session's.

Exit code: 0; 1 if there is a conflict, apply found other changes than expected, or a patch cannot contain all changes.
`

// maxShown bounds the number of changes that are listed. A patch and an apply have no bound.
const maxShown = 100_000

// changesOptions is the command line of corral changes.
type changesOptions struct {
	verb, handle string
	paths        []string
	dry, json    bool
	expect       stream.Digest
	supervisor   string
}

// changesCommand is `corral changes`, which reviews and applies what the jobs of a session changed behind an
// overlay.
func changesCommand(args []string) error {
	var o changesOptions
	if err := o.parse(args); err != nil {
		return err
	}
	ctx, stop := cli.UntilStopped()
	defer stop()
	var p pipes
	c, finish, err := o.connect(&p)
	if err != nil {
		return err
	}
	defer finish()
	defer p.close()
	s, err := job.FindSession(ctx, c, o.handle, false)
	if err != nil {
		return err
	}
	if o.paths, err = pathsBelow(s.Repo, o.paths); err != nil {
		return err
	}
	v := &changesView{options: o, sessions: c, runner: c, session: s, layer: changes.Of(s)}
	v.layer.Pipe, v.layer.Digest = p.take, o.verb == "show" || o.verb == "diff" || o.dry
	v.layer.Claim = claimOf(o.verb)
	return v.do(ctx)
}

// claimOf returns what the audit log has of a job that the command runs.
func claimOf(verb string) job.Claim {
	return job.Claim{Tool: "changes " + verb, Principal: server.UserPrincipal()}
}

// parse parses the command line. Everything after a double dash is a path.
func (o *changesOptions) parse(args []string) error {
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
	words, err := cli.ParseMixed(f, args, changesHelp)
	if err != nil {
		return err
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
	case !slices.Contains([]string{"show", "diff", "apply", "refresh", "revert", "discard"}, o.verb):
		err = fmt.Errorf("changes: %q is not a command", o.verb)
	case o.handle == "":
		err = errors.New("missing HANDLE of a session")
	case o.dry && o.verb != "apply":
		err = errors.New("--dry-run requires apply")
	case o.expect != (stream.Digest{}) && o.verb != "apply":
		err = errors.New("--expect requires apply")
	case o.json && (o.verb == "diff" || o.verb == "discard"):
		err = errors.New("--json requires show, apply, refresh or revert")
	case o.verb == "revert" && len(o.paths) == 0:
		err = errors.New("revert requires a PATH: . is everything")
	case o.verb == "discard" && len(o.paths) > 0:
		err = errors.New("discard removes all changes: it takes no paths")
	}
	if err != nil {
		return fmt.Errorf("%w\nhint: corral changes --help", err)
	}
	return nil
}

// pathsBelow returns paths relative to the repository. Relative paths are relative to it already.
func pathsBelow(repo string, paths []string) ([]string, error) {
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

func (v *changesView) do(ctx context.Context) error {
	if v.session.Workspace != job.Overlay {
		return fmt.Errorf("session %s has no overlay: its jobs changed the repository itself", v.session.ID)
	}
	switch v.options.verb {
	case "show":
		return v.show(ctx)
	case "diff":
		return v.diff(ctx)
	case "apply":
		return v.apply(ctx)
	case "refresh", "revert":
		return v.refresh(ctx)
	}
	return v.discard(ctx)
}

func (v *changesView) discard(ctx context.Context) error {
	if !v.session.Kept {
		return fmt.Errorf("session %s is open\nhint: corral session close --discard %s ends it, and every job in it",
			v.session.ID, v.session.ID)
	}
	_, err := v.sessions.CloseSession(ctx, v.session.ID, false)
	return err
}

// diff writes the patch, and reports what is not in it.
func (v *changesView) diff(ctx context.Context) error {
	out := cli.NewEscaper(os.Stdout)
	sum, err := changes.Patch(ctx, v.runner, v.layer, out, v.options.paths)
	if err = errors.Join(err, out.Flush()); err != nil {
		return err
	}
	for _, line := range store.Missing(sum) {
		cli.Warn("%s", line)
	}
	if sum.Files+sum.LeftCount+sum.OfGit > 0 {
		printDigest(sum.Digest)
	}
	if !sum.Whole() {
		return cli.Exit(1, nil)
	}
	return nil
}

// printDigest writes the last line of show and diff.
func printDigest(d stream.Digest) {
	if d == (stream.Digest{}) {
		cli.Warn("these changes have no digest: not everything could be examined")
		return
	}
	cli.Warn("digest of these changes: %v", d)
}

// apply applies the changes, and removes the layer of a session that has ended if nothing is left to apply.
func (v *changesView) apply(ctx context.Context) error {
	r := &applyReport{view: v, out: cli.NewEscaper(os.Stdout), done: []changeJSON{}, conflicts: []conflictJSON{}}
	var err error
	r.sum, err = changes.Apply(ctx, v.runner, v.layer, v.options.expect, v.options.dry, v.options.paths, r.applied, r.conflict)
	if err != nil {
		return errors.Join(err, r.out.Flush())
	}
	if v.finished(r.sum) {
		if _, err := v.sessions.CloseSession(ctx, v.session.ID, false); err != nil {
			return errors.Join(fmt.Errorf("the changes are applied, but the layer was not removed: %w", err), r.out.Flush())
		}
		r.removed = true
	}
	if err := errors.Join(r.end(), r.out.Flush()); err != nil {
		return err
	}
	if v.gitElsewhere() {
		cli.Warn("commits of the session are in its own copy of the git directory, which apply leaves as it is (hint: cd %s && "+
			"corral session exec %s -- git bundle create - HEAD ^$(git rev-parse HEAD) >/tmp/commits && git fetch /tmp/commits HEAD && git reset FETCH_HEAD)",
			text.Quote(v.session.Repo), v.session.ID)
	}
	if r.sum.Conflicts > 0 || r.sum.Failed != "" {
		return cli.Exit(1, nil)
	}
	return nil
}

// gitElsewhere reports whether the repository is a worktree, or has its git directory elsewhere for another reason.
func (v *changesView) gitElsewhere() bool {
	info, err := os.Lstat(filepath.Join(v.session.Repo, ".git"))
	return err == nil && info.Mode().IsRegular()
}

// finished reports whether nothing is left in the layer of a session that has ended. Commits in a worktree are left.
func (v *changesView) finished(s *stream.Sum) bool {
	whole := v.session.Kept && !v.options.dry && len(v.options.paths) == 0
	return whole && s.Conflicts == 0 && s.Failed == "" && s.Skipped == 0 && !v.gitElsewhere()
}
