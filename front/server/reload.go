package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/config"
)

// hangUps returns a channel that gets a value after SIGHUP, which does not end the process any more. A signal that arrives
// while one waits is the same request. The caller calls stop.
func hangUps() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// follow returns a function that reads the configuration again if it was changed since the last call. It is for a server that gets no
// signals: an agent host starts it, so nobody knows whom to send one, and what a user allows is to reach the next call.
func (r *reloader) follow(ctx context.Context) func() {
	before := r.serving.state()
	return func() {
		now := r.serving.state()
		if now == before {
			return
		}
		before = now
		if err := r.reload(ctx); err != nil {
			r.log.Error("configuration not reloaded: the former one applies", "error", err)
		}
	}
}

// state identifies the contents of the configuration's files, as far as their metadata do.
func (s *serving) state() string {
	var all strings.Builder
	for _, source := range s.sources() {
		for _, path := range []string{source.Path, filepath.Join(filepath.Dir(source.Path), "repos.d")} {
			var st unix.Stat_t
			err := unix.Stat(path, &st)
			fmt.Fprintln(&all, path, err, st.Ino, st.Size, st.Mtim, st.Ctim)
		}
	}
	return all.String()
}

// A reloader reads the configuration of a running server again.
type reloader struct {
	serving *serving
	backend *Backend
	tokens  *tokens
	log     *slog.Logger
	running config.Config // what applies to new requests
	former  []config.Repo // every repository that was served since the start, the last entry of each id
	// prepare returns a function that makes the requests that come from then on follow a configuration. removed are the
	// repositories that were served earlier, and are not any more.
	prepare func(c config.Config, removed []config.Repo) (commit func(), err error)
	// report gets whether a reload was applied; nil is not called.
	report func(ok bool)
}

// newReloader returns a reloader for a server that was started with the configuration of b. The caller sets prepare.
func (s *serving) newReloader(b *Backend, t *tokens) *reloader {
	return &reloader{serving: s, backend: b, tokens: t, log: b.Log, running: b.Config, former: slices.Clone(b.Config.Repos)}
}

// run reloads at each signal, until ctx ends.
func (r *reloader) run(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			err := r.reload(ctx)
			if err != nil {
				r.log.Error("configuration not reloaded: the former one applies", "error", err)
			}
			if r.report != nil {
				r.report(err == nil)
			}
		}
	}
}

// reload reads the configuration again. Repositories, principals and the rules for jobs apply to the requests that come from now
// on; jobs that run keep what they were started with. The log names the other keys that differ from those of the start. An error
// changes nothing.
func (r *reloader) reload(ctx context.Context) error {
	fresh, files, err := r.serving.read()
	if err != nil {
		return err
	}
	next := config.Live(r.running, fresh)
	removed := r.removed(next.Repos)
	commit, err := r.prepare(next, removed)
	if err != nil {
		return err
	}
	r.backend.Supervisor.Restrict(next, files, r.log) // before the first request in a repository that was added
	commit()
	r.tokens.set(next.Principals)
	before := r.running
	r.running = next
	r.retire(before.Repos)
	r.former = append(removed, next.Repos...)
	r.checkAdded(ctx, before.Repos)
	keys := config.Changed(next, fresh)
	for _, key := range keys {
		r.log.Warn("a key of the configuration was changed: needs a restart of the server", "key", key)
	}
	r.log.Info("configuration reloaded", "repos", len(next.Repos), "principals", len(next.Principals), "needs_restart", keys)
	return nil
}

// read reads the configuration as the server does at its start, and returns the paths of its files. Other than there, it may lack
// repositories and principals: the last one may be removed while the server runs.
func (s *serving) read() (c config.Config, files []string, err error) {
	f, err := config.OpenFront(s.sources()...)
	if err != nil {
		return c, nil, err
	}
	defer func() { _ = f.Close() }()
	if c, err = f.Load(); err != nil {
		return c, nil, err
	}
	named := *s
	named.tokens = false
	if err = named.only(&c); errors.Is(err, errNoRepos) {
		err = nil
	}
	return c, f.Files(), err
}

// removed returns the repositories that were served since the start whose id is not in list.
func (r *reloader) removed(list []config.Repo) []config.Repo {
	return slices.DeleteFunc(slices.Clone(r.former), func(old config.Repo) bool {
		return slices.ContainsFunc(list, func(n config.Repo) bool { return n.ID == old.ID })
	})
}

// retire ends the sessions in directories of before that are not served any more.
func (r *reloader) retire(before []config.Repo) {
	for _, old := range before {
		if slices.ContainsFunc(r.running.Repos, func(n config.Repo) bool { return n.Path == old.Path }) {
			continue
		}
		n := r.backend.Sessions.Retire(old.Path)
		r.log.Info("repository removed: its sessions end with their last job, their changes are kept", "repo", old.ID, "sessions", n)
	}
}

// checkAdded logs which added repositories the supervisor does not serve. Its own configuration may not have been reloaded yet, so
// they stay listed, and calls in them fail with the supervisor's reason.
func (r *reloader) checkAdded(ctx context.Context, before []config.Repo) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	for _, n := range r.running.Repos {
		if slices.ContainsFunc(before, func(old config.Repo) bool { return n.Path == old.Path }) {
			continue
		}
		begun := time.Now()
		if err := r.backend.Supervisor.CheckRepo(ctx, n.Path, r.running.For(n).Workspace); err != nil {
			r.log.Warn("a repository of the configuration is not served", "repo", n.ID, "error", err, "after", time.Since(begun))
		}
	}
}
