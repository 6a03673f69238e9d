package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/front/cli"
	"corral/internal/config"
	"corral/internal/directory"
	"corral/isolate/client/embed"
	"corral/job"
	"corral/rpc"
)

// EnvironmentHelp is the help text of corral codex-environment.
const EnvironmentHelp = `corral codex-environment is an execution environment for Codex: its commands, patches and file reads happen in jails.

Usage: corral codex-environment [--listen ADDRESS [--token-file FILE]] [--workspace WORD] [--repo DIR]...
                                [--config FILE] [--supervisor SOCKET] [--log-level LEVEL]

  --listen ADDRESS      stdio (default), or ws://HOST:PORT: serve clients of a WebSocket, which need a token. Port 0 chooses
                        a free port
  --token-file FILE     accept the token in this file, too; who has it is this user
  --workspace WORD      direct, overlay or readonly: what jobs may do to the repository, at most what its settings allow
                        (default: its settings)
  --repo DIR            serve this directory, with its base name as id; repeatable (default: the repositories in
                        the configuration, or if it has none, this user's git repository that Codex works in)
  --config FILE         read this configuration, too; it overrides the operator's and the user's
  --supervisor SOCKET   use the supervisor on this socket (default: that of the service; root starts its own)
  --log-level LEVEL     debug, info (default), warn or error; the diagnostic log goes to standard error

Codex starts it, by $CODEX_HOME/environments.toml:

  default = "corral"
  include_local = false
  [[environments]]
  id = "corral"
  program = "corral"
  args = ["codex-environment"]

The sandbox that Codex asks for only takes away from what the operator allows; without one, and after an escalation, a command
is still in its jail. With overlay, corral changes shows what was changed after Codex has ended. SIGTERM and the end of
standard input end all commands. A connection of a WebSocket that breaks can be resumed for 45 seconds.

Examples:
  corral codex-environment --repo ~/src/app
  corral codex-environment --repo ~/src/app --workspace overlay
  corral codex-environment --repo ~/src/app --listen ws://127.0.0.1:4600 --token-file ~/.config/corral/codex-token
`

// CodexEnvironment is the cli.Command of corral codex-environment.
func CodexEnvironment(args []string) error {
	f := flag.NewFlagSet("codex-environment", flag.ContinueOnError)
	address := f.String("listen", "stdio", "")
	token := f.String("token-file", "", "")
	e := &rpc.Environment{Shell: shell()}
	f.Func("workspace", "", func(word string) error {
		w, err := job.ParseWorkspace(word)
		e.Workspace = &w
		return err
	})
	started, _ := unix.Getwd() // without links; "" if it was removed
	s, err := parseServing(f, false, args, EnvironmentHelp)
	if err != nil {
		return err
	}
	listen, err := config.ParseListen(*address)
	web := listen.Kind == config.ListenWeb
	switch {
	case err != nil, !web && listen.Kind != config.ListenStdio:
		return fmt.Errorf("--listen %q: must be ws://HOST:PORT or stdio", *address)
	case *token != "" && !web:
		return errors.New("--token-file is for --listen ws://HOST:PORT")
	}
	s.tokens, s.alone, s.finds = web && *token == "", !web, !embed.Root() || s.supervisor != ""
	cli.IgnorePipes()
	ctx, stop := cli.UntilTerminated()
	defer stop()
	b, err := s.backend()
	if errors.Is(err, errNoTokens) {
		err = fmt.Errorf("%w, and --token-file FILE takes one from a file", err)
	}
	if err != nil {
		return err
	}
	defer b.Close()
	l := &execListeners{backend: b, options: b.Config.ExecServer, tokens: s.tokensOf(b)}
	l.options.Listen = []config.Listen{listen}
	defer l.close()
	if *token != "" {
		if _, err := readToken(*token); err != nil {
			return err
		}
		l.also = tokenFile(*token)
	}
	return serveEnvironment(ctx, s, l, e, started)
}

// serveEnvironment serves clients until ctx ends.
func serveEnvironment(ctx context.Context, s *serving, l *execListeners, e *rpc.Environment, started string) error {
	server, err := newExecServer(l.backend, started)
	if err != nil {
		return err
	}
	server.Environment, server.Current, server.Shared = e, l.currentCaller, l.shared()
	if len(l.backend.Config.Repos) == 0 {
		e.Find = (&finder{serving: s, backend: l.backend, server: server}).find
	}
	retain := time.Duration(0)
	if server.Shared {
		retain = rpc.Retention
	}
	if err := l.open(); err != nil {
		return err
	}
	defer e.EndSessions()
	return l.serve(ctx, server.ServeEnvironment(retain))
}

// maxWorkedIn is the maximum number of repositories that a server serves because clients work in them.
const maxWorkedIn = 32

// A finder serves the git repositories of this user that clients work in, for a server that has no repositories by its configuration.
type finder struct {
	serving *serving
	backend *Backend
	server  *rpc.Server

	mu    sync.Mutex
	repos []config.Repo // guarded by mu
}

// find serves the repository that path lies in, and reports whether it does.
func (f *finder) find(path string) bool {
	top := directory.Repository(path)
	if top == "" {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.repos, func(r config.Repo) bool { return r.Path == top }) {
		return true
	}
	err := f.add(top)
	if err != nil {
		f.backend.Log.Warn("the repository that a client works in is not served", "repo", top, "error", err)
	}
	return err == nil
}

// add serves the repository at top. The caller holds f.mu.
func (f *finder) add(top string) error {
	repo, err := Repository(Self(), top)
	if err != nil {
		return err
	}
	if *repo.Owner != Self().UID {
		return errors.New("it belongs to another user\nhint: corral repo add DIR")
	}
	if len(f.repos) >= maxWorkedIn {
		return fmt.Errorf("%d repositories are served, which is the maximum\nhint: corral repo add DIR", maxWorkedIn)
	}
	id := repo.ID
	for n := 2; slices.ContainsFunc(f.repos, func(r config.Repo) bool { return r.ID == repo.ID }); n++ {
		repo.ID = fmt.Sprintf("%s-%d", id, n)
	}
	_, files, err := f.serving.read()
	if err != nil {
		return err
	}
	c := f.backend.Config
	c.Repos = append(slices.Clone(f.repos), repo)
	a, err := execAccess(f.backend, c)
	if err != nil {
		return err
	}
	f.backend.Supervisor.Restrict(c, files, f.backend.Log) // before the first request in it
	f.server.Replace(a)
	f.repos = c.Repos
	f.backend.Log.Info("serving a repository that a client works in", "repo", repo.ID, "path", repo.Path)
	return nil
}

// shell returns the shell of jobs, which see the system directories of the host.
func shell() string {
	const best = "/bin/bash"
	if _, err := os.Stat(best); err != nil {
		return "/bin/sh"
	}
	return best
}

// tokenFile identifies callers by the token in a file, which is read again for each: a token that was replaced is not accepted any more.
func tokenFile(name string) func(token string) (rpc.Caller, bool) {
	return func(token string) (rpc.Caller, bool) {
		want, err := readToken(name)
		if err != nil {
			return rpc.Caller{}, false
		}
		has, should := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(want))
		return rpc.Caller{Principal: UserPrincipal()}, subtle.ConstantTimeCompare(has[:], should[:]) == 1
	}
}

// readToken reads a token of at least 16 characters.
func readToken(name string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	const most, least = 4 << 10, 16
	b, err := io.ReadAll(io.LimitReader(f, most))
	token := strings.TrimSpace(string(b))
	if err == nil && len(token) < least {
		err = fmt.Errorf("--token-file: %s has %d characters, the minimum is %d", name, len(token), least)
	}
	return token, err
}
