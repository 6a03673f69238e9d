// Package doctor finds out what a host can enforce, by running jobs that try what they should not be able to do.
//
// What counts is what a job meets, not what the supervisor believes of itself: each check is a row of a table (see
// checks) with a small program that is run as a job, a function that judges what became of it, what it means to whoever
// trusts the jail, and how to mend it. Few checks look at the host instead, where a job cannot show a thing: the
// kernel's age, the CPU's flaws, what the kernel does with a crash.
//
// Jobs run `sh` and the usual small programs beside it, in a directory made for the purpose (see Place), which is removed
// with all that they left.
//
// A check that could not be made is never ok: it is unknown where no job runs, and counts as a failure where it alone was
// refused.
package doctor

import (
	"context"
	"time"

	"corral/isolate/client"
)

// A Subject is what is examined.
type Subject struct {
	Supervisor *client.Client // nil when there is none, for the reason Err
	Err        error
	Place      Place
}

// Examine runs every check, one after the other. When ctx ends, the checks that are left are unknown.
func Examine(ctx context.Context, s Subject) Report {
	x := &examination{
		subject: s,
		host:    seeHost(s.Place),
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
	rows := checks()
	for i := range rows {
		report.Checks = append(report.Checks, x.check(ctx, &rows[i]))
	}
	report.Verdict = verdict(report.Checks)
	return report
}

// A check is a row of the table.
type check struct {
	name    string
	meaning string // of its being ok, to whoever trusts the jail
	remedy  string
	probe   *probe // that judge looks at; nil: it looks at the host alone
	judge   func(e *evidence) (Status, string)
}

// Evidence is what a judge may look at.
type evidence struct {
	host    *host
	facts   map[string]fact
	place   Place
	outcome // of the row's probe
}

// A fact is what the supervisor says of the host: what is there, and what it does where it is not.
type fact struct {
	present bool
	detail  string
}

// An examination is one run through the table.
type examination struct {
	subject Subject
	host    *host
	facts   map[string]fact
	done    map[*probe]*outcome // rows may share a probe
	broken  bool                // no job runs
	bait    bait
}

// check makes one check.
func (x *examination) check(ctx context.Context, row *check) Check {
	c := Check{Name: row.name, Meaning: row.meaning, Remedy: row.remedy}
	e := &evidence{host: x.host, facts: x.facts, place: x.subject.Place}
	if row.probe != nil {
		if ctx.Err() != nil || x.broken {
			c.Status, c.Detail = Unknown, "not tried: no job runs"
			if ctx.Err() != nil {
				c.Detail = "not tried: interrupted"
			}
			return c
		}
		e.outcome = *x.run(ctx, row.probe)
		if e.err != nil {
			// The first row's job does nothing but run.
			x.broken = x.broken || row.probe == simple
			c.Status = Fail
			if row.probe.layer != 0 && !x.broken {
				c.Status = Degraded // nothing runs with less: what takes a session is refused
			}
			c.Detail, c.Remedy = explain(e.err, row.remedy)
			return c
		}
	}
	c.Status, c.Detail = row.judge(e)
	return c
}

// promptly is how long the end of a job may take on a slow machine.
const promptly = 3 * time.Second
