package job

import (
	"context"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestQuotas: a principal has as many jobs at once as its quota, whatever others have, and a new quota applies to the next job.
func TestQuotas(t *testing.T) {
	var q Quotas
	q.Set(map[string]Quota{"token:a": {Jobs: 2}})
	var held []func()
	take := func(principal string, want bool) {
		t.Helper()
		give, err := q.take(principal)
		if (err == nil) != want || err != nil && !denies(err, "concurrency") {
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
	q.Set(map[string]Quota{"token:a": {Jobs: 1}, "token:b": {Jobs: 1}})
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
}

// TestQuotaOfEngine: a request beyond the quota of its principal is denied, also while the first one waits in the queue, and recorded;
// one of another principal runs.
func TestQuotaOfEngine(t *testing.T) {
	s := &stage{decision: allowed(), run: succeed}
	e := s.engine()
	e.Queue, e.Quotas = NewQueue(1, 5, time.Hour), &Quotas{}
	e.Quotas.Set(map[string]Quota{"token:a": {Jobs: 1}})
	leave, err := e.Queue.Enter(t.Context(), 0)
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

// TestQuotaOfOutput: a principal whose jobs have written what they may in a day runs none until enough time has passed, whatever it has
// written beyond that. Others do not pay for it, and neither a change of quotas nor a job that is refused makes it forget.
func TestQuotaOfOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Quotas
		q.Set(map[string]Quota{"token:a": {Output: 1 << 20, Jobs: 1}, "token:b": {Jobs: 5}})
		may := func(principal string) error {
			give, err := q.take(principal)
			if err == nil {
				give()
			}
			return err
		}
		for range 4 {
			if err := may("token:a"); err != nil {
				t.Fatal(err)
			}
			q.wrote("token:a", 1<<18)
		}
		q.wrote("token:b", 1<<40)
		err := may("token:a")
		if !denies(err, "output") || err.Error() != "Output limit reached (1MiB a day of token:a): try again in 1s" {
			t.Errorf("all of a day: %v", err)
		}
		if err := may("token:b"); err != nil {
			t.Errorf("another principal: %v", err)
		}
		time.Sleep(time.Second)
		if err := may("token:a"); err != nil {
			t.Errorf("a second later: %v", err)
		}
		q.wrote("token:a", 1<<19) // half a day
		q.Set(map[string]Quota{"token:a": {Output: 1 << 20}})
		time.Sleep(11 * time.Hour)
		if err := may("token:a"); !denies(err, "output") {
			t.Errorf("before half a day has passed: %v", err)
		}
		time.Sleep(2 * time.Hour)
		if err := may("token:a"); err != nil {
			t.Errorf("after it: %v", err)
		}
		time.Sleep(10 * day)
		q.wrote("token:a", 1<<20)
		if err := may("token:a"); !denies(err, "output") {
			t.Errorf("what was not used in ten days is not saved: %v", err)
		}
		q.Set(nil)
		if err := may("token:a"); err != nil || len(q.written) != 0 || len(q.used) != 0 {
			t.Errorf("without quotas: %v, %v, %v", err, q.written, q.used)
		}
	})
}

// TestOutputOfEngine: what a job has written counts, and the next request beyond the quota is denied and recorded.
func TestOutputOfEngine(t *testing.T) {
	s := &stage{decision: allowed(), run: succeed}
	e := s.engine()
	e.Quotas = &Quotas{}
	e.Quotas.Set(map[string]Quota{"token:a": {Output: 13}}) // a job of a stage writes 12 bytes
	for n, want := range []Status{Success, Success, Denied} {
		r, err := e.Run(t.Context(), &Request{Principal: "token:a"}, &stage{}, Hooks{})
		if err != nil || r.Status != want || want == Denied && r.Decision.Rule != "output" {
			t.Errorf("job %d: %+v, %v", n, r, err)
		}
	}
}

// TestQuotaRace: however many requests of a principal come at once, no more jobs than its quota run, and none counts after it has ended:
// also when its client goes while it waits or runs, when it is refused, and when what runs it fails.
func TestQuotaRace(t *testing.T) {
	const most = 3
	var running, peak, ran atomic.Int64
	queue, quotas := NewQueue(100, 1000, time.Hour), &Quotas{}
	quotas.Set(map[string]Quota{"token:a": {Jobs: most}})
	errs := []error{nil, context.Canceled, &Refusal{Step: "exec", Message: "no"}, &Refusal{Step: "audit", Message: "no"}, io.ErrUnexpectedEOF}
	var all sync.WaitGroup
	for n := range 500 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if n%7 == 0 {
				cancel()
			}
			s := &stage{decision: allowed(), run: func(context.Context, Spec, Stdio) (Result, error) {
				defer running.Add(-1)
				now := running.Add(1)
				for was := peak.Load(); now > was && !peak.CompareAndSwap(was, now); was = peak.Load() {
				}
				ran.Add(1)
				runtime.Gosched()
				return Result{Status: Success}, errs[n%len(errs)]
			}}
			e := s.engine()
			e.Queue, e.Quotas = queue, quotas
			_, _ = e.Run(ctx, &Request{Principal: "token:a"}, s, Hooks{})
		})
	}
	all.Wait()
	if ran.Load() == 0 || peak.Load() > most || len(quotas.used) != 0 {
		t.Errorf("%d ran, at most %d at once, %v are left", ran.Load(), peak.Load(), quotas.used)
	}
}
