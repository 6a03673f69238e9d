package commands

import (
	"bytes"
	"strings"
	"testing"

	"corral/front/cli"
	"corral/internal/test/sandboxtest"
	"corral/job"
	"corral/workspace/changes/stream"
)

// TestChangesPlaces checks that names chosen by jobs are printed without affecting the text around them. PATH_MAX bounds names.
func TestChangesPlaces(t *testing.T) {
	sandboxtest.CheckShown(t, []sandboxtest.Place{
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
	})
}

func asJSON(t *testing.T, v any) string {
	var b bytes.Buffer
	if err := cli.WriteJSON(&b, v); err != nil {
		t.Error(err)
	}
	return b.String()
}
