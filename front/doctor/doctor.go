// Package doctor checks what a host can enforce, by running jobs that try what they should not be able to do.
//
// Results come from jobs, not from the supervisor's own view: each check is a row of one table (see checks) with a small
// program that is run as a job, a function that judges its outcome, what it means for users, and how to fix a problem. A
// few checks examine the host instead, for properties that a job cannot show: the kernel's age, flaws of the CPU, and the
// handling of crashes.
//
// Jobs run sh and the usual small programs, in a directory created for the purpose (see Place), which is removed with all
// files that they left.
//
// A check that could not be made is never ok: it is unknown if no job runs at all, and a failure if only its own job was
// refused.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"time"

	"corral/isolate/client"
	"corral/job"
)

// A Subject is a supervisor to examine and the directory to do it in.
type Subject struct {
	Supervisor *client.Client // nil if there is none; Err is the reason
	Err        error
	Place      Place // owned by the caller
	// State is the supervisor's state directory; "" is DefaultState.
	State string
}

// DefaultState is the state directory of the service.
const DefaultState = "/var/lib/corral"

// Examine runs all checks, one after the other. If ctx ends, the remaining checks are unknown.
func Examine(ctx context.Context, s Subject) Report {
	x := &examination{
		subject: s,
		host:    seeHost(cmp.Or(s.State, DefaultState)),
		facts:   map[string]fact{},
		done:    map[*probe]*outcome{},
	}
	if s.Supervisor != nil {
		if facts, err := s.Supervisor.Facts(); err == nil {
			for _, f := range facts {
				x.facts[f.Name] = fact{f.Present, f.Detail}
			}
		}
	}
	defer x.open()()
	report := Report{Host: x.host.describe(x.facts)}
	rows := checks
	for i := range rows {
		report.Checks = append(report.Checks, x.check(ctx, &rows[i]))
	}
	report.Verdict = verdict(report.Checks)
	return report
}

// A check is a row of the table.
type check struct {
	name    string
	meaning string // what holds if the status is OK
	remedy  string
	probe   *probe                             // its outcome is passed to judge; nil: judge uses the host only
	judge   func(e *evidence) (Status, string) // returns the status and what was found
}

// evidence is the input of a judge.
type evidence struct {
	host    *host
	facts   map[string]fact
	place   Place
	outcome // of the row's probe
}

// A fact is a feature of the host as reported by the supervisor: whether it is present, and the detail or the substitute.
type fact struct {
	present bool
	detail  string
}

// noJob is the detail of checks that need a job, where none runs.
const noJob = "not tried, because no job runs"

// An examination is one run through the table.
type examination struct {
	subject Subject
	host    *host
	facts   map[string]fact
	done    map[*probe]*outcome // several rows may use one probe
	broken  bool                // no job runs
	bait    bait
}

// check runs one check.
func (x *examination) check(ctx context.Context, row *check) Check {
	c := Check{Name: row.name, Meaning: row.meaning, Remedy: row.remedy}
	e := &evidence{host: x.host, facts: x.facts, place: x.subject.Place}
	if row.probe != nil {
		if ctx.Err() != nil || x.broken {
			c.Status, c.Detail = Unknown, noJob
			if ctx.Err() != nil {
				c.Detail = "not tried: interrupted"
			}
			return c
		}
		e.outcome = *x.run(ctx, row.probe)
		if e.err != nil {
			x.refused(row, &c, e.err)
			return c
		}
	}
	if c.Status, c.Detail = row.judge(e); c.Status == Fail && row.probe != nil && row.probe.again != nil {
		if o := x.run(ctx, row.probe.again); o.err == nil {
			e.outcome = *o
			c.Status, c.Detail = row.judge(e)
		}
	}
	return c
}

// refused says what it means for a check that its job was refused.
func (x *examination) refused(row *check, c *Check, err error) {
	c.Status = Fail
	switch {
	case row.probe == simple: // its job does nothing but run: if it is refused, every job is
		x.broken = true
		if isOtherRepo(err) {
			c.Status = Unknown // it says nothing about the jobs that run
		}
	case row.probe.layer != 0 && !x.broken:
		c.Status = Degraded // sessions are refused, so no job runs with less protection
	}
	c.Detail, c.Remedy = explain(err, row.remedy)
}

// isOtherRepo reports whether a supervisor refused a job only because it does not serve the directory.
func isOtherRepo(err error) bool {
	var refusal *job.Refusal
	return errors.As(err, &refusal) && refusal.Step == "repo" && refusal.Errno == 0
}

// promptly is the maximum time that ending a job may take on a slow machine.
const promptly = 3 * time.Second
