package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"corral/front/privilege"
	"corral/front/settings"
	"corral/front/supervisor"
	"corral/front/telemetry"
	"corral/internal/config"
	"corral/internal/log"
	"corral/internal/version"
	"corral/isolate/client/embed"
	"corral/job"
	"corral/mcp/ctxtools"
	"corral/mcp/execute"
	"corral/mcp/server"
	"corral/mcp/tool"
	"corral/rpc"
	"corral/workspace/session"
)

// A backend is everything that a server works with.
type backend struct {
	config     config.Config
	log        *slog.Logger
	supervisor *supervisor.Connection
	engine     *engine
	outputs    *outputs
	knowledge  *knowledge      // nil if indexing is disabled
	ctx        *ctxtools.Suite // nil for corral exec-server
	sessions   *session.Manager
	tracer     *telemetry.Tracer // nil if no spans are exported
	server     *server.Server    // for corral mcp and corral serve, else nil
	exec       *rpc.Server       // for corral exec-server, else nil
	// ballast is never written to, so it occupies no memory. The garbage collector starts when the heap has grown by a
	// share of its size: without ballast, that share is so small that a few calls trigger a collection.
	ballast []byte
}

// instructions tell an agent what the server is for.
const instructions = "corral runs code in a sandbox on one repository of this machine: runtime_execute runs it, " +
	"runtime_query_output reads what it wrote. ctx_execute runs code whose output alone comes back, long output is indexed, " +
	"and ctx_search finds what is in it. There is no network. Whether files written in the repository stay there is the " +
	"operator's choice: replies say so where they are kept for review instead. sandbox_exec, where it is listed, runs " +
	"commands in a system of this session's own; its description says what becomes of the repository there. starlark_run computes, and sees nothing of the machine."

// maxInstructionRepos is the number of repositories that instructions name.
const maxInstructionRepos = 50

// backend connects to a supervisor or starts one, drops root, reads the configuration and assembles the server. It
// leaves nothing on the host but the process of an embedded supervisor.
func (s *serving) backend() (*backend, error) { return s.assemble(s.build) }

// assemble is backend with build for the parts that depend on the protocol.
func (s *serving) assemble(build func(b *backend) error) (*backend, error) {
	// Output of jobs passes through short-lived buffers. Collecting them more often keeps fewer of them in memory.
	debug.SetGCPercent(40)
	b := &backend{log: log.Stderr(s.level, false), ballast: make([]byte, 4<<20)}
	var err error
	if b.supervisor, b.config, err = s.connect(); err != nil {
		return nil, err
	}
	b.sessions = s.sessionManager(b)
	if err = s.checkRepos(b); err == nil {
		b.tracer, err = openTracer(b.config, b.log)
	}
	if err == nil {
		err = build(b)
	}
	if err != nil {
		b.supervisor.Close()
		b.tracer.Close()
		return nil, err
	}
	return b, nil
}

func (s *serving) build(b *backend) error {
	rules, err := settings.NewPolicy(b.config)
	if err != nil {
		return err
	}
	b.outputs = &outputs{log: b.log, options: artifactOptions(b.config), plain: !b.config.Output.Redact, state: b.supervisor.State}
	ids := settings.RepoIDs(b.config)
	about := instructions
	if s.alone {
		about += " Repositories (repoId): " + strings.Join(ids[:min(len(ids), maxInstructionRepos)], ", ") + "."
	}
	r, p := b.config.Runtime, &patches{runner: b.supervisor, outputs: b.outputs}
	b.engine = &engine{Engine: job.Engine{
		Policy: rules, Runner: b.supervisor, Auditor: b.supervisor,
		Queue:    job.NewQueue(r.MaxConcurrentJobs, r.QueueLength, r.QueueWait),
		Sessions: b.sessions, Changes: p.list,
	}}
	b.knowledge = newKnowledge(b)
	b.ctx = b.newCtx()
	tools, err := s.chosen(slices.Concat([]tool.Tool{
		&execute.Execute{Engine: b.engine, Outputs: b.outputs, Secrets: rules.Secrets(), Repos: ids},
		&execute.QueryOutput{Artifacts: p, Repos: ids, Index: b.ctx.Fuzzy()},
	}, s.sandbox(b, rules.Secrets()), b.ctxTools(rules), b.starlark()))
	if err != nil {
		return err
	}
	b.server = server.New(server.Options{
		Version: version.Version, Dotted: s.names == "dotted", Instructions: about, Log: b.log, Tracer: b.tracing(), Ended: b.ended, Tools: tools,
	})
	return nil
}

// ended releases what belongs to a client's session.
func (b *backend) ended(principal, session string) {
	b.ctx.End(principal, session)
	b.sessions.End(principal, session)
}

// close ends what is still running, in an order in which nothing loses what it depends on, and waits for it.
func (b *backend) close() {
	if b.ctx != nil {
		b.ctx.Close() // its jobs may be in a session, and their output is indexed
	}
	b.knowledge.close()
	b.sessions.Close() // needs the supervisor
	b.supervisor.Close()
	if b.server != nil {
		b.engine.running.Wait()
		b.outputs.close()
	}
	b.tracer.Close()
}

// An engine counts the calls in progress, so that the artifact store is closed after the last write to it.
type engine struct {
	job.Engine
	running sync.WaitGroup
}

// Run implements run.Engine.
func (e *engine) Run(ctx context.Context, r *job.Request, out job.Output, h job.Hooks) (*job.Record, error) {
	e.running.Add(1)
	defer e.running.Done()
	return noted(ctx, r, func() (*job.Record, error) { return e.Engine.Run(ctx, r, out, h) })
}

// connect returns a connection to the supervisor, and the configuration. Root is dropped when it returns.
func (s *serving) connect() (*supervisor.Connection, config.Config, error) {
	if os.Geteuid() == 0 && s.supervisor == "" {
		return s.embedded()
	}
	c, files, err := settings.Load(config.FrontSources(os.Getenv, s.config)) // which gives up root
	if err == nil {
		err = s.only(&c)
	}
	if err != nil {
		return nil, c, err
	}
	sup, err := supervisor.Connect(s.supervisor)
	if err != nil {
		return nil, c, err
	}
	sup.Restrict(c, files, log.Stderr(s.level, false))
	return sup, c, nil
}

// embedded starts a supervisor for the directories that root named. If the command line names none, they are those of
// configuration files that only root can have written, which root itself reads; otherwise the files are read after root
// is dropped.
func (s *serving) embedded() (sup *supervisor.Connection, c config.Config, err error) {
	sources := config.FrontSources(os.Getenv, s.config)
	for n := range sources {
		sources[n].Options.Trusted = sources[n].Options.Trusted || s.repos == nil
	}
	files, err := config.OpenFront(sources...)
	if err != nil {
		return nil, c, errors.Join(err, privilege.Drop())
	}
	defer func() { _ = files.Close() }()
	load := func() error {
		if c, err = files.Load(); err != nil {
			return err
		}
		return s.only(&c)
	}
	repos := s.repos
	if repos == nil {
		if err := load(); err != nil {
			return nil, c, errors.Join(err, privilege.Drop())
		}
		repos = c.Repos
	}
	paths := settings.RepoPaths(config.Config{Repos: repos})
	toolchains := ownToolchains(log.Stderr(s.level, false), s.whose, paths)
	if sup, err = supervisor.Start(embed.Options{
		Repos: paths, Toolchains: toolchains, Owners: supervisor.Owners(repos), Account: s.account,
	}); err != nil {
		return nil, c, errors.Join(err, privilege.Drop())
	}
	if s.repos != nil {
		if err := load(); err != nil {
			sup.Close()
			return nil, c, err
		}
	}
	sup.Restrict(c, files.Files(), log.Stderr(s.level, false))
	c.Toolchains = append(c.Toolchains, toolchains...)
	return sup, c, nil
}
