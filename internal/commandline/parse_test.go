package commandline_test

import (
	"reflect"
	"testing"

	"corral/internal/commandline"
)

// TestParse reads a help text with each form that there is.
func TestParse(t *testing.T) {
	c := commandline.Parse("box", `corral box keeps boxes: big ones. They stay.

Usage:
  corral box open|shut [FILE] [--size N] [--tags A,...]
                       [--quiet]
                         open or shut one, with --force if it
                         is locked
  sudo corral box drop DIR...   drop some

  --repo DIR   where
               they are
  --json       print JSON

Exit code: 0.
`)
	want := commandline.Command{
		Name: "box", Summary: "keeps boxes", Intro: "corral box keeps boxes: big ones. They stay.",
		Usage: []commandline.Entry{
			{Line: "corral box open|shut [FILE] [--size N] [--tags A,...] [--quiet]", Text: "open or shut one, with --force if it is locked"},
			{Line: "sudo corral box drop DIR...", Text: "drop some"},
		},
		Subs: []commandline.Sub{
			{Name: "open", Text: "open or shut one, with --force if it is locked", Arg: commandline.File},
			{Name: "shut", Text: "open or shut one, with --force if it is locked", Arg: commandline.File},
			{Name: "drop", Text: "drop some", Arg: commandline.Directory},
		},
		Options: []commandline.Option{
			{Name: "--repo", Value: "DIR", Text: "where they are"},
			{Name: "--json", Text: "print JSON"},
			{Name: "--size", Value: "N"},
			{Name: "--tags", Value: "A,..."},
			{Name: "--quiet"},
		},
		Rest: []string{"Exit code: 0."},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("\n%+v, want\n%+v", c, want)
	}
}
