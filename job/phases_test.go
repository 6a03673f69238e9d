package job

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParts(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	record := func(p Phases, wall time.Duration) *Record {
		return &Record{Created: begin, Phases: p, Result: Result{Usage: Usage{Wall: wall}}}
	}
	whole := Phases{Decided: at(2), Launched: at(10), Ended: at(100), Stored: at(105)}
	for _, tt := range []struct {
		name   string
		record *Record
		want   string // NAME FROM-TO, in ms
	}{
		{"no decision", record(Phases{}, 0), ""},
		{"denied", record(Phases{Decided: at(2)}, 0), "decision 0-2"},
		{"refused", record(Phases{Decided: at(2), Launched: at(10), Ended: at(15)}, 0), "decision 0-2, start 2-15"},
		{"run", record(whole, 80*time.Millisecond), "decision 0-2, start 2-20, run 20-100, store 100-105"},
		{"run time above the time since the launch", record(whole, time.Hour), "decision 0-2, start 2-10, run 10-100, store 100-105"},
		{"run time not known", record(whole, -1), "decision 0-2, start 2-100, run 100-100, store 100-105"},
	} {
		var got []string
		for _, p := range tt.record.Parts() {
			got = append(got, fmt.Sprintf("%s %d-%d", p.Name, p.From.Sub(begin).Milliseconds(), p.To.Sub(begin).Milliseconds()))
		}
		if s := strings.Join(got, ", "); s != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, s, tt.want)
		}
	}
}

// TestPhases: the engine records the phases of a request in order.
func TestPhases(t *testing.T) {
	var launched, returned time.Time
	s := &stage{decision: allowed(), run: func(context.Context, Spec, Stdio) (Result, error) {
		launched = time.Now()
		for !time.Now().After(launched) { // the clock may be coarse
		}
		returned = time.Now()
		return Result{Status: Success, Usage: Usage{Wall: returned.Sub(launched)}}, nil
	}}
	r, err := s.engine().Run(t.Context(), &request, s, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	p := r.Phases
	inOrder := []time.Time{r.Created, p.Decided, p.Launched, launched, returned, p.Ended, p.Stored}
	for n := 1; n < len(inOrder); n++ {
		if inOrder[n].Before(inOrder[n-1]) {
			t.Errorf("time %d is before its predecessor: %v", n, inOrder)
		}
	}
	if parts := r.Parts(); len(parts) != 4 || parts[2].To.Sub(parts[2].From) != r.Result.Usage.Wall {
		t.Errorf("%+v", parts)
	}
	s = &stage{decision: Decision{Rule: "timeout", Reasons: []string{"too long"}}}
	if r, err = s.engine().Run(t.Context(), &request, s, Hooks{}); err != nil || len(r.Parts()) != 1 {
		t.Errorf("denied: %+v, %v", r.Parts(), err)
	}
}
