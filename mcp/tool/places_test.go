package tool

import (
	"errors"
	"testing"

	"corral/internal/strictjson"
	"corral/internal/test/sandboxtest"
)

// TestErrorsQuote: errors quote what a client wrote escaped, on one line and cut.
func TestErrorsQuote(t *testing.T) {
	said := func(err error) string { return AsError(err).Message }
	sandboxtest.CheckShown(t, []sandboxtest.Place{
		{Name: "unknown argument", Lines: 1, Most: 6*MaxShown + 200, Shows: func(s string) string { return said(unknown("", s, nil)) }},
		{Name: "no repository", Lines: 1, Most: 6*MaxShown + 200, Shows: func(s string) string { return said(Caller{}.MayUse(nil, s)) }},
		{Name: "not in the list", Lines: 1, Most: 6*MaxShown + 200, Shows: func(s string) string {
			var a struct {
				Mode string `arg:"mode" enum:"a"`
			}
			return said(Decode(strictjson.Encode(map[string]string{"mode": s}), &a, Strict))
		}},
		{Name: "no number", Lines: 1, Most: 6*MaxShown + 200, Shows: func(s string) string {
			var a struct {
				N int `arg:"n,max=1"`
			}
			return said(Decode(strictjson.Encode(map[string]string{"n": "1x" + s}), &a, Lenient))
		}},
	})
	// What else fails says it in words of ours, with names in quotes. Its lines stay.
	if got := said(errors.New("a\n\tb\x1b[2J\u202e\xff")); got != "a\n\tb"+`\x1b[2J\u202e\xff` {
		t.Errorf("%q", got)
	}
}
