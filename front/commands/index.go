package commands

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"corral/front/cli"
	"corral/front/server"
	stores "corral/front/store"
	"corral/front/supervisor"
	"corral/internal/config"
	"corral/internal/log"
	"corral/internal/text"
	"corral/job"
	"corral/store/artifact"
	"corral/store/index"
)

// indexHelp is the help text of the command.
const indexHelp = `corral index manages the full-text index of the output of jobs, which ctx_search searches.

Usage:
  corral index stats             show what is indexed, by repository and client
  corral index purge --yes       remove the index; the output itself is kept, see corral output
  corral index rebuild --yes     remove the index, and index the stored output again

  --repo ID          only this repository
  --principal NAME   only this client: user:NAME or token:NAME
  --config FILE      read this configuration, too; it overrides the operator's and the user's
  --state DIR        use this state directory
  --json             print JSON

Each index belongs to one repository and one client. Indexes are found by the repositories and tokens in the configuration
and by the stored output; others have to be named by --repo and --principal. Texts added by ctx_index, and output that has
expired, cannot be indexed again.
`

// maxArtifacts bounds the number of artifacts that are examined.
const maxArtifacts = 100_000

// An indexCall is the command line of corral index.
type indexCall struct {
	verb                           string
	repo, principal, config, state string
	yes, json                      bool
}

// indexCommand is `corral index`, which manages the full-text index of stored output.
func indexCommand(args []string) error {
	o := &indexCall{}
	if err := o.parse(args); err != nil {
		return err
	}
	// Files are opened before root is dropped, and parsed after.
	files, err := config.OpenFront(server.ConfigSources(o.config)...)
	if err != nil {
		return err
	}
	states, err := supervisor.OpenExistingState(o.state, filepath.Join(supervisor.StateDir, "users"), "")
	var c config.Config
	if err == nil {
		c, err = files.Load()
	}
	if err = errors.Join(err, files.Close()); err != nil {
		return err
	}
	cli.IgnorePipes()
	ctx, stop := cli.UntilStopped()
	defer stop()
	all := []*baseEntry{}
	for _, f := range states {
		list, err := o.inState(ctx, c, f)
		_ = f.Close()
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	return o.print(all)
}

// parse parses the command line; options stand after the command.
func (o *indexCall) parse(args []string) error {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		o.verb, args = args[0], args[1:]
	}
	f := flag.NewFlagSet("index", flag.ContinueOnError)
	f.StringVar(&o.repo, "repo", "", "")
	f.StringVar(&o.principal, "principal", "", "")
	f.StringVar(&o.config, "config", "", "")
	f.StringVar(&o.state, "state", "", "")
	f.BoolVar(&o.yes, "yes", false, "")
	f.BoolVar(&o.json, "json", false, "")
	if err := cli.ParseFlags(f, args, indexHelp); err != nil {
		return err
	}
	switch {
	case !slices.Contains([]string{"stats", "purge", "rebuild"}, o.verb):
		return cli.Misused("index", indexHelp, strings.Fields(o.verb))
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q\nhint: corral index --help", f.Arg(0))
	case o.verb != "stats" && !o.yes:
		return fmt.Errorf("%s removes the index\nhint: to confirm: corral index %[1]s --yes", o.verb)
	}
	return nil
}

// A baseEntry describes a base as it is, or as it was before it was removed.
type baseEntry struct {
	Repo      string     `json:"repoId"`
	Principal string     `json:"principal"`
	Sources   int        `json:"sources"`
	Sections  int        `json:"sections"`
	Bytes     int64      `json:"bytes"`
	Disk      int64      `json:"diskBytes"`
	Oldest    *time.Time `json:"oldest,omitempty"`
	Newest    *time.Time `json:"newest,omitempty"`
}

func entryOf(b index.Base, s index.Stats) *baseEntry {
	e := &baseEntry{Repo: b.Repo, Principal: b.Principal, Sources: s.Sources, Sections: s.Sections, Bytes: s.Bytes, Disk: s.Disk}
	if s.Sources > 0 {
		oldest, newest := s.Oldest.UTC(), s.Newest.UTC()
		e.Oldest, e.Newest = &oldest, &newest
	}
	return e
}

// inState runs the command on the bases of one state directory, and returns those that contain or contained something.
func (o *indexCall) inState(ctx context.Context, c config.Config, state *os.File) (list []*baseEntry, err error) {
	store, err := artifact.Open(state, artifact.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	x, err := index.Open(state, index.Options{TTL: c.Index.TTL, MaxBytes: c.Index.MaxBytes, Log: log.Stderr(slog.LevelInfo, false)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	bases, err := o.bases(c, store)
	if err != nil {
		return nil, err
	}
	for _, b := range bases {
		s, err := o.do(ctx, x, store, b)
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", text.Quote(b.Repo), text.Quote(b.Principal), err)
		}
		if s.Sources > 0 || s.Disk > 0 {
			list = append(list, entryOf(b, s))
		}
	}
	return list, nil
}

// do runs the command on one base.
func (o *indexCall) do(ctx context.Context, x *index.Index, store *artifact.Store, b index.Base) (index.Stats, error) {
	switch o.verb {
	case "purge":
		return x.Purge(ctx, b)
	case "rebuild":
		if _, err := x.Purge(ctx, b); err != nil {
			return index.Stats{}, err
		}
		err := stores.Refill(ctx, store, b, func(s index.Source, r io.Reader) error {
			_, err := x.Add(ctx, b, s, r)
			return err
		})
		if err != nil {
			return index.Stats{}, err
		}
	}
	return x.Stats(ctx, b)
}

// bases returns the selected bases: those of repositories and clients in the configuration, and those that have stored
// output.
func (o *indexCall) bases(c config.Config, store *artifact.Store) ([]index.Base, error) {
	repos, principals := server.RepoIDs(c.Repos), []string{server.UserPrincipal()}
	for _, p := range c.Principals {
		principals = append(principals, "token:"+p.Name)
	}
	if o.repo != "" {
		repos = []string{o.repo}
	}
	if o.principal != "" {
		principals = []string{o.principal}
	}
	kept, err := store.List(artifact.Reader{Owner: true}, maxArtifacts)
	if err != nil {
		return nil, err
	}
	var bases []index.Base
	for _, repo := range repos {
		for _, principal := range principals {
			bases = append(bases, index.Base{Repo: repo, Principal: principal})
		}
	}
	for _, m := range kept {
		if (o.repo == "" || o.repo == m.RepoID) && (o.principal == "" || o.principal == m.Principal) {
			bases = append(bases, index.Base{Repo: m.RepoID, Principal: m.Principal})
		}
	}
	slices.SortFunc(bases, func(a, b index.Base) int {
		return cmp.Or(cmp.Compare(a.Repo, b.Repo), cmp.Compare(a.Principal, b.Principal))
	})
	return slices.Compact(bases), nil
}

// print prints the bases.
func (o *indexCall) print(all []*baseEntry) error {
	if o.json {
		return cli.PrintJSON(all)
	}
	if len(all) == 0 {
		return cli.Print("nothing is indexed\n")
	}
	out := cli.NewEscaper(os.Stdout)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if o.verb == "purge" {
		fmt.Fprintln(w, "REMOVED OF\tCLIENT\tSOURCES\tSECTIONS\tTEXT\tDISK\tOLDEST\tNEWEST")
	} else {
		fmt.Fprintln(w, "REPOSITORY\tCLIENT\tSOURCES\tSECTIONS\tTEXT\tDISK\tOLDEST\tNEWEST")
	}
	for _, e := range all {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", text.Quote(e.Repo), text.Quote(e.Principal), e.Sources, e.Sections,
			job.FormatSize(e.Bytes), job.FormatSize((e.Disk+1023)&^1023), orNever(e.Oldest), orNever(e.Newest))
	}
	return errors.Join(w.Flush(), out.Flush())
}

func orNever(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}
