package supervisor

import (
	"errors"
	"sync"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
	"corral/job"
)

// A fake is a supervisor.
type fake struct {
	mu    sync.Mutex
	jobs  []wire.Entry // guarded by mu
	err   error        // guarded by mu
	asked int          // guarded by mu
	read  int          // guarded by mu: how often for commands
}

func (f *fake) list(commands bool) ([]wire.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if commands {
		f.read++
	}
	return append([]wire.Entry(nil), f.jobs...), f.err
}

func (f *fake) set(err error, jobs ...wire.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.jobs = err, jobs
}

func (f *fake) times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func entry(id, handle string) wire.Entry {
	return wire.Entry{Job: id, Artifact: handle, Started: time.Now().UnixNano(), CPU: 5, MemoryNow: 7}
}

// stopped waits until the Sampler does not ask any more.
func stopped(t *testing.T, s *Sampler) {
	t.Helper()
	sandboxtest.Eventually(t, time.Minute, "the supervisor is not asked any more", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.asking
	})
}

// TestJob: a job of this process is sampled until it ends, also when the supervisor lists it no longer. Afterwards nothing is asked or
// kept.
func TestJob(t *testing.T) {
	f := &fake{}
	f.set(nil, entry("job-a", "handle-a"), entry("job-b", "handle-b"))
	s := newSampler(f.list, time.Millisecond)
	s.Begin("handle-a")
	sandboxtest.Eventually(t, time.Minute, "the job has samples", func() bool { return len(s.Of("job-a")) > 2 })
	if len(s.Of("job-none")) != 0 {
		t.Error("a job that does not run has samples")
	}
	f.set(nil)
	sandboxtest.Eventually(t, time.Minute, "another process's job has ended", func() bool { return len(s.Of("job-b")) == 0 })
	list := s.End("handle-a")
	if len(list) < 3 || list[0].CPU != 5 || list[0].Memory != 7 || list[0].At < 0 || list[0].At > list[1].At {
		t.Errorf("%+v", list)
	}
	if again := s.End("handle-a"); again != nil {
		t.Errorf("a second time %+v", again)
	}
	stopped(t, s)
	if len(s.jobs) != 0 || len(s.mine) != 0 {
		t.Errorf("kept %v, %v", s.jobs, s.mine)
	}
	if f.read != 0 {
		t.Errorf("commands were read %d times for nobody", f.read)
	}
	var none *Sampler
	if none.Begin("x"); none.End("x") != nil {
		t.Error("nil has samples")
	}
}

// TestShort: for jobs that end within an interval nothing is asked.
func TestShort(t *testing.T) {
	f := &fake{}
	s := newSampler(f.list, time.Hour)
	for range 1000 {
		s.Begin("handle")
		s.End("handle")
	}
	if n := f.times(); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

// TestWatch: a watcher gets the newest snapshot, errors too, as long as it watches; one that takes none holds nothing up.
func TestWatch(t *testing.T) {
	f := &fake{}
	f.set(nil, entry("job-a", ""))
	s := newSampler(f.list, time.Millisecond)
	w, slow := s.Watch(), s.Watch()
	<-w.News
	if n := w.Take(); n.Err != nil || len(n.Jobs) != 1 || n.At.IsZero() || !n.commands {
		t.Errorf("%+v", n)
	}
	f.set(errors.New("gone"))
	sandboxtest.Eventually(t, time.Minute, "the watcher is told of the error", func() bool { <-w.News; return w.Take().Err != nil })
	before := f.times()
	sandboxtest.Eventually(t, time.Minute, "it is asked on", func() bool { return f.times() > before+3 })
	if len(slow.News) != 1 {
		t.Errorf("%d values wait for one that takes none", len(slow.News))
	}
	w.Close()
	slow.Close()
	stopped(t, s)
}

// TestThinned: however long a job runs, its samples are bounded and spread over its whole life.
func TestThinned(t *testing.T) {
	o := &series{step: 1}
	const n = 100_000
	for i := range n {
		o.add(job.Sample{At: time.Duration(i) * time.Second})
		if len(o.points) >= job.MaxSamples {
			t.Fatalf("%d samples", len(o.points))
		}
	}
	if len(o.points) < job.MaxSamples/2-1 {
		t.Errorf("%d samples are left", len(o.points))
	}
	gap := o.points[1].At - o.points[0].At
	for i, p := range o.points[1:] {
		if p.At-o.points[i].At != gap {
			t.Errorf("samples at %v and %v, others %v apart", o.points[i].At, p.At, gap)
		}
	}
	if last := o.points[len(o.points)-1].At; last < (n-1)*time.Second-2*gap || o.points[0].At > 2*gap {
		t.Errorf("samples from %v to %v", o.points[0].At, last)
	}
}
