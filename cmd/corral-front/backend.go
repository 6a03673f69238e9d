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

	"corral/front/telemetry"
	"corral/internal/config"
	"corral/internal/log"
	"corral/internal/version"
	"corral/isolate/client/embed"
	"corral/job"
	"corral/mcp"
	"corral/rpc"
	"corral/workspace/session"
)

// A backend is all that a server serves with.
type backend struct {
	config     config.Config
	log        *slog.Logger
	supervisor *supervisor
	engine     *engine
	outputs    *outputs
	knowledge  *knowledge // nil indexes nothing
	ctx        *mcp.Ctx   // nil of corral exec-server
	sessions   *session.Manager
	tracer     *telemetry.Tracer // nil exports no spans
	server     *mcp.Server       // of corral mcp and corral serve
	exec       *rpc.Server       // of corral exec-server
	// unused is memory that is never written to, so that there is none of it. What is collected is a share of all: without it
	// so little that a few calls of a tool were one collection.
	unused []byte
}

// instructions tell an agent what the server is for.
const instructions = "corral runs code in a sandbox on one repository of this machine: runtime_execute runs it, " +
	"runtime_query_output reads what it wrote. ctx_execute runs code whose output alone comes back, long output is indexed, " +
	"and ctx_search finds what is in it. There is no network. Whether files written in the repository stay there is the " +
	"operator's choice: replies say so where they are kept for review instead. sandbox_exec, where it is listed, runs " +
	"commands in a system of this session's own; its description says what becomes of the repository there. starlark_run computes, and sees nothing of the machine."

// maxTold is how many repositories instructions name.
const maxTold = 50

// backend finds or starts a supervisor, gives up root, reads the configuration, and puts the server together. Nothing is
// made on the host by it but the process of an embedded supervisor.
func (s *serving) backend() (*backend, error) { return s.assemble(s.build) }

// assemble is backend with the rest put together by build.
func (s *serving) assemble(build func(b *backend) error) (*backend, error) {
	// What jobs write passes through a few buffers; the more often they are collected, the fewer are there at once.
	debug.SetGCPercent(40)
	b := &backend{log: log.Stderr(s.level, false), unused: make([]byte, 4<<20)}
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
	rules, err := newPolicy(b.config)
	if err != nil {
		return err
	}
	b.outputs = &outputs{log: b.log, options: artifactOptions(b.config), plain: !b.config.Output.Redact, state: b.supervisor.state}
	ids := repoIDs(b.config)
	about := instructions
	if s.alone {
		about += " Repositories (repoId): " + strings.Join(ids[:min(len(ids), maxTold)], ", ") + "."
	}
	r, p := b.config.Runtime, &patches{runner: b.supervisor, outputs: b.outputs}
	b.engine = &engine{Engine: job.Engine{
		Policy: rules, Runner: b.supervisor, Auditor: b.supervisor,
		Queue:    job.NewQueue(r.MaxConcurrentJobs, r.QueueLength, r.QueueWait),
		Sessions: b.sessions, Changes: p.list,
	}}
	b.knowledge = newKnowledge(b)
	b.ctx = b.newCtx()
	tools, err := s.chosen(slices.Concat([]mcp.Tool{
		&mcp.Execute{Engine: b.engine, Outputs: b.outputs, Secrets: rules.Secrets(), Repos: ids},
		&mcp.QueryOutput{Artifacts: p, Repos: ids, Index: b.ctx.Fuzzy()},
	}, s.sandbox(b, rules.Secrets()), b.ctxTools(rules), b.starlark()))
	if err != nil {
		return err
	}
	b.server = mcp.New(mcp.Options{
		Version: version.Version, Dotted: s.names == "dotted", Instructions: about, Log: b.log, Tracer: b.tracing(), Ended: b.ended, Tools: tools,
	})
	return nil
}

// ended ends what a client's session has.
func (b *backend) ended(principal, session string) {
	b.ctx.End(principal, session)
	b.sessions.End(principal, session)
}

// close ends what runs still, which is little after the server has ended, and waits for it.
func (b *backend) close() {
	if b.ctx != nil {
		b.ctx.Close() // what it runs may be in a session, and it indexes what ran
	}
	b.knowledge.close()
	b.sessions.Close() // in order, while there is a supervisor to ask
	b.supervisor.Close()
	if b.server != nil {
		b.engine.running.Wait()
		b.outputs.close()
	}
	b.tracer.Close()
}

// An engine knows whether somebody uses it: the store is closed after all that is written to it.
type engine struct {
	job.Engine
	running sync.WaitGroup
}

// Run implements mcp.Engine.
func (e *engine) Run(ctx context.Context, r *job.Request, out job.Output, watch job.Watch) (*job.Record, error) {
	e.running.Add(1)
	defer e.running.Done()
	return noted(ctx, r, func() (*job.Record, error) { return e.Engine.Run(ctx, r, out, watch) })
}

// connect returns a connection to the supervisor and the configuration. This process is root no more then.
func (s *serving) connect() (*supervisor, config.Config, error) {
	if os.Geteuid() == 0 && s.supervisor == "" {
		return s.embedded()
	}
	c, files, err := loadConfig(config.FrontSources(os.Getenv, s.config)) // which gives up root
	if err == nil {
		err = s.only(&c)
	}
	if err != nil {
		return nil, c, err
	}
	sup, err := dialed(s.supervisor)
	if err != nil {
		return nil, c, err
	}
	sup.govern(c, files, log.Stderr(s.level, false))
	return sup, c, nil
}

// embedded starts a supervisor for the directories that root named. When the command line names none, it is those of
// files that only root could have written, and root reads them itself; else they are read when root is given up.
func (s *serving) embedded() (sup *supervisor, c config.Config, err error) {
	sources := config.FrontSources(os.Getenv, s.config)
	for n := range sources {
		sources[n].Options.Trusted = sources[n].Options.Trusted || s.repos == nil
	}
	files, err := config.OpenFront(sources...)
	if err != nil {
		return nil, c, errors.Join(err, dropRoot())
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
			return nil, c, errors.Join(err, dropRoot())
		}
		repos = c.Repos
	}
	paths := repoPaths(config.Config{Repos: repos})
	toolchains := ownToolchains(log.Stderr(s.level, false), s.whose, paths)
	if sup, err = startSupervisor(embed.Options{
		Repos: paths, Toolchains: toolchains, Owners: repoOwners(repos), Account: s.account,
	}); err != nil {
		return nil, c, errors.Join(err, dropRoot())
	}
	if s.repos != nil {
		if err := load(); err != nil {
			sup.Close()
			return nil, c, err
		}
	}
	sup.govern(c, files.Files(), log.Stderr(s.level, false))
	c.Toolchains = append(c.Toolchains, toolchains...)
	return sup, c, nil
}
