package commands

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
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
	"corral/job"
	"corral/store/artifact"
)

// outputHelp is the help text of the command.
const outputHelp = `corral output shows the stored output of earlier jobs.

Usage:
  corral output                      list stored output, the newest first
  corral output HANDLE               write it to standard output and standard error, unchanged; HANDLE is that of the output, or
                                     the id of its job
  corral output HANDLE --grep TERM   print lines that contain TERM in upper or lower case, with lines around them;
                                     repeatable: any of the terms. Exit code 1 if there are none
  corral output HANDLE --lines A-B   print these lines; A- means to the end, A one line

  --stream WORD   stdout, stderr or both (default both; with --lines stdout)
  --context N     lines around a match, 0 to 20 (default 3)
  --max N         maximum number of matches, 1 to 100 (default 100), or of entries in the list (default 100)
  --json          with --grep and --lines the reply of runtime_query_output; otherwise the job's record
  --state DIR     use this state directory

On a terminal, control characters are shown as \u001b and the like; in a file or pipe, bytes are unchanged.
`

// maxOutputs bounds --max for a list.
const maxOutputs = 100_000

type outputOptions struct {
	handle       string
	terms        []string
	lines        *artifact.Range
	stream       string
	context, max int
	json         bool
	state        string
}

// outputCommand is `corral output`, which shows the stored output of earlier jobs.
func outputCommand(args []string) error {
	o := outputOptions{}
	if err := o.parse(args); err != nil {
		return err
	}
	states, err := supervisor.OpenExistingState(o.state, filepath.Join(supervisor.StateDir, "users"), o.handle)
	if err != nil {
		return err
	}
	var stores []*artifact.Store
	for _, f := range states {
		s, err := artifact.Open(f, artifact.Options{ReadOnly: true})
		_ = f.Close()
		if err != nil {
			return err
		}
		defer s.Close()
		stores = append(stores, s)
	}
	if o.handle == "" {
		return o.list(stores)
	}
	if strings.HasPrefix(o.handle, "job-") {
		if err := o.find(stores); err != nil {
			return err
		}
	}
	err = artifact.ErrNotFound
	for _, s := range stores {
		if err = o.show(s); !errors.Is(err, artifact.ErrNotFound) {
			break
		}
	}
	if errors.Is(err, artifact.ErrNotFound) {
		return fmt.Errorf("no stored output has the handle or job id %s\nhint: corral output lists what is stored", text.Quote(o.handle))
	}
	return err
}

// find replaces the id of a job by the handle of its output, if that is stored.
func (o *outputOptions) find(stores []*artifact.Store) error {
	for _, s := range stores {
		list, err := s.List(artifact.Reader{Owner: true}, maxOutputs)
		if err != nil {
			return err
		}
		for _, m := range list {
			if m.Run != nil && m.Run.Job == o.handle {
				o.handle = m.ArtifactID
				return nil
			}
		}
	}
	return nil
}

// parse parses the command line; options may stand before and after the handle.
func (o *outputOptions) parse(args []string) error {
	f := flag.NewFlagSet("output", flag.ContinueOnError)
	f.Func("grep", "", func(s string) error {
		if s == "" {
			return errors.New("must not be empty")
		}
		o.terms = append(o.terms, s)
		return nil
	})
	f.Func("lines", "", func(s string) (err error) {
		o.lines, err = parseLines(s)
		return err
	})
	f.StringVar(&o.stream, "stream", "", "")
	f.IntVar(&o.context, "context", artifact.DefaultContext, "")
	f.IntVar(&o.max, "max", 100, "")
	f.BoolVar(&o.json, "json", false, "")
	f.StringVar(&o.state, "state", "", "")
	for n := 0; ; n++ {
		if err := cli.ParseFlags(f, args, outputHelp); err != nil {
			return err
		}
		if f.NArg() == 0 {
			break
		}
		if n > 0 {
			return fmt.Errorf("unexpected argument %q\nhint: corral output --help", f.Arg(0))
		}
		o.handle, args = f.Arg(0), f.Args()[1:]
	}
	if err := o.check(); err != nil {
		return fmt.Errorf("%w\nhint: corral output --help", err)
	}
	return nil
}

func (o *outputOptions) check() error {
	limit := 100
	if o.handle == "" {
		limit = maxOutputs
	}
	switch {
	case !slices.Contains([]string{"", "both", artifact.Stdout, artifact.Stderr}, o.stream):
		return fmt.Errorf("--stream %q: must be stdout, stderr or both", o.stream)
	case o.handle == "" && (o.terms != nil || o.lines != nil || o.stream != ""):
		return errors.New("missing HANDLE: --grep, --lines and --stream need one")
	case o.terms != nil && o.lines != nil:
		return errors.New("--grep and --lines exclude each other")
	case o.lines != nil && o.stream == "both":
		return errors.New("--lines reads one stream: --stream must be stdout or stderr")
	case o.context < 0 || o.context > 20 || o.max < 1 || o.max > limit:
		return fmt.Errorf("--context must be 0 to 20, --max 1 to %d", limit)
	}
	if o.stream == "both" {
		o.stream = ""
	}
	if o.lines != nil && o.stream != "" {
		o.lines.Stream = o.stream
	}
	return nil
}

// parseLines parses A-B, A- or A.
func parseLines(s string) (*artifact.Range, error) {
	from, to, ranged := strings.Cut(s, "-")
	r := &artifact.Range{Stream: artifact.Stdout}
	var err, errTo error
	r.Start, err = strconv.ParseInt(from, 10, 63)
	switch {
	case !ranged:
		r.End = r.Start
	case to == "":
		r.End = math.MaxInt64
	default:
		r.End, errTo = strconv.ParseInt(to, 10, 63)
	}
	if err != nil || errTo != nil || r.Start < 1 || r.End < r.Start {
		return nil, errors.New("must be lines such as 10-20, 10- or 10, counted from 1")
	}
	return r, nil
}

// show prints one artifact of one store.
func (o *outputOptions) show(s *artifact.Store) error {
	owner := artifact.Reader{Owner: true}
	out := cli.NewEscaper(os.Stdout)
	matched := true
	var err error
	switch {
	case o.json || o.terms != nil:
		matched, err = o.query(s, out)
	case o.lines != nil:
		err = s.CopyLines(owner, o.handle, *o.lines, out)
	default:
		errs := cli.NewEscaper(os.Stderr)
		err = s.Copy(owner, o.handle, o.only(artifact.Stdout, out), o.only(artifact.Stderr, errs))
		err = errors.Join(err, errs.Flush())
	}
	if err = errors.Join(err, out.Flush()); err != nil || matched {
		return err
	}
	return cli.Exit(1, nil)
}

// only returns w if the stream was selected, else nil.
func (o *outputOptions) only(stream string, w *cli.Escaper) io.Writer {
	if o.stream == "" || o.stream == stream {
		return w
	}
	return nil
}

// query prints what is asked for of an artifact. matched is false if no line contains a term.
func (o *outputOptions) query(s *artifact.Store, out *cli.Escaper) (matched bool, err error) {
	a, err := s.Query(context.Background(), artifact.Query{
		Reader: artifact.Reader{Owner: true}, Handle: o.handle, Terms: o.terms, Excerpts: o.max, Context: o.context,
		Stream: o.stream, Range: o.lines,
	})
	if err != nil {
		return false, err
	}
	if matched = o.lines != nil || o.terms == nil || a.Match == artifact.Matched; !matched {
		a.Excerpts = []artifact.Excerpt{}
	}
	switch {
	case o.json && o.lines == nil && o.terms == nil:
		return matched, cli.WriteJSON(out, a.Manifest)
	case o.json:
		return matched, cli.WriteJSON(out, struct {
			Handle    string             `json:"artifactHandle"`
			Excerpts  []artifact.Excerpt `json:"excerpts"`
			Lines     int64              `json:"totalLines"`
			Bytes     int64              `json:"totalBytes"`
			Streams   []string           `json:"searchedStreams"`
			Match     string             `json:"matchStatus"`
			Truncated bool               `json:"truncated,omitempty"`
		}{o.handle, a.Excerpts, a.Lines, a.Bytes, a.Streams, a.Match, a.Truncated})
	}
	for i, x := range a.Excerpts {
		sep := ""
		if i > 0 {
			sep = "\n"
		}
		if _, err := fmt.Fprintf(out, "%s%s %d-%d\n%s\n", sep, x.Source, x.LineStart, x.LineEnd, x.Content); err != nil {
			return false, err
		}
	}
	return matched, nil
}

// list lists the artifacts of all stores, the newest first.
func (o *outputOptions) list(stores []*artifact.Store) error {
	all := []*artifact.Manifest{}
	for _, s := range stores {
		list, err := s.List(artifact.Reader{Owner: true}, o.max)
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b *artifact.Manifest) int { return b.CreatedAt.Compare(a.CreatedAt) })
	all = all[:min(len(all), o.max)]
	if o.json {
		return cli.PrintJSON(all)
	}
	if len(all) == 0 {
		return cli.Print("no output is stored\n")
	}
	out := cli.NewEscaper(os.Stdout)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HANDLE\tJOB\tRUNTIME\tSTATUS\tBYTES\tMADE\tUNTIL")
	for _, m := range all {
		id := "-" // an earlier version stored it
		if m.Run != nil && m.Run.Job != "" {
			id = text.Quote(m.Run.Job)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.ArtifactID, id, text.Quote(m.Runtime), manifestEnding(m),
			job.FormatSize(m.TotalStdout+m.TotalStderr),
			m.CreatedAt.Local().Format(time.DateTime), m.ExpiresAt.Local().Format(time.DateTime))
	}
	return errors.Join(w.Flush(), out.Flush())
}

// manifestEnding describes in a word how the job ended.
func manifestEnding(m *artifact.Manifest) string {
	switch {
	case m.Signal != nil:
		return text.Quote(*m.Signal)
	case m.ExitCode != nil && *m.ExitCode != 0:
		return "exit " + strconv.Itoa(*m.ExitCode)
	}
	return text.Quote(m.Status)
}
