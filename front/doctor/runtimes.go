package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"corral/internal/lazyregexp"
	"corral/internal/text"
	"corral/job"
	"corral/policy/runtimes"
)

// A Runtime reports whether code of a language runs.
type Runtime struct {
	Name    string `json:"name"`
	Program string `json:"program"` // path; "" if none was found
	Version string `json:"version"` // as printed by the program in a job, or ""
	// Start is the time in milliseconds that a program which prints a word took in a job, including compilation.
	Start int64 `json:"startMs"`
	// Problem is why code cannot be run, "" if it can. Remedy says how to fix that, or how to make the start faster.
	Problem string `json:"problem,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
}

// Runtimes reports which languages this host can run.
type Runtimes struct {
	Runtimes []Runtime `json:"runtimes"`
	// Toolchains lists directories with programs, and download caches, that are missing from the configuration.
	Toolchains []string `json:"toolchainsNotConfigured,omitempty"`
}

// ExamineRuntimes runs a program that prints a word in each language, as a job. toolchains is copied to the report. If ctx
// ends, the remaining programs are not tried.
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
		r.Problem = fmt.Sprintf("a program that prints a word ended with %s: %s", hello.result.Status, lastLine(hello.stderr))
		r.Remedy = row.Remedy()
	default:
		r.Start = hello.took.Milliseconds()
	}
	return r
}

// plan runs the plan of a choice for code or args.
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
	spec.Env = append(spec.Env, "HOME="+job.Home, "TMPDIR=/tmp")
	x.start(ctx, spec, o)
	return o
}

// versionNumber matches versions as programs print them. It requires a dot, so that "64-bit" does not match.
var versionNumber = lazyregexp.New(`[0-9]+(?:\.[0-9]+)+`)

func versionOf(output string) string { return versionNumber().FindString(output) }

// lastLine returns the last line, which usually has the error, cut to 300 bytes.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return s[:min(len(s), 300)]
}

// ExitCode returns 0 if every program that was found runs code, 1 if some do not, and 2 if none does.
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

// WriteJSON writes the report as one JSON object.
func (r Runtimes) WriteJSON(w io.Writer) error {
	return text.WriteJSON(w, r, "  ")
}

// WriteText writes the report for people: a line for each runtime, with the problem and the remedy below it.
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
				word = "fix:"
			}
			fmt.Fprintf(&b, "            %s %s\n", word, text.Escape(one.Remedy))
		}
	}
	if len(r.Toolchains) > 0 {
		fmt.Fprintf(&b, "\nThe configuration does not name these toolchains, so no job sees them. To show them to jobs, set:\n\n  toolchains: [%s]\n",
			text.Escape(strings.Join(r.Toolchains, ", ")))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
