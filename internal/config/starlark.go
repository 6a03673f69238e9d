package config

import (
	"time"

	"corral/job"
)

// Starlark is about starlark_run.
type Starlark struct {
	Enabled bool // starlark.enabled: the tool is served, in repositories where the runtime starlark may be used
	// Repo is starlark.repo: id of the repository that its calls are counted to; "" is the first that a client may use.
	Repo    string
	Memory  int64         // starlark.memory: of one program, its interpreter's included
	MaxWall time.Duration // starlark.max_wall: the longest that can be asked for, in place of runtime.max_duration
}

// Bounds of a program in Starlark. Below the first its interpreter has no room to say that there is none.
const (
	minStarlark     = 48 << 20
	maxStarlark     = 16 << 30
	maxStarlarkWall = time.Minute
)

func defaultStarlark() Starlark {
	return Starlark{Enabled: true, Memory: 256 << 20, MaxWall: maxStarlarkWall}
}

func (s *Starlark) keys() []key {
	return []key{
		flagKey("enabled", &s.Enabled),
		repoKey("repo", &s.Repo),
		sizeKey("memory", &s.Memory, minStarlark, maxStarlark),
		timeKey("max_wall", &s.MaxWall, time.Millisecond, maxStarlarkWall),
	}
}

func (w *writer) starlark(s Starlark) {
	w.line("enabled: %t", s.Enabled)
	if s.Repo != "" {
		w.line("repo: %s", quote(s.Repo))
	}
	w.line("memory: %s\nmax_wall: %s", job.FormatSize(s.Memory), s.MaxWall)
}
