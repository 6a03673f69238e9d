package doctor

import (
	"context"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"corral/internal/pipe"
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
	stdio, finish, err := collect()
	if err != nil {
		o.err = err
		return
	}
	began := time.Now()
	o.result, o.err = x.subject.Supervisor.Run(ctx, spec, stdio)
	o.stdout, o.stderr = finish()
	o.took = time.Since(began)
}

// maxOutput is the maximum number of bytes kept of each stream of a probe; the longest output is the table of mounts.
const maxOutput = 256 << 10

// collect starts to read what a job writes to the returned streams, which the runner takes over. finish returns it: a process that outlives
// its job and holds the streams open is not waited for.
func collect() (stdio job.Stdio, finish func() (stdout, stderr string), err error) {
	var reads [2]*os.File
	for i, to := range []**os.File{&stdio.Stdout, &stdio.Stderr} {
		if reads[i], *to, err = pipe.New(pipe.Reads); err != nil {
			wire.CloseAll([]*os.File{reads[0], stdio.Stdout})
			return stdio, nil, err
		}
	}
	stdout, stderr := pipe.Head(reads[0], maxOutput), pipe.Head(reads[1], maxOutput)
	return stdio, func() (string, string) {
		for _, f := range reads {
			_ = f.SetReadDeadline(time.Now().Add(2 * promptly)) // fails only if it was read to its end
		}
		return <-stdout, <-stderr
	}, nil
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
