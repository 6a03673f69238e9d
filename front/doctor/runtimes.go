package doctor

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"corral/internal/text"
	"corral/job"
	"corral/policy/runtimes"
)

// A Runtime is what came of looking for the program of a language.
type Runtime struct {
	Name    string `json:"name"`
	Program string `json:"program"` // "" where there is none
	Version string `json:"version"` // as the program says in a job, "" where it does not
	// Start is how long a program that writes a word took in a job, with its compiler, in milliseconds.
	Start int64 `json:"startMs"`
	// Problem is why code cannot be run, "" if it can; Remedy how to mend that, or to be faster.
	Problem string `json:"problem,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
}

// Runtimes is what this host can run.
type Runtimes struct {
	Runtimes []Runtime `json:"runtimes"`
	// Toolchains are directories with programs that the configuration does not name.
	Toolchains []string `json:"toolchainsNotConfigured,omitempty"`
}

// ExamineRuntimes has each language's program write a word, as a job. Toolchains is for the report. When ctx ends, the
// programs that are left are not tried.
func ExamineRuntimes(ctx context.Context, s Subject, installed runtimes.Installed, toolchains []string) Runtimes {
	x := &examination{subject: s}
	report := Runtimes{Toolchains: toolchains}
	for _, name := range runtimes.Runtimes() {
		report.Runtimes = append(report.Runtimes, x.runtime(ctx, name, installed))
	}
	return report
}

func (x *examination) runtime(ctx context.Context, name string, installed runtimes.Installed) Runtime {
	row, _ := runtimes.Lookup(name)
	r := Runtime{Name: name}
	choice, missing := installed.Choose(name, "", nil)
	if missing != "" {
		r.Problem, r.Remedy, _ = strings.Cut(missing, "\nhint: ")
		return r
	}
	r.Program, r.Remedy = choice.Path, choice.Faster()
	version := x.plan(ctx, choice, nil, row.Version)
	r.Version = versionOf(version.stdout + version.stderr)
	hello := x.plan(ctx, choice, &row.Hello, nil)
	switch {
	case hello.err != nil:
		r.Problem, r.Remedy = explain(hello.err, r.Remedy)
	case hello.result.Status != job.Success || hello.stdout != "hello\n":
		r.Problem = fmt.Sprintf("a program that writes a word ended with %s: %s", hello.result.Status, lastLine(hello.stderr))
		r.Remedy = row.Remedy()
	default:
		r.Start = hello.took.Milliseconds()
	}
	return r
}

// plan runs what a choice plans.
func (x *examination) plan(ctx context.Context, choice runtimes.Choice, code *string, args []string) *outcome {
	o := &outcome{err: ctx.Err()}
	if x.subject.Supervisor == nil {
		o.err = x.subject.Err
	}
	if o.err != nil {
		return o
	}
	spec := job.Spec{Repo: x.subject.Place.Repo(), Limits: job.Limits{Wall: time.Minute}}
	spec.Args, spec.Files, spec.Env = choice.Plan(code, args)
	spec.Env = append(spec.Env, "HOME=/home/job", "TMPDIR=/tmp")
	x.start(ctx, spec, o)
	return o
}

// A version as programs write it: with a point, so that a 64-bit one is none.
var versionNumber = regexp.MustCompile(`[0-9]+(?:\.[0-9]+)+`)

func versionOf(said string) string { return versionNumber.FindString(said) }

// lastLine is where an error's own words mostly are.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return s[:min(len(s), 300)]
}

// ExitCode is 0 where every program that is there runs code, 1 where one does not, 2 where none does.
func (r Runtimes) ExitCode() int {
	works, broken := 0, 0
	for _, one := range r.Runtimes {
		switch {
		case one.Problem == "":
			works++
		case one.Program != "":
			broken++
		}
	}
	switch {
	case works == 0:
		return 2
	case broken > 0:
		return 1
	}
	return 0
}

// WriteJSON writes it as one JSON object.
func (r Runtimes) WriteJSON(w io.Writer) error {
	return text.WriteJSON(w, r, "  ")
}

// WriteText writes it for people: a line for each runtime, and what there is to do below it.
func (r Runtimes) WriteText(w io.Writer) error {
	var b strings.Builder
	width := len("program")
	for _, one := range r.Runtimes {
		width = max(width, len(text.Escape(one.Program)))
	}
	line := func(name, program, version, start string) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-10s  %-*s  %-12s  %8s", name, width, program, version, start), " ") + "\n")
	}
	line("runtime", "program", "version", "start")
	for _, one := range r.Runtimes {
		switch {
		case one.Problem == "":
			line(one.Name, text.Escape(one.Program), one.Version, fmt.Sprint(one.Start, " ms"))
		case one.Program != "":
			line(one.Name, text.Escape(one.Program), one.Version, "FAILS")
		default:
			line(one.Name, "-", "", "")
		}
		if one.Problem != "" {
			fmt.Fprintf(&b, "            %s\n", text.Escape(one.Problem))
		}
		if one.Remedy != "" {
			word := "faster:"
			if one.Problem != "" {
				word = "mend:"
			}
			fmt.Fprintf(&b, "            %s %s\n", word, text.Escape(one.Remedy))
		}
	}
	if len(r.Toolchains) > 0 {
		fmt.Fprintf(&b, "\nThe configuration does not name these toolchains, so no job sees them. To have them seen:\n\n  toolchains: [%s]\n",
			text.Escape(strings.Join(r.Toolchains, ", ")))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
