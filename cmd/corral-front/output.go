package main

import (
	"bufio"
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

	"golang.org/x/sys/unix"

	"corral/internal/text"
	"corral/job"
	"corral/store/artifact"
)

const outputHelp = `corral output shows what earlier jobs of servers wrote.

Usage:
  corral output                      list what is kept, the newest first
  corral output HANDLE               write it as it was, each stream to its own
  corral output HANDLE --grep TERM   the lines that have TERM, in either case, with those around them; repeatable: any of
                                     the terms. Exit code 1 if there are none
  corral output HANDLE --lines A-B   these lines; A- is to the end, A the one line

  --stream WORD   stdout, stderr or both (default; of --lines it is stdout)
  --context N     lines around a match, 0 to 20 (default 3)
  --max N         matches shown, 1 to 100 (default 100), or entries listed (default 100)
  --json          with --grep and --lines what runtime_query_output replies; else what is known of the job
  --state DIR     look in this directory of state

On a terminal, what would control it is shown as \u001b and the like; into a file or pipe, bytes are as they were.
`

// maxListed bounds what is asked for by --max in a list.
const maxListed = 100_000

type outputOptions struct {
	handle       string
	terms        []string
	lines        *artifact.Range
	stream       string
	context, max int
	json         bool
	state        string
}

func outputCommand(args []string) (int, error) {
	o := outputOptions{}
	if ended, code, err := o.parse(args); ended {
		return code, err
	}
	states, err := ownStates(o.state, filepath.Join(defaultState, "users"), o.handle)
	if err != nil {
		return failure, err
	}
	var stores []*artifact.Store
	for _, f := range states {
		s, err := artifact.Open(f, artifact.Options{ReadOnly: true})
		_ = f.Close()
		if err != nil {
			return failure, err
		}
		defer s.Close()
		stores = append(stores, s)
	}
	if o.handle == "" {
		return o.list(stores)
	}
	err = artifact.ErrNotFound
	code := failure
	for _, s := range stores {
		if code, err = o.show(s); !errors.Is(err, artifact.ErrNotFound) {
			break
		}
	}
	if errors.Is(err, artifact.ErrNotFound) {
		return failure, fmt.Errorf("no output %s\nhint: corral output lists what is kept", text.Quote(o.handle))
	}
	return code, err
}

// parse reads the command line; options may stand before and after the handle.
func (o *outputOptions) parse(args []string) (ended bool, code int, err error) {
	f := flag.NewFlagSet("output", flag.ContinueOnError)
	f.Func("grep", "", func(s string) error {
		if s == "" {
			return errors.New("a term is wanted")
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
		if ended, code, err := parseFlags(f, args, outputHelp); ended {
			return true, code, err
		}
		if f.NArg() == 0 {
			break
		}
		if n > 0 {
			return true, failure, errors.Join(fmt.Errorf("unexpected argument %q\nhint: corral output --help", f.Arg(0)), dropRoot())
		}
		o.handle, args = f.Arg(0), f.Args()[1:]
	}
	if err := o.check(); err != nil {
		return true, failure, errors.Join(fmt.Errorf("%w\nhint: corral output --help", err), dropRoot())
	}
	return false, 0, nil
}

func (o *outputOptions) check() error {
	most := 100
	if o.handle == "" {
		most = maxListed
	}
	switch {
	case !slices.Contains([]string{"", "both", artifact.Stdout, artifact.Stderr}, o.stream):
		return fmt.Errorf("--stream %q: stdout, stderr or both is wanted", o.stream)
	case o.handle == "" && (o.terms != nil || o.lines != nil || o.stream != ""):
		return errors.New("of which output? a handle is wanted")
	case o.terms != nil && o.lines != nil:
		return errors.New("--grep searches and --lines reads: one of them is wanted")
	case o.lines != nil && o.stream == "both":
		return errors.New("--lines is of one stream")
	case o.context < 0 || o.context > 20 || o.max < 1 || o.max > most:
		return fmt.Errorf("--context is 0 to 20, --max 1 to %d", most)
	}
	if o.stream == "both" {
		o.stream = ""
	}
	if o.lines != nil && o.stream != "" {
		o.lines.Stream = o.stream
	}
	return nil
}

// parseLines reads A-B, A- or A.
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
		return nil, errors.New("lines such as 10-20, 10- or 10, counted from 1")
	}
	return r, nil
}

// isTerminal says whether who reads from f may be controlled by what is written.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// sink is f, behind what a terminal needs.
func sink(f *os.File) *escaper {
	return &escaper{w: bufio.NewWriterSize(f, 64<<10), raw: !isTerminal(f)}
}

// show is for one artifact in one store.
func (o *outputOptions) show(s *artifact.Store) (int, error) {
	owner := artifact.Reader{Owner: true}
	out := sink(os.Stdout)
	code := 0
	var err error
	switch {
	case o.json || o.terms != nil:
		code, err = o.query(s, out)
	case o.lines != nil:
		err = s.CopyLines(owner, o.handle, *o.lines, out)
	default:
		errs := sink(os.Stderr)
		err = s.Copy(owner, o.handle, o.only(artifact.Stdout, out), o.only(artifact.Stderr, errs))
		err = errors.Join(err, errs.flush())
	}
	if err = errors.Join(err, out.flush()); err != nil {
		return failure, err
	}
	return code, nil
}

// only is w if the stream is wanted.
func (o *outputOptions) only(stream string, w *escaper) io.Writer {
	if o.stream == "" || o.stream == stream {
		return w
	}
	return nil
}

func (o *outputOptions) query(s *artifact.Store, out *escaper) (int, error) {
	a, err := s.Query(context.Background(), artifact.Query{
		Reader: artifact.Reader{Owner: true}, Handle: o.handle, Terms: o.terms, Excerpts: o.max, Context: o.context,
		Stream: o.stream, Range: o.lines,
	})
	if err != nil {
		return failure, err
	}
	code := 0
	if o.lines == nil && o.terms != nil && a.Match != artifact.Matched {
		code, a.Excerpts = 1, []artifact.Excerpt{}
	}
	switch {
	case o.json && o.lines == nil && o.terms == nil:
		return code, writeJSON(out, a.Manifest)
	case o.json:
		return code, writeJSON(out, struct {
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
			return failure, err
		}
	}
	return code, nil
}

func writeJSON(w io.Writer, v any) error { return text.WriteJSON(w, v, "  ") }

// list shows what is kept, in all stores, the newest first.
func (o *outputOptions) list(stores []*artifact.Store) (int, error) {
	all := []*artifact.Manifest{}
	for _, s := range stores {
		list, err := s.List(artifact.Reader{Owner: true}, o.max)
		if err != nil {
			return failure, err
		}
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b *artifact.Manifest) int { return b.CreatedAt.Compare(a.CreatedAt) })
	all = all[:min(len(all), o.max)]
	out := sink(os.Stdout)
	if o.json {
		if err := errors.Join(writeJSON(out, all), out.flush()); err != nil {
			return failure, err
		}
		return 0, nil
	}
	if len(all) == 0 {
		return say("no output is kept\n")
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HANDLE\tRUNTIME\tSTATUS\tBYTES\tMADE\tUNTIL")
	for _, m := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", m.ArtifactID, text.Quote(m.Runtime), ending(m), job.FormatSize(m.TotalStdout+m.TotalStderr),
			m.CreatedAt.Local().Format(time.DateTime), m.ExpiresAt.Local().Format(time.DateTime))
	}
	if err := errors.Join(w.Flush(), out.flush()); err != nil {
		return failure, err
	}
	return 0, nil
}

// ending is how the job ended, in a word.
func ending(m *artifact.Manifest) string {
	switch {
	case m.Signal != nil:
		return text.Quote(*m.Signal)
	case m.ExitCode != nil && *m.ExitCode != 0:
		return "exit " + strconv.Itoa(*m.ExitCode)
	}
	return text.Quote(m.Status)
}
