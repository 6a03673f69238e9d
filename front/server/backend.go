package server

import (
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"corral/front/store"
	"corral/front/supervisor"
	"corral/front/telemetry"
	"corral/internal/calls"
	"corral/internal/config"
	"corral/internal/redact"
	"corral/isolate/wire"
	"corral/job"
	"corral/mcp/tool"
	"corral/workspace/session"
)

// backendOptions describe a server. All fields but Single and Shares are required.
type backendOptions struct {
	Config     config.Config
	Log        *slog.Logger
	Supervisor *supervisor.Connection // closed by Backend.Close
	// Single says that the server has one client, which may use every repository, and whose connection is its session. The
	// sessions of several clients expire when they are idle.
	Single bool
	// Shares reports whether all jobs of a principal share the home directory and /tmp of their client's session, see
	// job.Request.Share. Otherwise only those do that their tool asks for; nil: of no principal.
	Shares func(principal string) bool
}

// A Backend is everything that a server works with.
type Backend struct {
	backendOptions
	Sessions *session.Manager    // the sessions of the server's clients
	Samples  *supervisor.Sampler // of running jobs

	tracer *telemetry.Tracer            // nil if no spans are exported
	tools  *toolset                     // nil before Tools; see Reload
	bounds Principals                   // of all engines, see Bound
	hide   atomic.Pointer[redact.Rules] // what is hidden in the commands of jobs; nil: nothing but what the client hides
	// ballast is never written to, so it occupies no memory. The garbage collector starts when the heap has grown by a
	// share of its size: without ballast, that share is so small that a few calls trigger a collection.
	ballast []byte
}

// newBackend returns a back-end. It leaves nothing on the host. If it fails, the supervisor stays open.
func newBackend(o backendOptions) (*Backend, error) {
	// Output of jobs passes through short-lived buffers. Collecting them more often keeps fewer of them in memory.
	debug.SetGCPercent(40)
	b := &Backend{backendOptions: o, ballast: make([]byte, 4<<20)}
	b.Samples = supervisor.NewSampler(b.listJobs)
	var err error
	if b.tracer, err = openTracer(o.Config, o.Log); err != nil {
		return nil, err
	}
	c := o.Config
	so := session.Options{
		Sessions: o.Supervisor, PerPrincipal: c.Sandbox.MaxSessions, Log: o.Log,
		Root: job.SessionSpec{Image: c.Sandbox.Image, Disk: c.Sandbox.Disk},
	}
	if !o.Single {
		so.RootIdle, so.OverlayIdle = c.Sandbox.SessionTimeout, c.HTTP.SessionIdle
	}
	b.Sessions = session.New(so)
	b.Bound(c.Principals)
	return b, nil
}

// listJobs lists the jobs of the server's user. In their commands, values of the variables that jobs may have are hidden, as in output.
func (b *Backend) listJobs(commands bool) ([]wire.Entry, error) {
	list, err := b.Supervisor.List(commands)
	hide := b.hide.Load()
	for n := range list {
		if e := &list[n]; e.Command != "" && hide != nil {
			e.Command = string(hide.Stream().Append(nil, []byte(e.Command), true))
		}
	}
	return list, err
}

// hideSecrets hides the values of the variables that jobs may have by the rules of c, unless c says that nothing is.
func (b *Backend) hideSecrets(c config.Config, values []string) {
	if !c.Output.Redact {
		b.hide.Store(nil)
		return
	}
	r := redact.NewRules(values)
	b.hide.Store(&r)
}

// Bound replaces the bounds of principals, of all engines, by those of a list. Call it before the first request of a principal that was
// added.
func (b *Backend) Bound(list config.Principals) { b.bounds.Set(list) }

// Engine returns an engine that runs commands by the rules of c, which may differ from those of the back-end. It has no queue, only the
// quotas of principals: a client talks to a command that it starts, and does not wait for other commands to end. The supervisor bounds the
// number of jobs.
func (b *Backend) Engine(c config.Config) (*job.Engine, error) {
	rules, err := NewPolicy(c, &b.bounds)
	if err != nil {
		return nil, err
	}
	return &job.Engine{Policy: rules, Runner: b.Supervisor, Auditor: b.Supervisor, Quotas: &b.bounds.Quotas, Sessions: b.Sessions}, nil
}

// Tools returns the tools that the configuration enables, and apart from them those for agents, which are listed on request only.
// Call it once.
func (b *Backend) Tools() (tools, agents []tool.Tool, err error) {
	rules, err := NewPolicy(b.Config, &b.bounds)
	if err != nil {
		return nil, nil, err
	}
	b.tools = newToolset(b.backendOptions, rules, b.Sessions, b.Samples)
	b.tools.engine.Quotas = &b.bounds.Quotas
	b.hideSecrets(b.Config, rules.Secrets())
	tools = b.tools.list(b.backendOptions, rules)
	return tools, b.tools.agentTools(b.Config), nil
}

// Reload returns tools as Tools does, which follow the repositories and rules of c. They share everything else with the tools of
// before: the queue, sessions, background jobs and stores. Call it after Tools. An error changes nothing.
func (b *Backend) Reload(c config.Config) (tools, agents []tool.Tool, err error) {
	rules, err := NewPolicy(c, &b.bounds)
	if err != nil {
		return nil, nil, err
	}
	if err := rules.Check(); err != nil {
		return nil, nil, err
	}
	b.hideSecrets(c, rules.Secrets())
	t := b.tools.renew(c, rules) // b.tools stays: what Close and End need is common to all
	tools = t.list(t.options, rules)
	return tools, t.agentTools(c), nil
}

// Tracer returns the tracer of calls, a nil interface if there is none.
func (b *Backend) Tracer() calls.Tracer {
	if b.tracer == nil { // a nil pointer in an interface is not nil
		return nil
	}
	return b.tracer
}

// Outputs returns the stored output of the user's jobs. Call it after Tools.
func (b *Backend) Outputs() *store.Artifacts { return b.tools.artifacts }

// Stored returns the size on disk of the user's artifacts in bytes, and false if it is not known.
func (b *Backend) Stored() (bytes int64, ok bool) {
	if b.tools == nil {
		return 0, false
	}
	return b.tools.artifacts.Used()
}

// Load returns the use of the queue of the tools' jobs.
func (b *Backend) Load() job.Load {
	if b.tools == nil {
		return job.Load{}
	}
	return b.tools.engine.Queue.Load()
}

// End releases what belongs to a client's session.
func (b *Backend) End(principal, session string) {
	if b.tools != nil {
		b.tools.ctx.End(principal, session)
		b.tools.agent.End(principal, session)
	}
	b.Sessions.End(principal, session)
}

// Close ends what is still running, in an order in which nothing loses what it depends on, and waits for it.
func (b *Backend) Close() {
	if b.tools != nil {
		b.tools.end()
	}
	b.Sessions.Close() // needs the supervisor
	b.Supervisor.Close()
	if b.tools != nil {
		b.tools.close()
	}
	b.tracer.Close()
}
