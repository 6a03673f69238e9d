package client

import (
	"reflect"
	"strings"
	"testing"

	"corral/egress/control"
	"corral/isolate/wire"
	"corral/job"
)

func summary(s control.Summary) string { return s.Encode() }

// TestNetworkUse: what a job reached is in its result, and a text that corral-egress does not write changes nothing else of it.
func TestNetworkUse(t *testing.T) {
	for _, tt := range []struct {
		name, reached string
		want          *job.NetworkUse
	}{
		{"no network", "", nil},
		{"unused", summary(control.Summary{}), &job.NetworkUse{}},
		{
			"used",
			summary(control.Summary{
				Connections: 3, Denied: 2, BytesUp: 100, BytesDown: 2000,
				Denials: []control.Denial{{Name: "example.org", Port: 443, Why: "no rule allows it", Allow: "{host: example.org}", Count: 2}},
			}),
			&job.NetworkUse{
				Connections: 3, Denied: 2, BytesUp: 100, BytesDown: 2000,
				Denials: []job.NetworkDenial{{Name: "example.org", Port: 443, Why: "no rule allows it", Allow: "{host: example.org}", Count: 2}},
			},
		},
		{"not JSON", "example.org", nil},
		{"half", `{"connections":1`, nil},
		{"negative", `{"connections":-1}`, nil},
		{"another type", `{"denials":"example.org"}`, nil},
		{"too many denials", `{"denials":[` + strings.Repeat("{},", control.MaxDenials) + `{}]}`, nil},
	} {
		got, err := result(wire.Result{Outcome: wire.Exited, Job: "job-1", Reached: tt.reached})
		if err != nil || !reflect.DeepEqual(got.Network, tt.want) {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got.Network, err, tt.want)
		}
		if got.ID != "job-1" || got.Status != job.Success {
			t.Errorf("%s: the result is %+v", tt.name, got)
		}
	}
	if got, err := result(wire.Result{Outcome: wire.Refused, Reached: summary(control.Summary{})}); err == nil || got.Network != nil {
		t.Errorf("refused: %+v, %v", got, err)
	}
}

// TestNetworkTexts: no text about a denial rewrites a terminal, begins a line of its own, changes the direction of text or is long.
func TestNetworkTexts(t *testing.T) {
	hostile := "a\x1b[2J\r\nb\u202e\u2028c\u200b\x00\u009b"
	got := NetworkUse(summary(control.Summary{Denials: []control.Denial{{Name: hostile, Why: hostile, Allow: hostile}}}))
	if got == nil {
		t.Fatal("not decoded")
	}
	d := got.Denials[0]
	const want = `a\x1b[2J b\u202e c\u200b\x00\u009b`
	if d.Name != want || d.Why != want || d.Allow != want {
		t.Errorf("%q, %q, %q, want %q", d.Name, d.Why, d.Allow, want)
	}
	long := strings.Repeat("x", 2000)
	got = NetworkUse(summary(control.Summary{Denials: []control.Denial{{Name: long, Why: long, Allow: long}}}))
	for text, limit := range map[*string]int{&got.Denials[0].Name: maxHost, &got.Denials[0].Why: maxWhy, &got.Denials[0].Allow: maxAllow} {
		if *text != long[:limit]+"…" {
			t.Errorf("%d bytes, want %d and an ellipsis", len(*text), limit)
		}
	}
}
