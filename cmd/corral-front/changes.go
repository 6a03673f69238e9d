package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/text"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/job"
	"corral/workspace/changes"
	"corral/workspace/changes/stream"
)

const changesHelp = `corral changes is about what the jobs of a session changed behind an overlay of its repository.

Usage:
  corral changes show HANDLE [PATH]...    list it
  corral changes diff HANDLE [PATH]...    write a patch, for git apply and patch -p1
  corral changes apply HANDLE [PATH]...   make the repository what the jobs have seen
  corral changes discard HANDLE           remove what a session that has ended left

HANDLE is the session's id or its name (corral session list). PATH is in the repository, and stands for all below it.

  --dry-run             of apply: only say what would be done
  --expect DIGEST       of apply: apply nothing unless the changes have this digest
  --json                of show and apply: print one JSON object
  --supervisor SOCKET   use the supervisor there (default ` + "`" + client.DefaultSocket + "`" + `)

show and diff end with the digest of the changes at PATH, on standard error. apply --expect DIGEST, with the same paths, applies
what was reviewed or nothing. While a job of the session runs, nothing is applied.

apply checks everything first. What was changed in the repository since the session was opened, at a path that the
session changed to something else, is in conflict: then nothing is applied, and standard error says where. Each file is
replaced at once, and an apply that was ended half-way can be done again. When all of it is applied, what a session that
has ended left is removed.

Exit code: 0; 1 if apply met a conflict or other changes than expected, or a patch cannot say everything.
`

// Bounds of what people are shown. A patch and an apply have none.
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
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	var p pipes
	c, finish, err := o.connect(&p)
	if err != nil {
		return failure, err
	}
	defer finish()
	defer p.close()
	s, err := findSession(ctx, c, o.handle)
	if err != nil {
		return failure, err
	}
	if o.paths, err = below(s.Repo, o.paths); err != nil {
		return failure, err
	}
	v := &changesView{options: o, sessions: c, runner: c, session: s, layer: changes.Of(s)}
	v.layer.Pipe, v.layer.Digest = p.take, o.verb != "apply" || o.dry
	v.layer.Claim = job.Claim{Tool: "changes " + o.verb, Principal: fmt.Sprintf("user:%d", os.Getuid())}
	return v.do(ctx)
}

// connect connects to the supervisor, or starts one for the layer when root asks and none runs, and gives up root. The two
// pipes that p gets are made by whom the supervisor takes them from.
func (o *changesOptions) connect(p *pipes) (*client.Client, func(), error) {
	c, err := client.Dial(o.supervisor)
	switch {
	case err == nil: // root's still: the supervisor is to know who asks
		if err := errors.Join(p.make(2), dropRoot()); err != nil {
			return nil, nil, errors.Join(err, c.Close())
		}
		return c, func() { _ = c.Close() }, nil
	case o.supervisor != "" || os.Geteuid() != 0 || !sessionID.MatchString(o.handle):
		return nil, nil, errors.Join(hinted(err, o.supervisor), dropRoot())
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	c, finish, err := embed.Start(embed.Options{Program: filepath.Join(filepath.Dir(exe), "corrald"), Kept: o.handle})
	if err != nil {
		return nil, nil, err
	}
	if err := p.make(2); err != nil {
		finish()
		return nil, nil, err
	}
	return c, finish, nil
}

// sessionID is what the supervisor calls a session. A supervisor that is started for one does not know names.
var sessionID = regexp.MustCompile("^[0-9a-f]{32}$")

// pipes are made ahead of their use.
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

// take returns one, which is the caller's then.
func (p *pipes) take() (r, w *os.File, err error) {
	if len(*p) == 0 {
		return nil, nil, errors.New("no pipe is left")
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

// parse reads the command line. Behind a double dash there are paths only.
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
	words, ended, code, err := parseMixed(f, args, changesHelp)
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
		err = fmt.Errorf("changes: %q is no command", o.verb)
	case o.handle == "":
		err = errors.New("of which session? its id is wanted")
	case o.dry && o.verb != "apply":
		err = errors.New("--dry-run is of apply")
	case o.expect != (stream.Digest{}) && o.verb != "apply":
		err = errors.New("--expect is of apply")
	case o.json && o.verb != "show" && o.verb != "apply":
		err = errors.New("--json is of show and apply")
	case o.verb == "discard" && len(o.paths) > 0:
		err = errors.New("discard removes everything: no paths are wanted")
	}
	if err != nil {
		return true, failure, errors.Join(fmt.Errorf("%w\nhint: corral changes --help", err), dropRoot())
	}
	return false, 0, nil
}

// findSession looks for a session by its id, or by its name if that is one's alone.
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
		return job.Session{}, fmt.Errorf("there is no session %s\nhint: it may have ended with nothing changed: corral session list", text.Quote(handle))
	case 1:
		return found[0], nil
	}
	return job.Session{}, fmt.Errorf("%d sessions are called %s\nhint: take the id: corral session list", len(found), text.Quote(handle))
}

// below makes paths relative to the repository. Relative ones are that already.
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

// A changesView is what one command works with.
type changesView struct {
	options  changesOptions
	sessions job.Sessions
	runner   job.Runner
	session  job.Session
	layer    changes.Layer
}

func (v *changesView) do(ctx context.Context) (int, error) {
	if v.session.Workspace != job.Overlay {
		return failure, fmt.Errorf("session %s has no overlay: what its jobs changed is in the repository", v.session.ID)
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
		return failure, fmt.Errorf("session %s is open\nhint: corral session close --discard %s ends it, and every job in it", v.session.ID, v.session.ID)
	}
	if _, err := v.sessions.CloseSession(ctx, v.session.ID, false); err != nil {
		return failure, err
	}
	return 0, nil
}

// diff writes the patch, and says what is not in it.
func (v *changesView) diff(ctx context.Context) (int, error) {
	out := sink(os.Stdout)
	sum, err := changes.Patch(ctx, v.runner, v.layer, out, v.options.paths)
	if err = errors.Join(err, out.flush()); err != nil {
		return failure, err
	}
	for _, line := range notIn(sum) {
		complain("%s", line)
	}
	if sum.Files+sum.LeftCount+sum.OfGit > 0 {
		tellDigest(sum.Digest)
	}
	if !sum.Whole() {
		return 1, nil
	}
	return 0, nil
}

// tellDigest ends what show and diff say.
func tellDigest(d stream.Digest) {
	if d == (stream.Digest{}) {
		complain("these changes have no digest: not everything could be looked at")
		return
	}
	complain("digest of these changes: %v", d)
}

// complain tells a person something that is no error.
func complain(format string, args ...any) {
	fmt.Fprintln(os.Stderr, text.Lines("corral: "+fmt.Sprintf(format, args...)))
}

// apply has the changes applied, and what a session left removed if nothing is left to apply.
func (v *changesView) apply(ctx context.Context) (int, error) {
	r := &applyReport{view: v, out: sink(os.Stdout), done: []changeJSON{}, conflicts: []conflictJSON{}}
	var err error
	r.sum, err = changes.Apply(ctx, v.runner, v.layer, v.options.expect, v.options.dry, v.options.paths, r.applied, r.conflict)
	if err != nil {
		return failure, errors.Join(err, r.out.flush())
	}
	if v.finished(r.sum) {
		if _, err := v.sessions.CloseSession(ctx, v.session.ID, false); err != nil {
			return failure, errors.Join(fmt.Errorf("applied, and the layer was not removed: %w", err), r.out.flush())
		}
		r.removed = true
	}
	if err := errors.Join(r.end(), r.out.flush()); err != nil {
		return failure, err
	}
	if r.sum.Conflicts > 0 || r.sum.Failed != "" {
		return 1, nil
	}
	return 0, nil
}

// finished says whether a layer was kept for nothing but what is applied now.
func (v *changesView) finished(s *stream.Sum) bool {
	return v.session.Kept && !v.options.dry && len(v.options.paths) == 0 && s.Conflicts == 0 && s.Failed == "" && s.Skipped == 0
}
