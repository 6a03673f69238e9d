package supervisor

import (
	"sync"
	"time"

	"corral/isolate/wire"
	"corral/job"
)

// SampleInterval is the time between two samples.
const SampleInterval = time.Second

// maxSampled is the maximum number of jobs with samples: more than the supervisor lists.
const maxSampled = 4096

// A Sampler samples what the running jobs of a front-end use: CPU time and memory. Its methods may be called by several goroutines
// at once. A nil *Sampler takes none.
//
// The supervisor is asked for its list of running jobs, as corral ps asks: it tells a front-end of its own user's jobs alone. It is
// asked once per interval while a job of this process has run for an interval, or while somebody watches, and not otherwise; a job
// that ends sooner is never sampled. The commands of jobs are read while somebody watches, and not otherwise. The samples of a job are at
// most job.MaxSamples: when there are more, every second one is dropped and further ones are taken half as often, so that they are spread
// over the whole life of a job, however long that is.
type Sampler struct {
	list  func(commands bool) ([]wire.Entry, error)
	pause time.Duration

	mu       sync.Mutex
	jobs     map[string]*series    // guarded by mu: by id
	mine     map[string]time.Time  // guarded by mu: when the jobs of this process began, by the handle of their output
	watchers map[*Watcher]struct{} // guarded by mu
	asking   bool                  // guarded by mu: ask runs
	last     Snapshot              // guarded by mu
}

// A Snapshot is what the supervisor said at one moment.
type Snapshot struct {
	At   time.Time // zero: it was not asked yet
	Jobs []wire.Entry
	Err  error // why it could not be asked

	commands bool // it was asked for the commands of jobs, too
}

// A series is the samples of one job.
type series struct {
	handle string
	points []job.Sample
	step   int // one sample of this number is kept
	skip   int // the number of samples to drop before the next one is kept
}

// NewSampler returns a Sampler that asks by list, with or without the commands of jobs.
func NewSampler(list func(commands bool) ([]wire.Entry, error)) *Sampler {
	return newSampler(list, SampleInterval)
}

func newSampler(list func(commands bool) ([]wire.Entry, error), pause time.Duration) *Sampler {
	return &Sampler{list: list, pause: pause, jobs: map[string]*series{}, mine: map[string]time.Time{}, watchers: map[*Watcher]struct{}{}}
}

// Begin says that the job whose output will have a handle begins now. The caller calls End.
func (s *Sampler) Begin(handle string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mine[handle] = time.Now()
	s.start()
}

// End says that a job has ended, and returns its samples. A second call returns none.
func (s *Sampler) End(handle string) []job.Sample {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mine, handle)
	for id, one := range s.jobs {
		if one.handle == handle {
			delete(s.jobs, id)
			return one.points
		}
	}
	return nil
}

// Of returns the samples of a running job, by its id.
func (s *Sampler) Of(id string) []job.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.jobs[id]; one != nil {
		return append([]job.Sample(nil), one.points...)
	}
	return nil
}

// A Watcher is told of each Snapshot.
type Watcher struct {
	of   *Sampler
	News chan struct{} // has a value when there is a Snapshot that was not taken
}

// Watch has the supervisor asked until the caller closes the Watcher.
func (s *Sampler) Watch() *Watcher {
	w := &Watcher{s, make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[w] = struct{}{}
	if s.last.commands && time.Since(s.last.At) < 2*s.pause {
		w.News <- struct{}{}
	}
	s.start()
	return w
}

// Take returns the last Snapshot. The caller does not change it.
func (w *Watcher) Take() Snapshot {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	return w.of.last
}

// Close ends watching.
func (w *Watcher) Close() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	delete(w.of.watchers, w)
}

// start has the supervisor asked, unless it is. The caller holds s.mu.
func (s *Sampler) start() {
	if !s.asking {
		s.asking = true
		go s.ask()
	}
}

// ask asks the supervisor until there is nothing to ask it for. With a watcher it asks at once.
func (s *Sampler) ask() {
	for s.due() {
		time.Sleep(s.pause)
	}
}

// due asks the supervisor if somebody needs the answer now. It returns false if nobody will, and asking has ended then.
func (s *Sampler) due() bool {
	s.mu.Lock()
	if len(s.mine) == 0 && len(s.watchers) == 0 {
		s.asking = false
		clear(s.jobs)
		s.mu.Unlock()
		return false
	}
	watched := len(s.watchers) > 0
	needed := watched
	for _, begun := range s.mine {
		needed = needed || time.Since(begun) >= s.pause
	}
	s.mu.Unlock()
	if !needed {
		return true
	}
	list, err := s.list(watched) // waits for the supervisor, and so without the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(Snapshot{time.Now(), list, err, watched})
	return true
}

// add adds a sample of each job, and tells the watchers. The caller holds s.mu.
func (s *Sampler) add(n Snapshot) {
	s.last = n
	for w := range s.watchers {
		select {
		case w.News <- struct{}{}:
		default:
		}
	}
	if n.Err != nil {
		return
	}
	listed := map[string]bool{}
	for _, e := range n.Jobs {
		listed[e.Job] = true
		one := s.jobs[e.Job]
		if one == nil {
			if len(s.jobs) >= maxSampled {
				continue
			}
			one = &series{handle: e.Artifact, step: 1}
			s.jobs[e.Job] = one
		}
		one.add(job.Sample{At: n.At.Sub(time.Unix(0, e.Started)), CPU: time.Duration(e.CPU), Memory: e.MemoryNow})
	}
	for id, one := range s.jobs {
		if _, mine := s.mine[one.handle]; !mine && !listed[id] { // those of this process stay until End
			delete(s.jobs, id)
		}
	}
}

// add adds a sample, or drops it.
func (o *series) add(p job.Sample) {
	if o.skip > 0 {
		o.skip--
		return
	}
	o.points = append(o.points, p)
	if len(o.points) == job.MaxSamples {
		for n := range job.MaxSamples / 2 {
			o.points[n] = o.points[2*n+1]
		}
		o.points = o.points[:job.MaxSamples/2]
		o.step *= 2
	}
	o.skip = o.step - 1
}
