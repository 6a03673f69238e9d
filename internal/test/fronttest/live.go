package fronttest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/client"
	"corral/job"
)

// A Live is a running job.
type Live struct {
	*client.Run
	T        testing.TB
	In       *os.File // its standard input
	Out, Err Output   // what it has written to its standard output and error
}

// Start starts a job whose standard input stays open until In is closed.
func (f *Front) Start(spec job.Spec) (*Live, error) {
	f.T.Helper()
	l := &Live{T: f.T}
	var ends [3][2]*os.File
	for i := range ends {
		r, w := f.Pipe()
		ends[i] = [2]*os.File{r, w}
	}
	l.In = ends[0][1]
	l.Out.Read(ends[1][0])
	l.Err.Read(ends[2][0])
	var err error
	l.Run, err = f.C.Start(spec, job.Stdio{Stdin: ends[0][0], Stdout: ends[1][1], Stderr: ends[2][1]}, nil)
	if err != nil {
		l.In.Close()
	}
	return l, err
}

// Pipe returns a pipe that belongs to the owner of the repository, as if they had made it.
func (f *Front) Pipe() (r, w *os.File) {
	f.T.Helper()
	var st unix.Stat_t
	r, w, err := os.Pipe()
	if err := errors.Join(err, unix.Stat(f.Repo, &st), w.Chown(int(st.Uid), int(st.Gid))); err != nil {
		f.T.Fatal(err)
	}
	return r, w
}

// Until waits until the job has written text.
func (l *Live) Until(text string) {
	l.T.Helper()
	limit := time.After(time.Minute)
	for !strings.Contains(l.Out.String(), text) {
		select {
		case <-l.Out.Seen:
		case <-l.Out.Done:
			if !strings.Contains(l.Out.String(), text) {
				l.T.Fatalf("the job ended without %q: %q, %q", text, l.Out.String(), l.Err.String())
			}
		case <-limit:
			l.T.Fatalf("the job did not write %q but %q, %q", text, l.Out.String(), l.Err.String())
		}
	}
}

// A Did is the result of a job and its output.
type Did struct {
	job.Result
	Out, Err string
}

// End closes the job's input and waits for its end.
func (l *Live) End() (Did, error) {
	l.In.Close()
	result, err := l.Wait()
	<-l.Out.Done
	<-l.Err.Done
	return Did{result, l.Out.String(), l.Err.String()}, err
}

// Try runs a job with empty input.
func (f *Front) Try(spec job.Spec) (Did, error) {
	f.T.Helper()
	l, err := f.Start(spec)
	if err != nil {
		return Did{}, err
	}
	return l.End()
}

// Run runs a job that must start.
func (f *Front) Run(spec job.Spec) Did {
	f.T.Helper()
	d, err := f.Try(spec)
	if err != nil {
		f.T.Fatalf("%.80q: %v", spec.Args, err)
	}
	return d
}

// Sh runs a shell script, which must succeed, and returns its trimmed output.
func (f *Front) Sh(script string) string {
	f.T.Helper()
	d := f.Run(f.Spec("sh", "-c", script))
	if d.Status != job.Success {
		f.T.Errorf("%s: %+v %s", script, d.Result, d.Err)
	}
	return strings.TrimSpace(d.Out)
}

// Feed runs a job, which must start, with this input.
func (f *Front) Feed(spec job.Spec, input []byte) Did {
	f.T.Helper()
	l, err := f.Start(spec)
	if err != nil {
		f.T.Fatal(err)
	}
	_, _ = io.Copy(l.In, bytes.NewReader(input)) // the job's output is read concurrently
	d, err := l.End()
	if err != nil {
		f.T.Fatal(err)
	}
	return d
}

// Launch starts a job and waits until it prints "ready".
func (f *Front) Launch(spec job.Spec) *Live {
	f.T.Helper()
	l, err := f.Start(spec)
	if err != nil {
		f.T.Fatal(err)
	}
	l.Until("ready")
	return l
}

// Waiting starts a job that prints each signal it gets and ends with "bye".
func (f *Front) Waiting() *Live {
	f.T.Helper()
	l, err := f.Start(f.Spec("perl", "-e", `$| = 1;
		my $parent = $$; my $child = fork; my $who = $child ? "first" : "second";
		for my $s (qw(USR1 USR2 TERM)) { $SIG{$s} = sub { syswrite(STDOUT, "$who $s\n"); $s eq "TERM" && $child && exit 5 } }
		syswrite(STDOUT, "$who up\n"); select(undef, undef, undef, 0.05) while 1`)) // a signal just before a longer sleep would be handled only at its end
	if err != nil {
		f.T.Fatal(err)
	}
	l.Until("first up")
	l.Until("second up")
	return l
}

// An Output collects what a job writes to one of its streams.
type Output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	Seen chan struct{} // signals new text, or the end
	Done chan struct{} // is closed at the end
}

// Read collects what is read from r, in a goroutine of its own, and closes r at the end.
func (o *Output) Read(r *os.File) {
	o.Seen, o.Done = make(chan struct{}, 1), make(chan struct{})
	go func() {
		_, _ = io.Copy(writer(func([]byte) {}), io.TeeReader(r, o))
		r.Close()
		close(o.Done)
		o.notify()
	}()
}

// Write adds text.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.notify()
	return o.b.Write(b)
}

func (o *Output) notify() {
	select {
	case o.Seen <- struct{}{}:
	default:
	}
}

// String returns the text so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(bytes.TrimSpace(b))
	return len(b), nil
}
