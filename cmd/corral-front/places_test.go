package main

import (
	"bytes"
	"strings"
	"testing"

	"corral/front/cli"
	"corral/internal/text/texttest"
	"corral/job"
	"corral/policy"
	"corral/store/audit/record"
	"corral/workspace/changes/stream"
)

// TestPlaces checks that names chosen by jobs and claims of front-ends are printed without affecting the text around
// them.
func TestPlaces(t *testing.T) {
	texttest.Check(t, []texttest.Place{
		// PATH_MAX bounds names, and the audit log bounds its fields.
		{Name: "change", Lines: 1, Shows: func(s string) string {
			return changeLine(&stream.Entry{Path: s, Kind: job.ChangeAdded, Type: job.TypeFile})
		}},
		{Name: "changed link", Lines: 1, Shows: func(s string) string {
			return changeLine(&stream.Entry{Path: s, Kind: job.ChangeAdded, Type: job.TypeLink, Link: s})
		}},
		{Name: "change as JSON", Lines: strings.Count(asJSON(t, newChangeJSON(&stream.Entry{Path: "x", Link: "x"})), "\n"), Shows: func(s string) string {
			e := newChangeJSON(&stream.Entry{Path: s, Link: s})
			e.Bytes64 = ""
			return asJSON(t, e)
		}},
		{Name: "audit record", Lines: 1, Shows: func(s string) string {
			return auditLine(&record.Record{Event: record.Decided, Message: s, Claimed: map[string]string{"principal": s, "reason": s}})
		}},
		{Name: "decision", Lines: 4, Shows: func(s string) string {
			var b bytes.Buffer
			if err := writeExplanation(&b, policy.Explanation{Steps: []policy.Step{{Rule: "repo", Outcome: "ok", Found: "is " + s}}, Decision: job.Decision{Rule: "x"}}); err != nil {
				t.Error(err)
			}
			return b.String()
		}},
		{Name: "unpacker's error", Lines: 1, Most: 4200, Shows: func(s string) string {
			f := &feed{stderr: &capture{}}
			f.stderr.text.WriteString("corral-layer: x" + s)
			return f.failure().Error()
		}},
	})
}

func asJSON(t *testing.T, v any) string {
	var b bytes.Buffer
	if err := cli.WriteJSON(&b, v); err != nil {
		t.Error(err)
	}
	return b.String()
}
