package config

import (
	"time"

	"go.yaml.in/yaml/v3"

	"corral/job"
)

// Ctx is about the tools ctx_execute, ctx_search and their siblings.
type Ctx struct {
	Enabled bool   // ctx.enabled: the tools are served
	Repo    string // ctx.repo: id of the repository that they run in; "" is the first that a client may use
	// BackgroundLife is ctx.background_life: how long a job may run in the background, in place of runtime.max_duration.
	BackgroundLife time.Duration
	MaxBackground  int // ctx.max_background: jobs in the background of one user or token at once
}

func defaultCtx() Ctx { return Ctx{Enabled: true, BackgroundLife: time.Hour, MaxBackground: 4} }

func (c *Ctx) keys() []key {
	return []key{
		flagKey("enabled", &c.Enabled),
		repoKey("repo", &c.Repo),
		timeKey("background_life", &c.BackgroundLife, time.Second, 7*24*time.Hour),
		countKey("max_background", &c.MaxBackground, 1024),
	}
}

// repoKey is of a repository's id, or "".
func repoKey(name string, into *string) key {
	return key{name, func(p *parser, n *yaml.Node) {
		*into = p.text(name, n)
		if *into != "" && !goodID(*into) {
			p.wanted(name, "a repository's id", n)
		}
	}}
}

func (w *writer) ctx(c Ctx) {
	w.line("enabled: %t", c.Enabled)
	if c.Repo != "" {
		w.line("repo: %s", quote(c.Repo))
	}
	w.line("background_life: %s\nmax_background: %d", c.BackgroundLife, c.MaxBackground)
}

// Index is about the full-text index of what jobs wrote.
type Index struct {
	Enabled  bool          // index.enabled: output is indexed, and can be searched
	TTL      time.Duration // index.ttl: how long what was indexed is found
	MaxBytes int64         // index.max_bytes: of text in the base of one user or token and repository; the oldest goes first
}

func defaultIndex() Index { return Index{Enabled: true, TTL: 14 * 24 * time.Hour, MaxBytes: 1 << 30} }

func (x *Index) keys() []key {
	return []key{
		flagKey("enabled", &x.Enabled),
		timeKey("ttl", &x.TTL, time.Second, 366*24*time.Hour),
		sizeKey("max_bytes", &x.MaxBytes, 1<<20, 1<<40),
	}
}

func (w *writer) index(x Index) {
	w.line("enabled: %t\nttl: %s\nmax_bytes: %s", x.Enabled, x.TTL, job.FormatSize(x.MaxBytes))
}
