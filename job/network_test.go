package job

import (
	"math"
	"slices"
	"testing"
)

func TestNetworkDenial(t *testing.T) {
	for _, tt := range []struct {
		d            NetworkDenial
		host, reason string
	}{
		{NetworkDenial{Name: "example.org", Why: "no rule"}, "example.org", "no rule"},
		{NetworkDenial{Name: "example.org", Port: 443, Why: "no rule", Allow: "{host: example.org}"}, "example.org:443", "no rule; to allow it: {host: example.org}"},
	} {
		if host, reason := tt.d.Host(), tt.d.Reason(); host != tt.host || reason != tt.reason {
			t.Errorf("%q, %q, want %q, %q", host, reason, tt.host, tt.reason)
		}
	}
}

// TestUnlisted: counts that do not add up, which an untrusted program may report, yield no negative number.
func TestUnlisted(t *testing.T) {
	for _, tt := range []struct {
		denied int64
		counts []int64
		want   int64
	}{
		{0, nil, 0},
		{5, nil, 5},
		{5, []int64{2, 1}, 2},
		{5, []int64{2, 3}, 0},
		{1, []int64{2, 3}, 0},
		{5, []int64{-4}, 5},
		{5, []int64{math.MaxInt64, math.MaxInt64, 1}, 0},
	} {
		u := NetworkUse{Denied: tt.denied}
		for _, n := range tt.counts {
			u.Denials = append(u.Denials, NetworkDenial{Count: n})
		}
		if got := u.Unlisted(); got != tt.want {
			t.Errorf("%d of %v: %d, want %d", tt.denied, tt.counts, got, tt.want)
		}
	}
}

// TestLost: what is said of a job begins with what is not known, with denials and without.
func TestLost(t *testing.T) {
	const lost = "network: corral-egress ended while the job ran: what it reached before that is not known"
	for _, tt := range []struct {
		use  NetworkUse
		want []string
	}{
		{NetworkUse{Lost: true}, []string{lost}},
		{NetworkUse{Lost: true, Denied: 2}, []string{lost, "network: 2 connections or names denied"}},
		{
			NetworkUse{Lost: true, Denied: 2, Denials: []NetworkDenial{{Name: "a", Why: "no", Count: 1}}},
			[]string{lost, "network: a denied: no", "network: and 1 more denied"},
		},
	} {
		if got, _ := tt.use.Report(9); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %q", tt.use, got)
		}
	}
}
