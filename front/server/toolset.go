package server

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"corral/front/store"
	"corral/front/supervisor"
	"corral/internal/calls"
	"corral/internal/config"
	"corral/job"
	"corral/mcp/agent"
	"corral/mcp/ctxtools"
	"corral/mcp/execute"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/policy"
	"corral/workspace/session"
)

// A toolset is the tools of an MCP server with what they share.
type toolset struct {
	engine    *engine
	artifacts *store.Artifacts
	patches   *store.Patches
	knowledge *store.Knowledge // nil if indexing is disabled
	ctx       *ctxtools.Suite
	agent     *agent.Suite
	options   backendOptions
	sessions  *session.Manager
}

func newToolset(o backendOptions, rules *policy.Policy, sessions *session.Manager, sampler *supervisor.Sampler) *toolset {
	c := o.Config
	t := &toolset{artifacts: store.NewArtifacts(c, o.Log, o.Supervisor.State, sampler), options: o, sessions: sessions}
	t.patches = store.New(o.Supervisor, t.artifacts)
	t.engine = &engine{Engine: job.Engine{
		Policy: rules, Runner: o.Supervisor, Auditor: o.Supervisor,
		Queue:    job.NewQueue(c.Runtime.MaxConcurrentJobs, c.Runtime.QueueLength, c.Runtime.QueueWait),
		Sessions: sessions, Changes: t.patches.List,
	}, shares: o.Shares, running: &sync.WaitGroup{}}
	t.knowledge = store.NewKnowledge(c, o.Log, o.Supervisor.State, t.artifacts)
	// Tools that search the knowledge base share this, runtime_query_output among them.
	t.ctx = ctxtools.New(ctxtools.Settings{Engine: t.engine, Outputs: t.artifacts, Plain: !c.Output.Redact, Log: o.Log})
	t.ctx.Ports = t.portsIn(c)
	if t.knowledge != nil { // a nil pointer in an interface is not nil
		t.ctx.Knowledge = t.knowledge
	}
	t.agent = agent.New(agent.Settings{Artifacts: t.artifacts})
	t.govern(&t.agent.Settings, c)
	return t
}

// ports returns the ports at which the jobs of a caller's sessions in a repository listen. A session that has ended meanwhile, or
// whose jobs share no network, has none.
func (t *toolset) ports(ctx context.Context, c tool.Caller, path string) []uint16 {
	var all []uint16
	for _, open := range t.sessions.OpenOf(c.Principal) {
		if open.Client != c.Session || open.Repo != path {
			continue
		}
		if ports, _, err := t.options.Supervisor.Ports(ctx, open.ID); err == nil {
			all = append(all, ports...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// portsIn returns the function by which tools find out where jobs listen, in the repositories of a configuration.
func (t *toolset) portsIn(c config.Config) run.Ports {
	return func(ctx context.Context, who tool.Caller, repo string) []uint16 {
		r, ok := c.Repo(repo)
		if !ok {
			return nil
		}
		return t.ports(ctx, who, r.Path)
	}
}

// govern sets what the tools of package agent take from a configuration.
func (t *toolset) govern(x *agent.Settings, c config.Config) {
	look := &reviewer{c, t.sessions, t.options.Supervisor, t.options.Single}
	x.Review, x.Scripts, x.MaxTimeout = look.review, t.ctx, c.Runtime.MaxDuration
	x.Refresh, x.Newer = look.refresh, look.newer
	x.Ports = t.portsIn(c)
	x.Reset = func(principal, client, repo string) {
		if r, ok := c.Repo(repo); ok {
			t.sessions.Reset(principal, client, r.Path)
		}
	}
}

// renew returns a toolset that follows other rules and repositories, and shares the rest with t: the queue, sessions, background
// jobs and stores.
func (t *toolset) renew(c config.Config, rules *policy.Policy) *toolset {
	n := *t
	e := &engine{Engine: t.engine.Engine, shares: t.engine.shares, running: t.engine.running}
	e.Policy = rules
	n.engine, n.options.Config = e, c
	n.ctx = t.ctx.Renew(func(x *ctxtools.Settings) {
		x.Engine, x.Repos, x.Paths, x.Secrets, x.Runtimes, x.Ports = e, nil, nil, nil, nil, n.portsIn(c)
	})
	n.agent = t.agent.Renew(func(x *agent.Settings) { n.govern(x, c) })
	return &n
}

// list returns all tools that the configuration enables.
func (t *toolset) list(o backendOptions, rules *policy.Policy) []tool.Tool {
	c, ids := o.Config, RepoIDs(o.Config.Repos)
	var sandbox *execute.Sandbox
	tools := []tool.Tool{
		&execute.Execute{
			Engine: t.engine, Outputs: t.artifacts, Secrets: rules.Secrets(), Repos: ids, Timeouts: Timeouts(c),
			Paths: PathsByID(c),
		},
		&execute.QueryOutput{Artifacts: t.patches, Repos: ids, Index: t.ctx.Fuzzy()},
	}
	if s := newSandbox(c, o.Single); s != nil {
		s.Engine, s.Outputs, s.Secrets = t.engine, t.artifacts, rules.Secrets()
		if t.knowledge != nil && c.Ctx.Enabled {
			s.Learn = t.ctx.Learn
		}
		tools = append(tools, s)
		sandbox = s
	}
	ctx := ctxTools(c, t.ctx, rules)
	if sandbox != nil && t.ctx.Repos != nil {
		sandbox.Launch, sandbox.Ports, sandbox.Follow = t.ctx.Launch, t.ctx.Ports, followHint(len(ctx) > 0)
	}
	return slices.Concat(tools, ctx, starlarkTool(c, t.engine))
}

// followHint returns the call by which clients follow a command in the background: of ctx_job, if the configuration enables it.
func followHint(ctx bool) func(id string) string {
	return func(id string) string {
		if ctx {
			return fmt.Sprintf(`ctx_job(id: %q, action: "status" | "output" | "signal")`, id)
		}
		return fmt.Sprintf(`job(id: %q, action: "wait" | "tail" | "signal")`, id)
	}
}

// agentTools returns the tools of package agent, for the repositories in which a shell may run, or no tool if there are none. It is
// called after list.
func (t *toolset) agentTools(c config.Config) []tool.Tool {
	if !slices.ContainsFunc(c.Repos, func(r config.Repo) bool { return slices.Contains(c.For(r).Runtimes, "shell") }) {
		return nil
	}
	if !c.Runtime.Enabled || t.ctx.Repos == nil {
		return nil
	}
	return t.agent.Tools()
}

// end ends background jobs and indexing. Both need sessions and the supervisor.
func (t *toolset) end() {
	t.ctx.Close() // its jobs may be in a session, and their output is indexed
	t.knowledge.Close()
}

// close closes the artifact store after the last write to it. The supervisor is closed, so all jobs end.
func (t *toolset) close() {
	t.engine.running.Wait()
	t.artifacts.Close()
}

// An engine counts the calls in progress, so that the artifact store is closed after the last write to it. All tools run
// requests through it, so it records them for the diagnostic log and the call's span.
type engine struct {
	job.Engine
	shares  func(principal string) bool // see Options; may be nil
	running *sync.WaitGroup
}

// Run implements run.Engine.
func (e *engine) Run(ctx context.Context, r *job.Request, out job.Output, h job.Hooks) (*job.Record, error) {
	e.running.Add(1)
	defer e.running.Done()
	call := calls.Of(ctx)
	call.Repo(r.Repo)
	if e.shares != nil && r.Runtime != job.Starlark && e.shares(r.Principal) {
		r.Share = true
	}
	record, err := e.Engine.Run(ctx, r, out, h)
	call.Ran(record)
	if record == nil {
		call.Failed(err)
	}
	return record, err
}

// ctxTools prepares x for the repositories in which anything may run, and returns ctx_execute, ctx_search and the other ctx
// tools, or no tool if there are none or they are disabled.
func ctxTools(c config.Config, x *ctxtools.Suite, rules *policy.Policy) []tool.Tool {
	if !c.Runtime.Enabled {
		return nil
	}
	var ids []string
	paths := map[string]string{}
	for _, r := range c.Repos {
		if len(c.For(r).Runtimes) > 0 {
			ids = append(ids, r.ID)
			paths[r.ID] = r.Path
		}
	}
	if len(ids) == 0 || c.Ctx.Repo != "" && !slices.Contains(ids, c.Ctx.Repo) {
		return nil
	}
	x.Repos, x.Paths, x.Repo, x.Secrets = ids, paths, c.Ctx.Repo, rules.Secrets()
	x.BackgroundLife, x.MaxBackground = c.Ctx.BackgroundLife, c.Ctx.MaxBackground
	x.MaxBackgroundAll = max(1, c.Runtime.MaxConcurrentJobs/2) // leaves slots for other calls
	x.Runtimes = append([]string{}, rules.Runnable()...)       // not nil, which would mean all
	if !c.Ctx.Enabled {                                        // other tools use x
		return nil
	}
	return x.Tools()
}
