package mcp

import (
	"testing"

	"corral/internal/text/texttest"
)

// TestJobErrorsQuote: errors quote what a client wrote, on one line and cut.
func TestJobErrorsQuote(t *testing.T) {
	said := func(err error) string { return fail(err).Message }
	texttest.Check(t, []texttest.Place{
		{Name: "no background job", Lines: 1, Most: 6*maxShown + 200, Shows: func(s string) string {
			_, err := (&jobs{}).find(owner{}, s)
			return said(err)
		}},
	})
}
