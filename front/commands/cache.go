package commands

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"corral/front/cli"
	"corral/front/supervisor"
	"corral/internal/text"
	"corral/internal/users"
	"corral/isolate/client/embed"
	"corral/job"
	"corral/store/volume"
)

// cacheHelp is the help text of the command.
const cacheHelp = `corral cache shows and removes what is kept of registries of packages, for jobs whose rules have "registry". Only root can
read it: run it with sudo.

Usage:
  corral cache list     show what is kept for each user, what was used last first
  corral cache prune    remove all of it, or what these options say:

  --older-than TIME   remove what was not used for this time: 30d or 12h
  --to SIZE           remove what was used least recently until this is left of each user's, such as 5GiB
  --user USER         only what is kept for this user, a name or a number
  --json              print JSON
  --state DIR         state directory of the supervisor (default ` + supervisor.StateDir + `)

Jobs that run are not disturbed: what is removed is requested again. The bound of each user's packages is network_cache.size in
the configuration.
`

// cacheOptions are the command line.
type cacheOptions struct {
	verb, user, state string
	json              bool
	older             time.Duration // 0: whatever was used
	to                int64         // -1: nothing is left
}

// cacheCommand is `corral cache`, which lists and removes what corral-egress keeps of registries of packages.
//
// The directories are written by unprivileged processes that read what registries send, so nothing in them is followed or parsed as root:
// root opens the files, looks at their names and sizes, and removes them. The entries are read after root was dropped.
func cacheCommand(args []string) error {
	o := &cacheOptions{to: -1}
	if err := o.parse(args); err != nil {
		return err
	}
	var stores, removed []packageStore
	err := supervisor.AsOperator(o.state, func() (err error) {
		if stores, err = openStores(filepath.Join(o.state, "cache"), volume.OpenPresent); err == nil {
			stores, err = o.chosen(stores)
		}
		if err == nil && o.verb == "prune" {
			removed, err = pruneCaches(stores, o, time.Now())
		}
		return err
	})
	if dropped := embed.Drop(); dropped != nil {
		return dropped
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w\nhint: only root can read what is kept: run it with sudo", err)
	case err != nil:
		return err
	}
	if o.verb == "prune" {
		return o.printRemoved(removed)
	}
	return o.printList(stores)
}

// parse parses the command line; options stand after the command.
func (o *cacheOptions) parse(args []string) error {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		o.verb, args = args[0], args[1:]
	}
	f := flag.NewFlagSet("cache", flag.ContinueOnError)
	f.StringVar(&o.user, "user", "", "")
	f.StringVar(&o.state, "state", supervisor.StateDir, "")
	f.BoolVar(&o.json, "json", false, "")
	if o.verb == "prune" {
		f.Func("older-than", "", func(s string) (err error) {
			o.older, err = parseAge(s)
			return err
		})
		f.Func("to", "", func(s string) (err error) {
			if o.to = 0; s != "0" {
				o.to, err = job.ParseSize(s)
			}
			return err
		})
	}
	if err := cli.ParseFlags(f, args, cacheHelp); err != nil {
		return err
	}
	switch {
	case o.verb != "list" && o.verb != "prune":
		return cli.Misused("cache", cacheHelp, strings.Fields(o.verb))
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q\nhint: corral cache --help", f.Arg(0))
	}
	return nil
}

// parseAge parses the value of --older-than.
func parseAge(s string) (time.Duration, error) {
	d, err := cli.ParseAge(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("must be a time such as 30d or 12h, got %q", s)
	}
	return d, nil
}

// chosen returns the stores of the user that the command line names.
func (o *cacheOptions) chosen(stores []packageStore) ([]packageStore, error) {
	if o.user == "" {
		return stores, nil
	}
	uid, err := users.Parse(o.user)
	if err != nil {
		return nil, fmt.Errorf("--user %q: %w", o.user, err)
	}
	return slices.DeleteFunc(stores, func(s packageStore) bool { return s.user != uid }), nil
}

// pruneCaches removes files of stores, and returns what was removed.
func pruneCaches(stores []packageStore, o *cacheOptions, now time.Time) (removed []packageStore, err error) {
	for _, s := range stores {
		gone := packageStore{user: s.user}
		for _, f := range o.doomed(s, now) {
			if err := s.remove(f.name); err != nil {
				return removed, err
			}
			gone.files = append(gone.files, f)
		}
		removed = append(removed, gone)
	}
	return removed, nil
}

// doomed returns the files of a store that are to be removed. If everything is, that includes files without content of packages.
func (o *cacheOptions) doomed(s packageStore, now time.Time) []keptFile {
	if o.older == 0 && o.to < 0 {
		return slices.Concat(s.files, s.rest)
	}
	var list []keptFile
	left := s.size()
	for _, f := range slices.Backward(s.sorted()) { // what was used least recently first
		old := o.older == 0 || now.Sub(f.used) > o.older
		if !old || o.to >= 0 && left <= o.to {
			continue
		}
		left -= f.size
		list = append(list, f)
	}
	return list
}

// A cacheRow describes an entry of a store.
type cacheRow struct {
	User    uint32    `json:"user"`
	Kind    string    `json:"kind"`
	Host    string    `json:"host"`
	Name    string    `json:"name"`
	Size    int64     `json:"bytes"`
	SHA256  string    `json:"sha256"`
	Digest  string    `json:"digest,omitempty"`
	Checked time.Time `json:"checked"`
	Used    time.Time `json:"used"`
}

// printList prints what is kept.
func (o *cacheOptions) printList(stores []packageStore) error {
	rows, files := []cacheRow{}, 0
	for _, s := range stores {
		rows = append(rows, s.rows()...)
		files += len(s.files) + len(s.rest)
	}
	if o.json {
		return cli.PrintJSON(rows)
	}
	if files == 0 {
		return cli.Print("nothing is kept\n")
	}
	var names users.Names
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "USER\tKIND\tHOST\tNAME\tSIZE\tAGE\tUSED")
	now := time.Now()
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", text.Line(names.Of(r.User), 32), text.Line(r.Kind, 16), text.Line(r.Host, 64),
			text.Line(r.Name, 80),
			cli.FormatBytes(r.Size), ago(now, r.Checked), ago(now, r.Used))
	}
	_ = w.Flush() // to memory
	for _, s := range stores {
		fmt.Fprintf(&b, "%s: %s, %s\n", text.Line(names.Of(s.user), 32), countFiles(len(s.files)), cli.FormatBytes(s.size()))
		if len(s.rest) > 0 {
			fmt.Fprintf(&b, "%s: also %s without an entry, %s\n", text.Line(names.Of(s.user), 32), countFiles(len(s.rest)),
				cli.FormatBytes(sizeOf(s.rest)))
		}
	}
	return cli.Print(b.String())
}

func countFiles(files int) string {
	if files == 1 {
		return "1 file"
	}
	return strconv.Itoa(files) + " files"
}

// ago returns how long ago a time was, in one unit.
func ago(now, at time.Time) string {
	d := max(0, now.Sub(at))
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}} {
		if d >= u.unit {
			return strconv.FormatInt(int64(d/u.unit), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(d/time.Second), 10) + "s"
}

// printRemoved prints what was removed.
func (o *cacheOptions) printRemoved(removed []packageStore) error {
	type total struct {
		User  uint32 `json:"user"`
		Files int    `json:"removedFiles"`
		Bytes int64  `json:"removedBytes"`
	}
	list := []total{}
	for _, s := range removed {
		list = append(list, total{s.user, len(s.files), s.size()})
	}
	slices.SortFunc(list, func(a, b total) int { return cmp.Compare(a.User, b.User) })
	if o.json {
		return cli.PrintJSON(list)
	}
	var names users.Names
	var b strings.Builder
	for _, t := range list {
		fmt.Fprintf(&b, "%s: removed %s, %s\n", text.Line(names.Of(t.User), 32), countFiles(t.Files), cli.FormatBytes(t.Bytes))
	}
	if len(list) == 0 {
		b.WriteString("nothing is kept\n")
	}
	return cli.Print(b.String())
}
