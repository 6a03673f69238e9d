package main

import (
	"bytes"
	"strings"
	"testing"

	"corral/internal/version"
)

// TestRun: help and version go to standard output, and a mistake on the command line is an error with a hint.
func TestRun(t *testing.T) {
	for _, tt := range []struct {
		args      []string
		out, fail string // parts
	}{
		{[]string{"--help"}, "corrald", ""},
		{[]string{"-h"}, "--socket", ""},
		{[]string{"--version"}, "corrald " + version.Version + "\n", ""},
		{[]string{"--bogus"}, "", "flag provided but not defined: -bogus\nhint: corrald --help"},
		{[]string{"serve"}, "", "unexpected argument \"serve\"\nhint: corrald --help"},
	} {
		var out bytes.Buffer
		err := run(tt.args, &out)
		if (err == nil) != (tt.fail == "") || err != nil && !strings.Contains(err.Error(), tt.fail) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.fail)
		}
		if !strings.Contains(out.String(), tt.out) || tt.fail != "" && out.Len() > 0 {
			t.Errorf("%q: it wrote %q, want %q", tt.args, out.String(), tt.out)
		}
	}
}
