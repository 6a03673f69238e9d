package artifact

import (
	"testing"
	"time"

	"corral/job"
)

// fixedSamples are the samples of every job.
type fixedSamples struct{ begun, ended []string }

func (f *fixedSamples) Begin(handle string) { f.begun = append(f.begun, handle) }

func (f *fixedSamples) End(handle string) []job.Sample {
	f.ended = append(f.ended, handle)
	return []job.Sample{{At: time.Second, CPU: 20 * time.Millisecond, Memory: 4096}, {At: 2 * time.Second, CPU: -1, Memory: -1}}
}

// open opens the streams of an output to which nothing is written.
func openOutput(t *testing.T, o *Output) {
	t.Helper()
	stdout, stderr, err := o.Streams()
	if err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	stderr.Close()
}

// TestRun: the life of a job is stored with its output, and its samples; the samples of a job whose output is discarded are ended, too.
func TestRun(t *testing.T) {
	from := &fixedSamples{}
	s := openStore(t, t.TempDir(), Options{Samples: from})
	o := s.Begin(mine())
	openOutput(t, o)
	r := record()
	r.Request = &job.Request{Tool: "runtime_execute"}
	r.Created = time.Now()
	r.Phases = job.Phases{Decided: r.Created, Launched: r.Created, Ended: r.Created.Add(3 * time.Second)}
	r.Result.ID, r.Result.Usage = "job-a", job.Usage{Wall: 2 * time.Second, CPU: time.Second, PeakMemory: 1 << 20}
	o.Finish(r)
	m, err := s.Find(t.Context(), Reader{Owner: true}, o.Captured().Handle)
	if err != nil {
		t.Fatal(err)
	}
	run := m.Run
	if run == nil || run.Job != "job-a" || run.Tool != "runtime_execute" || run.CPUMs != 1000 || run.Peak != 1<<20 || run.Ended.Sub(run.Begun) != 2*time.Second {
		t.Fatalf("%+v", run)
	}
	if len(run.Samples) != 2 || run.Samples[0] != (Sample{AtMs: 1000, CPUMs: 20, Memory: 4096}) || run.Samples[1].CPUMs != -1 {
		t.Errorf("%+v", run.Samples)
	}
	gone := s.Begin(mine())
	openOutput(t, gone)
	gone.Discard()
	if len(from.begun) != 2 || from.begun[1] != gone.Handle() || from.ended[len(from.ended)-1] != gone.Handle() {
		t.Errorf("begun %q, ended %q", from.begun, from.ended)
	}
}
