package job

import (
	"errors"
	"sync"
	"testing"
	"time"
)

// TestQuotas: a principal has as many jobs at once as its quota, whatever others have, and a new quota applies to the next job.
func TestQuotas(t *testing.T) {
	var q Quotas
	q.Set(map[string]int{"token:a": 2})
	var held []func()
	take := func(principal string, want bool) {
		t.Helper()
		give, err := q.take(principal)
		if (err == nil) != want || err != nil && !errors.Is(err, ErrFull) {
			t.Fatalf("%s: %v", principal, err)
		}
		if err == nil {
			held = append(held, give)
		}
	}
	take("token:a", true)
	take("token:a", true)
	take("token:a", false)
	for range 10 {
		take("token:b", true)
	}
	held[0]()
	take("token:a", true)
	q.Set(map[string]int{"token:a": 1, "token:b": 1})
	take("token:a", false)
	take("token:b", false)
	q.Set(nil)
	take("token:a", true)
	for _, give := range held[1:] {
		give()
	}
	if len(q.used) != 0 {
		t.Errorf("left: %v", q.used)
	}
	if give, err := (*Quotas)(nil).take("token:a"); err != nil {
		t.Error(err)
	} else {
		give()
	}
}

// TestQuotaOfEngine: a request beyond the quota of its principal is denied, also while the first one waits in the queue, and recorded;
// one of another principal runs.
func TestQuotaOfEngine(t *testing.T) {
	s := &stage{decision: allowed(), run: succeed}
	e := s.engine()
	e.Queue, e.Quotas = NewQueue(1, 5, time.Hour), &Quotas{}
	e.Quotas.Set(map[string]int{"token:a": 1})
	leave, err := e.Queue.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var first sync.WaitGroup
	first.Go(func() {
		if r, err := e.Run(t.Context(), &Request{Principal: "token:a"}, &stage{}, Hooks{}); err != nil || r.Status == Denied {
			t.Errorf("%+v, %v", r, err)
		}
	})
	for end := time.Now().Add(time.Minute); e.Queue.Load().Waiting == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	r, err := e.Run(t.Context(), &Request{Principal: "token:a"}, &stage{}, Hooks{})
	if err != nil || r.Status != Denied || r.Decision.Rule != "concurrency" || r.Decision.Reasons[0] != "Concurrency limit reached (1/1 jobs of token:a)" {
		t.Errorf("%+v, %v", r, err)
	}
	leave()
	first.Wait()
	if r, err := e.Run(t.Context(), &Request{Principal: "token:a"}, &stage{}, Hooks{}); err != nil || r.Status == Denied {
		t.Errorf("after the first one ended: %+v, %v", r, err)
	}
}
