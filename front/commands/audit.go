package commands

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"corral/front/cli"
	"corral/front/supervisor"
	"corral/internal/text"
	"corral/isolate/client/embed"
	"corral/store/audit"
)

// auditHelp is the help text of the command.
const auditHelp = `corral audit reads the supervisor's audit log of decisions and jobs. Only root can read the log: run it with sudo.

Usage:
  corral audit tail [-n N] [--follow] [FILTER] print the last records (default 10), and with --follow new ones, until the
                                               log continues in another file
  corral audit show JOB|SEQ                    print a job's records, or the record with that number; JOB is its id, or
                                               main/ID for the instance main
  corral audit verify [--expect SEQ:HASH]...   report records that were changed, removed, inserted or moved: exit code 1 if
                                               there are any. --expect also compares a record with a hash from earlier
  corral audit export [FILTER]                 print all records

FILTER is any of these; a record must match all of them:

  --user USER             requests of this user, a name or a number, also through sudo
  --repo PATH             requests for this repository: its path, or its id as the front-end claims it
  --principal PRINCIPAL   requests of this client, as the front-end claims it
  --tool TOOL             requests by this tool or command, as the front-end claims it
  --request ID            requests with this id, as the front-end claims it: the trace id that its log has
  --outcome OUTCOME,...   requests that ended so: success, failure, timeout, cancelled, lost, refused, denied
  --since T               records from this time on: 2026-11-21, 2026-11-21T10:00:00Z or 36h, which is 36 hours ago
  --until T               records before this time

  --json        print records as they are in the log, one per line
  --state DIR   state directory of the supervisor (default ` + supervisor.StateDir + `)
`

type auditOptions struct {
	count        int
	follow, json bool
	state        string
	filter       audit.Filter
	expect       []audit.Anchor
}

// auditCommand is `corral audit`, which reads the audit log.
func auditCommand(args []string) error {
	o := auditOptions{}
	var verb string
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		verb, args = args[0], args[1:]
	}
	f := o.flags(verb)
	words, err := cli.ParseMixed(f, args, auditHelp)
	if err != nil {
		return err
	}
	do := map[string]func(*audit.Reader, string) error{
		"tail": o.tail, "show": o.show, "verify": o.verify, "export": o.export,
	}[verb]
	want := 0
	if verb == "show" {
		want = 1
	}
	if do == nil || len(words) != want {
		given := words
		if verb != "" {
			given = append([]string{verb}, words...)
		}
		return cli.Misused("audit", auditHelp, given)
	}
	r, err := openAudit(o.state)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := o.filter.Prepare(); err != nil {
		return err
	}
	return do(r, strings.Join(words, ""))
}

// openAudit opens the log in a state directory as root, and drops root: another user parses it.
func openAudit(dir string) (*audit.Reader, error) {
	var r *audit.Reader
	err := supervisor.AsOperator(dir, func() (err error) {
		r, err = audit.OpenReader(filepath.Join(dir, "audit"))
		return err
	})
	if dropped := embed.Drop(); dropped != nil {
		return nil, dropped
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%w\nhint: only root can read the audit log: run it with sudo", err)
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("no audit log in %s\nhint: the first supervisor creates it; --state names another directory", dir)
	}
	return r, err
}

// flags returns the options of one command.
func (o *auditOptions) flags(verb string) *flag.FlagSet {
	f := flag.NewFlagSet("audit", flag.ContinueOnError)
	f.StringVar(&o.state, "state", supervisor.StateDir, "")
	if verb != "verify" {
		f.BoolVar(&o.json, "json", false, "")
	}
	switch verb {
	case "tail":
		f.IntVar(&o.count, "n", 10, "")
		f.BoolVar(&o.follow, "follow", false, "")
		filterFlags(&o.filter, f)
	case "verify":
		f.Func("expect", "", func(s string) error {
			a, err := audit.ParseAnchor(s)
			o.expect = append(o.expect, a)
			return err
		})
	case "export":
		filterFlags(&o.filter, f)
	}
	return f
}

// filterFlags adds the options of a filter. The names of users are looked up by Prepare, when root's rights were given up.
func filterFlags(f *audit.Filter, set *flag.FlagSet) {
	set.StringVar(&f.User, "user", "", "")
	set.StringVar(&f.Repo, "repo", "", "")
	set.StringVar(&f.Principal, "principal", "", "")
	set.StringVar(&f.Tool, "tool", "", "")
	set.StringVar(&f.Request, "request", "", "")
	set.Func("outcome", "", func(s string) error {
		words := strings.Split(s, ",")
		f.Outcomes = append(f.Outcomes, words...)
		return audit.CheckOutcomes(words)
	})
	for name, t := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		set.Func(name, "", func(s string) (err error) {
			*t, err = audit.ParseTime(s, time.Now())
			return err
		})
	}
}

func (o *auditOptions) show(r *audit.Reader, what string) error {
	from, want := uint64(0), func(x *audit.Record) bool {
		return x.Job != "" && (x.Job == what || x.Instance+"/"+x.Job == what)
	}
	if seq, err := strconv.ParseUint(what, 10, 63); err == nil {
		from, want = seq, func(x *audit.Record) bool { return x.Seq == seq }
	}
	if o.json {
		n, err := o.printed(r, from, want)
		return cmp.Or(err, foundAny(what, n))
	}
	found := 0
	for l, err := range r.Lines(from) {
		if err != nil {
			return err
		}
		record, err := l.Record()
		if err != nil || !want(record) {
			continue
		}
		found++
		var b bytes.Buffer
		if err := json.Indent(&b, l.Text, "", "  "); err != nil {
			return err
		}
		if err := cli.Print(text.Lines(b.String()) + "\n"); err != nil {
			return err
		}
	}
	return foundAny(what, found)
}

// foundAny returns an error if there is no record.
func foundAny(what string, n int) error {
	if n > 0 {
		return nil
	}
	return cli.Exit(1, fmt.Errorf("no record of %q", what))
}

func (o *auditOptions) verify(r *audit.Reader, _ string) error {
	report, err := r.Verify(o.expect...)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, n := range report.Notes {
		fmt.Fprintln(&b, "note:", n)
	}
	for _, p := range report.Problems {
		fmt.Fprintln(&b, p)
	}
	if report.More > 0 {
		fmt.Fprintf(&b, "and %d more\n", report.More)
	}
	fmt.Fprintf(&b, "records %d to %d, files: %d, open jobs: %d\n", report.First, report.Last, report.Files, report.Open)
	if report.OK() {
		fmt.Fprintf(&b, "ok\nkeep elsewhere for --expect: %d:%s\n", report.Last, report.Hash)
	}
	if err := cli.Print(text.Lines(b.String())); err != nil || report.OK() {
		return err
	}
	return cli.Exit(1, errors.New("the audit log differs from what the supervisor wrote"))
}
