package commands

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"corral/front/cli"
	"corral/internal/text"
	"corral/workspace/changes"
	"corral/workspace/changes/stream"
)

// A newerJSON is the JSON form of a path of the repository that is newer than the session's state of it.
type newerJSON struct {
	Path    string `json:"path"`
	Bytes64 string `json:"pathBase64,omitempty"`
	Dir     bool   `json:"directory,omitempty"`
	Touched bool   `json:"changedBySession,omitempty"`
}

// newerPaths are the paths of the repository that are newer.
type newerPaths struct {
	list []newerJSON
	all  int64
}

const (
	maxNewer  = 1000 // paths of the repository that are listed
	maxWarned = 20   // of them as warnings
	newerTime = 30 * time.Second
)

func (p *newerPaths) add(n stream.Newer) error {
	if len(p.list) < maxNewer {
		p.list = append(p.list, newerOf(n))
	}
	return nil
}

func newerOf(n stream.Newer) newerJSON {
	return newerJSON{n.Path, pathBase64(n.Path), n.Dir, n.Touched}
}

func (p *newerPaths) more() int64 { return max(p.all-int64(len(p.list)), 0) }

// line returns a path as a line of text.
func (n newerJSON) line() string {
	name := text.Quote(n.Path)
	if n.Dir {
		name += "/"
	}
	if n.Touched {
		name += " (the session changed it, too)"
	}
	return name
}

// newer lists what changed in the repository, of what the command is about, since the session took its state.
func (v *changesView) newer(ctx context.Context) (*newerPaths, error) {
	p := &newerPaths{list: []newerJSON{}}
	sum, err := changes.Newer(ctx, v.runner, v.layer, maxNewer, newerTime, v.options.paths, p.add)
	if err == nil {
		p.all = sum.Newer
	}
	return p, err
}

// warn names what is newer on standard error.
func (p *newerPaths) warn(session string) {
	if p.all == 0 {
		return
	}
	for _, n := range p.list[:min(len(p.list), maxWarned)] {
		cli.Warn("newer in the repository: %s", n.line())
	}
	if more := p.all - maxWarned; more > 0 {
		cli.Warn("%d more are newer in the repository", more)
	}
	fmt.Fprintln(os.Stderr, "hint: jobs of the session may see these as they were: corral changes refresh "+session)
}

// refresh makes the repository's present state the session's, and reports that; as revert, it gives up changes first.
func (v *changesView) refresh(ctx context.Context) error {
	r := &applyReport{view: v, out: cli.NewEscaper(os.Stdout), done: []changeJSON{}, conflicts: []conflictJSON{}}
	taken := &newerPaths{list: []newerJSON{}}
	var err error
	if v.options.verb == "revert" {
		r.sum, err = changes.Revert(ctx, v.runner, v.layer, v.options.paths, r.applied, r.conflict)
	} else {
		r.sum, err = changes.Refresh(ctx, v.runner, v.layer, v.options.paths, func(n stream.Newer) error {
			if v.options.json {
				return taken.add(n)
			}
			_, err := fmt.Fprintf(r.out, "newer %s\n", newerOf(n).line())
			return err
		}, r.conflict)
	}
	if err == nil && r.sum.Failed != "" {
		err = errors.New(r.sum.Failed)
	}
	if err != nil {
		return errors.Join(err, r.out.Flush())
	}
	taken.all = r.sum.Newer
	if v.options.json {
		err = cli.WriteJSON(r.out, struct {
			Session   string         `json:"session"`
			Reverted  []changeJSON   `json:"reverted"`
			Newer     []newerJSON    `json:"repositoryChanges"`
			NewerMore int64          `json:"repositoryChangesMore"`
			Conflicts []conflictJSON `json:"conflicts"`
		}{v.session.ID, r.done, taken.list, taken.more(), r.conflicts})
	}
	if err = errors.Join(err, r.out.Flush()); err != nil {
		return err
	}
	if r.sum.Conflicts > 0 {
		fmt.Fprintf(os.Stderr, "hint: take the repository's file: corral changes revert %[1]s PATH; or let apply replace it: corral changes refresh %[1]s PATH\n",
			v.session.ID)
		return cli.Exit(1, nil)
	}
	return nil
}
