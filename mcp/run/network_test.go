package run

import (
	"reflect"
	"slices"
	"testing"

	"corral/internal/test/mcptest"
	"corral/internal/test/sandboxtest"
	"corral/job"
)

func TestDenied(t *testing.T) {
	for _, tt := range []struct {
		name string
		use  *job.NetworkUse
		want []string
	}{
		{"no network", nil, nil},
		{"all allowed", &job.NetworkUse{Connections: 1}, nil},
		{"denied", mcptest.NetworkUse(), mcptest.Denied},
		{"many", &job.NetworkUse{Denied: 9, Denials: slices.Repeat([]job.NetworkDenial{{Name: "x", Why: "y", Count: 1}}, 9)}, []string{
			"network: x denied: y", "network: x denied: y", "network: x denied: y", "network: x denied: y", "network: x denied: y",
			"network: and 4 more denied",
		}},
	} {
		if got := Denied(&job.Record{Result: job.Result{Network: tt.use}}); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestDeniedIsEscaped: names that jobs look up do not begin a line or hide text.
func TestDeniedIsEscaped(t *testing.T) {
	sandboxtest.CheckShown(t, []sandboxtest.Place{{Name: "denied", Lines: 1, Shows: func(s string) string {
		return Denied(&job.Record{Result: job.Result{Network: &job.NetworkUse{Denials: []job.NetworkDenial{{Name: s, Why: s}}}}})[0]
	}}})
}

// TestNetworkOfOutcome: a reply has what the job reached, in valid UTF-8, and the record keeps what it has.
func TestNetworkOfOutcome(t *testing.T) {
	record := &job.Record{Result: job.Result{Network: mcptest.NetworkUse()}}
	if _, _, got := OutcomeOf(record); !reflect.DeepEqual(got.Network, mcptest.NetworkUse()) {
		t.Errorf("%+v", got.Network)
	}
	record.Result.Network.Denials[0].Name = "a\xff"
	if _, _, got := OutcomeOf(record); got.Network.Denials[0].Name != "a\uFFFD" || record.Result.Network.Denials[0].Name != "a\xff" {
		t.Errorf("%+v of %+v", got.Network, record.Result.Network)
	}
	if _, _, got := OutcomeOf(&job.Record{}); got.Network != nil {
		t.Errorf("without network: %+v", got.Network)
	}
}
