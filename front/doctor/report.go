package doctor

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"corral/internal/text"
	"corral/job"
)

// A Status is the result of a check.
type Status string

// The statuses.
const (
	OK       Status = "ok"
	Degraded Status = "degraded" // a layer of protection is missing, or something could be better
	Fail     Status = "fail"     // a job could do something that it must not
	Unknown  Status = "unknown"  // not tried
)

// The verdicts.
const (
	Protected   = "protected"
	Partly      = "degraded"
	Unprotected = "unprotected"
	Unexamined  = "unexamined" // nothing failed, and no job could be tried
)

// A Check is the outcome of one check.
type Check struct {
	Name    string `json:"name"`
	Status  Status `json:"status"`
	Detail  string `json:"detail"`
	Meaning string `json:"meaning"` // what holds if the status is OK
	Remedy  string `json:"remedy"`
}

// Host describes the examined machine.
type Host struct {
	Kernel       string `json:"kernel"`
	Architecture string `json:"architecture"`
	System       string `json:"system"`
	CPUs         int    `json:"cpus"`
	Memory       int64  `json:"memoryBytes"`
	Cgroup       string `json:"cgroup"`   // "v2", "hybrid", "v1", or "" without a supervisor
	Landlock     int    `json:"landlock"` // version of its ABI, 0 for none
}

// A Report is the outcome of an examination.
type Report struct {
	Verdict string  `json:"verdict"` // Protected, Partly, Unprotected or Unexamined
	Checks  []Check `json:"checks"`
	Host    Host    `json:"host"`
}

// ExitCode returns 0 for protected, 1 for degraded, and 2 if jobs cannot be isolated, or nothing is known of it.
func (r Report) ExitCode() int {
	switch r.Verdict {
	case Protected:
		return 0
	case Partly:
		return 1
	}
	return 2
}

func verdict(list []Check) string {
	has := func(s Status) bool { return slices.ContainsFunc(list, func(c Check) bool { return c.Status == s }) }
	switch {
	case !has(Fail) && list[0].Status == Unknown:
		return Unexamined
	case has(Fail) || has(Unknown):
		return Unprotected
	case has(Degraded):
		return Partly
	}
	return Protected
}

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	return text.WriteJSON(w, r, "  ")
}

// words has the word that people see for each status, and its color on a terminal (ECMA-48, SGR).
var words = map[Status]struct{ word, color string }{
	OK: {"ok", "\x1b[32m"}, Degraded: {"degraded", "\x1b[33m"}, Fail: {"FAIL", "\x1b[31;1m"}, Unknown: {"?", "\x1b[2m"},
}

// WriteText writes the report for people: a line for each check and, below a check that is not ok, how to fix it.
func (r Report) WriteText(w io.Writer, color bool) error {
	var b strings.Builder
	h := r.Host
	fmt.Fprintf(&b, "%s, Linux %s, %s, %d CPUs, %s of memory\n\n", h.System, h.Kernel, h.Architecture, h.CPUs,
		job.FormatSize(h.Memory&^(1<<20-1)))
	width := 0
	for _, c := range r.Checks {
		width = max(width, len(c.Name))
	}
	var untried []string
	for _, c := range r.Checks {
		if c.Status == Unknown && c.Detail == noJob {
			untried = append(untried, c.Name)
			continue
		}
		c.write(&b, width, color)
	}
	if len(untried) > 0 {
		fmt.Fprintf(&b, "%-8s  %s: %s\n", words[Unknown].word, noJob, strings.Join(untried, ", "))
	}
	b.WriteString("\n" + r.summary() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (c Check) write(b *strings.Builder, width int, color bool) {
	word := fmt.Sprintf("%-8s", words[c.Status].word)
	if color {
		word = words[c.Status].color + word + "\x1b[0m"
	}
	fmt.Fprintf(b, "%s  %-*s  ", word, width, c.Name)
	indent := strings.Repeat(" ", 8+2+width+2)
	if c.Status == OK {
		fmt.Fprintf(b, "%s (%s)\n", c.Meaning, text.Escape(c.Detail))
		return
	}
	fmt.Fprintf(b, "should be: %s\n", c.Meaning)
	fmt.Fprintf(b, "%sfound:     %s\n", indent, text.Escape(c.Detail))
	if c.Status != Unknown {
		fmt.Fprintf(b, "%sfix:       %s\n", indent, text.Escape(c.Remedy))
	}
}

func (r Report) summary() string {
	counts := map[Status]int{}
	for _, c := range r.Checks {
		counts[c.Status]++
	}
	switch r.Verdict {
	case Protected:
		return fmt.Sprintf("protected: all %d checks are ok", len(r.Checks))
	case Partly:
		return fmt.Sprintf("degraded: jobs are isolated; %d of %d checks found something to fix", counts[Degraded], len(r.Checks))
	case Unexamined:
		return fmt.Sprintf("not examined: %d of %d checks could not be made, because this supervisor serves only the directories of its "+
			"configuration\nhint: sudo corral doctor starts a supervisor of its own, with the same configuration", counts[Unknown], len(r.Checks))
	}
	return fmt.Sprintf("unprotected: %d of %d checks failed, %d could not be made; do not run untrusted programs here",
		counts[Fail], len(r.Checks), counts[Unknown])
}

// explain returns the text of an error and how to fix it: the error's hint, or else remedy.
func explain(err error, remedy string) (string, string) {
	var refusal *job.Refusal
	if errors.As(err, &refusal) {
		detail := "refused at step " + refusal.Step + ": " + refusal.Message
		if refusal.Hint != "" {
			remedy = refusal.Hint
		}
		return detail, remedy
	}
	message, hint, hinted := strings.Cut(err.Error(), "\nhint: ")
	if hinted {
		remedy = hint
	}
	return message, remedy
}
