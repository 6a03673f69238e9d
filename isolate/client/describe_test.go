package client

import (
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
	"corral/job"
)

// TestRecording: a request claims as much of its program as the supervisor says that it records, without secrets. The supervisor is asked once.
func TestRecording(t *testing.T) {
	sandboxtest.Leaks(t)
	spec := job.Spec{
		Args:    []string{"curl", "-H", "Authorization: Bearer abcdefghijklmnop0123", "it's", "", "--with=our 'own'"},
		Files:   []job.File{{Path: "/a", Content: "key = our-own-value\n"}},
		Secrets: []string{"our-own-value", "our 'own'"},
	}
	for _, tt := range []struct {
		record       job.Recording
		argv, source string
	}{
		{job.RecordHash, "", ""},
		{job.RecordArgv, `curl -H 'Authorization: Bearer [REDACTED:secret]' 'it'\''s' '' '--with=[REDACTED:secret]'`, ""},
		{job.RecordCode, `curl -H 'Authorization: Bearer [REDACTED:secret]' 'it'\''s' '' '--with=[REDACTED:secret]'`, "key = [REDACTED:secret]\n"},
	} {
		c, s := supervisor(t)
		c.record = nil
		done := make(chan error)
		go func() {
			for range 2 {
				done <- c.Denied(t.Context(), job.Claim{Tool: "x"}, spec)
			}
		}()
		head, _, _ := next(t, s)
		if head.Op != wire.OpHello {
			t.Fatalf("%v, want a Hello first", head)
		}
		if err := s.Send(wire.Encode(&wire.Welcome{Instance: "main", Record: tt.record}, head.Tag)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			head, body, _ := next(t, s)
			m, err := wire.Decode[wire.Denied](body)
			if want := (job.Claim{Tool: "x", Argv: tt.argv, Source: tt.source}); head.Op != wire.OpDenied || err != nil || m.Claim != want {
				t.Errorf("%v: %+v, %v; want %+v", tt.record, m.Claim, err, want)
			}
			if err := s.Send(wire.Encode(&wire.Answer{}, head.Tag)); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

// TestNetworkClaimed: a job claims what it asks for of the network, and a denied request what its front-end says.
func TestNetworkClaimed(t *testing.T) {
	for _, tt := range []struct{ claimed, asked, want string }{
		{"", "", ""}, {"", "npm", "npm"}, {"npm pypi", "npm", "npm"}, {"npm", "", "npm"},
	} {
		c := &Client{record: new(job.RecordHash)}
		got, err := c.claim(t.Context(), job.Spec{Network: tt.asked, Claim: job.Claim{Network: tt.claimed}})
		if err != nil || got.Network != tt.want {
			t.Errorf("%+v: %q, %v", tt, got.Network, err)
		}
	}
}

// TestSource: one file is its content; several have their names.
func TestSource(t *testing.T) {
	if got := source([]job.File{{Path: "/a", Content: "x"}}); got != "x" {
		t.Errorf("%q", got)
	}
	if got := source([]job.File{{Path: "/a", Content: "x"}, {Path: "/b", Content: "y"}}); got != "==> /a <==\nx\n==> /b <==\ny\n" {
		t.Errorf("%q", got)
	}
	if got := commandLine([]string{strings.Repeat("a", 3), "b c", "$d"}, nil); got != "aaa 'b c' '$d'" {
		t.Errorf("%q", got)
	}
}
