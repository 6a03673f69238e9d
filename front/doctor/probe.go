package doctor

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"corral/isolate/wire"
	"corral/job"
)

// A probe is a program to run as a job.
type probe struct {
	script string   // run by sh
	args   []string // a program instead of a script
	limits job.Limits
	repeat int   // number of runs; 0 means one. The outcome is that of the last run
	layer  int64 // if not 0, it runs in a session with an overlay whose layer has this size in bytes
	// again decides if this one failed; nil: there is none.
	again *probe
}

// An outcome is the result of a probe.
type outcome struct {
	err            error // why it did not run
	result         job.Result
	stdout, stderr string
	took           time.Duration   // until its output was closed by all processes
	times          []time.Duration // durations of all runs, sorted
	env            []string        // its environment
	reached        bool            // it connected to the host's listener
}

// bait is a pair of sockets that listen on the host, for a job that escapes its network namespace.
type bait struct {
	tcp, abstract net.Listener
}

const (
	baitPort = "CORRAL_DOCTOR_PORT" // environment variables with the location of the bait
	baitFile = "CORRAL_DOCTOR_BAIT"
)

// abstractName returns the name of a socket in the abstract namespace (unix(7)), which belongs to a network namespace and
// not to a file system.
func abstractName() string { return "corral-doctor-" + strconv.Itoa(os.Getpid()) }

// open opens the bait's sockets, if possible, and returns a function that closes them.
func (x *examination) open() func() {
	x.bait.tcp, _ = net.Listen("tcp4", "127.0.0.1:0")
	x.bait.abstract, _ = net.Listen("unix", "@"+abstractName())
	return func() {
		for _, l := range []net.Listener{x.bait.tcp, x.bait.abstract} {
			if l != nil {
				l.Close()
			}
		}
	}
}

// env returns the environment of probes. Probes must not see the environment of this process.
func (x *examination) env() []string {
	port := "0"
	if x.bait.tcp != nil {
		port = strconv.Itoa(x.bait.tcp.Addr().(*net.TCPAddr).Port)
	}
	return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", baitPort + "=" + port, baitFile + "=" + x.subject.Place.Bait()}
}

// run returns the outcome of p, which is run once for all rows.
func (x *examination) run(ctx context.Context, p *probe) *outcome {
	if o := x.done[p]; o != nil {
		return o
	}
	o := &outcome{env: x.env()}
	x.done[p] = o
	if x.subject.Supervisor == nil {
		o.err = x.subject.Err
		return o
	}
	for range max(1, p.repeat) {
		x.once(ctx, p, o)
		if o.err != nil {
			return o
		}
		o.times = append(o.times, o.took)
	}
	slices.Sort(o.times)
	o.reached = visited(x.bait.tcp)
	return o
}

func (x *examination) once(ctx context.Context, p *probe, o *outcome) {
	spec := job.Spec{Repo: x.subject.Place.Repo(), Args: p.args, Env: o.env, Limits: p.limits, Claim: job.Claim{Tool: "doctor"}}
	if p.script != "" {
		spec.Args = []string{"sh", "-c", p.script}
	}
	if spec.Limits.Wall == 0 {
		spec.Limits.Wall = 30 * time.Second
	}
	if p.layer != 0 {
		ss, err := x.subject.Supervisor.OpenSession(ctx, job.SessionSpec{Repo: spec.Repo, Workspace: job.Overlay, Disk: p.layer})
		if err != nil {
			o.err = err
			return
		}
		spec.Session, spec.Workspace = ss.ID, job.Overlay
		defer func() { _, _ = x.subject.Supervisor.CloseSession(context.WithoutCancel(ctx), ss.ID, false) }()
	}
	x.start(ctx, spec, o)
}

// start runs a job and collects its outcome.
func (x *examination) start(ctx context.Context, spec job.Spec, o *outcome) {
	out, err := newCollector()
	if err != nil {
		o.err = err
		return
	}
	began := time.Now()
	o.result, o.err = x.subject.Supervisor.Run(ctx, spec, out.stdio())
	o.stdout, o.stderr = out.finish()
	o.took = time.Since(began)
}

// maxOutput is the maximum number of bytes kept of each stream of a probe; the longest output is the table of mounts.
const maxOutput = 256 << 10

// A collector reads a job's two streams.
type collector struct {
	read, write [2]*os.File
	text        [2]chan string
}

func newCollector() (*collector, error) {
	c := &collector{}
	for i := range c.read {
		var err error
		if c.read[i], c.write[i], err = os.Pipe(); err != nil {
			wire.CloseAll(append(c.read[:], c.write[:]...))
			return nil, fmt.Errorf("pipe: %w", err)
		}
	}
	for i := range c.read {
		c.text[i] = make(chan string, 1)
		go func() {
			kept, _ := io.ReadAll(io.LimitReader(c.read[i], maxOutput))
			_, _ = io.Copy(io.Discard, c.read[i])
			c.text[i] <- string(kept)
		}()
	}
	return c, nil
}

// stdio returns the job's ends, which the runner takes over.
func (c *collector) stdio() job.Stdio { return job.Stdio{Stdout: c.write[0], Stderr: c.write[1]} }

// finish returns the output. A process that outlives its job and holds the streams open is not waited for.
func (c *collector) finish() (stdout, stderr string) {
	var text [2]string
	for i := range c.read {
		_ = c.read[i].SetReadDeadline(time.Now().Add(2 * promptly))
	}
	for i := range c.read {
		text[i] = <-c.text[i]
		c.read[i].Close()
	}
	return text[0], text[1]
}

// visited reports whether a connection was made. The kernel completes connections before they are accepted, so a short
// timeout suffices.
func visited(l net.Listener) bool {
	t, ok := l.(*net.TCPListener)
	if !ok {
		return false
	}
	_ = t.SetDeadline(time.Now().Add(20 * time.Millisecond))
	conn, err := t.Accept()
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// section returns what a script wrote after the line "@name", up to the next such line.
func (o *outcome) section(name string) string {
	_, rest, ok := strings.Cut("\n"+o.stdout, "\n@"+name+"\n")
	if !ok {
		return ""
	}
	if i := strings.Index("\n"+rest, "\n@"); i >= 0 {
		rest = rest[:max(0, i-1)]
	}
	return strings.TrimSuffix(rest, "\n")
}

// field returns the value of a line "name: value" in a section.
func (o *outcome) field(section, name string) string {
	for line := range strings.Lines(o.section(section)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
