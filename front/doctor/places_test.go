package doctor

import (
	"errors"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestReportEscapes: text from a job or the supervisor is escaped in the report.
func TestReportEscapes(t *testing.T) {
	written := func(write func(b *strings.Builder) error) string {
		var b strings.Builder
		if err := write(&b); err != nil {
			t.Error(err)
		}
		return b.String()
	}
	report := func(s string) Report {
		return Report{Checks: []Check{{"name", Fail, s, "all is well", s}, {"name", OK, s, "all is well", ""}}}
	}
	runtimes := func(s string) Runtimes {
		return Runtimes{Toolchains: []string{s}, Runtimes: []Runtime{{Name: "ruby", Program: s, Problem: s, Remedy: s}}}
	}
	sandboxtest.CheckShown(t, []sandboxtest.Place{
		{Name: "report", Lines: 8, Shows: func(s string) string {
			return written(func(b *strings.Builder) error { return report(s).WriteText(b, false) })
		}},
		{Name: "report --json", Lines: strings.Count(written(func(b *strings.Builder) error { return report("").WriteJSON(b) }), "\n"), Shows: func(s string) string {
			return written(func(b *strings.Builder) error { return report(s).WriteJSON(b) })
		}},
		{Name: "runtimes", Lines: 8, Shows: func(s string) string {
			return written(func(b *strings.Builder) error { return runtimes(s).WriteText(b) })
		}},
		{Name: "runtimes --json", Lines: strings.Count(written(func(b *strings.Builder) error { return runtimes("x").WriteJSON(b) }), "\n"), Shows: func(s string) string {
			return written(func(b *strings.Builder) error { return runtimes(s).WriteJSON(b) })
		}},
		{Name: "end of a job", Lines: 8, Most: 3000, Shows: func(s string) string {
			detail := ended(&evidence{outcome: outcome{stderr: s, result: job.Result{Status: job.Failure, ExitCode: 1}}})
			return written(func(b *strings.Builder) error { return report(detail).WriteText(b, false) })
		}},
		{Name: "refused", Lines: 8, Shows: func(s string) string {
			detail, _ := explain(&job.Refusal{Step: "exec", Message: s}, "")
			return written(func(b *strings.Builder) error { return report(detail).WriteText(b, false) })
		}},
		{Name: "error", Lines: 8, Shows: func(s string) string {
			detail, _ := explain(errors.New(s), "")
			return written(func(b *strings.Builder) error { return report(detail).WriteText(b, false) })
		}},
	})
}
