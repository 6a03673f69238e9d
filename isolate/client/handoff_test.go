package client

import (
	"reflect"
	"strings"
	"testing"

	"corral/job"
)

// TestHandOver: a job arrives as it was passed, also with bytes that are not UTF-8.
func TestHandOver(t *testing.T) {
	want := job.Spec{
		Session: "0f", Repo: "/srv/\xff", Dir: "\xfe", Args: []string{"sh", "-c", "\x01\xff", ""}, Env: []string{"A=\xc3"},
		Workspace: job.Overlay, Protect: job.ProtectAll, Profile: "strict", Limits: job.Limits{Wall: 7, PIDs: 9}, Network: "none",
	}
	f, err := HandOver(want)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := TakeOver(f); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestHandOverRefused: a text without a job, and a job that is too large.
func TestHandOverRefused(t *testing.T) {
	for _, text := range []string{"", "{", "{}", `{"Args":["x"]}`} {
		if got, err := TakeOver(strings.NewReader(text)); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if f, err := HandOver(job.Spec{Args: []string{strings.Repeat("x", maxHanded)}}); err == nil {
		f.Close()
		t.Error("a job of more than the maximum is passed")
	}
}
