package server

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/front/cli"
	"corral/internal/config"
	"corral/internal/gate"
	"corral/mcp/agent"
	"corral/rpc"
	"corral/rpc/transport"
)

// ExecHelp is the help text of corral exec-server.
const ExecHelp = `corral exec-server serves clients of command/exec and process/*, which are JSON-RPC.

Usage: corral exec-server [--listen ADDRESS]... [--repo DIR]... [--config FILE] [--supervisor SOCKET] [--log-level LEVEL]

  --listen ADDRESS      listen there, in place of the addresses in the configuration; repeatable:
                          stdio              standard input and output, one message per line (default)
                          unix:///PATH       a unix socket, one message per line; for this user, root, and the peers
                                             in the configuration
                          ws://HOST:PORT     a WebSocket, one message per text frame; clients need a token. Port 0
                                             chooses a free port
  --repo DIR            serve this directory, with its base name as id; repeatable (default: the repositories in
                        the configuration)
  --config FILE         read this configuration, too; it overrides the operator's and the user's
  --supervisor SOCKET   use the supervisor on this socket (default: that of the service; root starts its own)
  --log-level LEVEL     debug, info (default), warn or error; the diagnostic log goes to standard error

Commands run in the directory in which the server was started, if it lies in a repository that is served, else in the
first repository. The server writes its addresses to standard error. It ends on SIGTERM, and when its standard input ends
if it serves that; all processes that it started end with it. SIGHUP reads the configuration again: tokens, repositories
and the rules for jobs apply to the processes that are started from then on; the log names other keys that were changed and
need a restart. A faulty file changes nothing.

Examples:
  corral exec-server --repo ~/src/app
  corral exec-server --repo ~/src/app --listen unix://$XDG_RUNTIME_DIR/corral-exec.sock
  corral exec-server --repo ~/src/app --listen ws://127.0.0.1:0
`

// Exec is the cli.Command of corral exec-server.
func Exec(args []string) error {
	f := flag.NewFlagSet("exec-server", flag.ContinueOnError)
	var asked []config.Listen
	f.Func("listen", "", func(address string) error {
		l, err := config.ParseListen(address)
		asked = append(asked, l)
		return err
	})
	started, _ := unix.Getwd() // without links; "" if it was removed
	s, err := parseServing(f, false, args, ExecHelp)
	if err != nil {
		return err
	}
	s.tokens = slices.ContainsFunc(asked, func(l config.Listen) bool { return l.Kind == config.ListenWeb })
	cli.IgnorePipes()
	ctx, stop := cli.UntilTerminated()
	defer stop()
	hangups, quiet := hangUps()
	defer quiet()
	b, err := s.backend()
	if err != nil {
		return err
	}
	defer b.Close()
	server, err := newExecServer(b, started)
	if err != nil {
		return err
	}
	e := &execListeners{backend: b, options: b.Config.ExecServer, tokens: s.tokensOf(b)}
	if asked != nil {
		e.options.Listen = asked
	}
	r := s.newReloader(b, e.tokens)
	r.prepare = func(c config.Config, removed []config.Repo) (commit func(), err error) {
		a, err := execAccess(b, c)
		a.Removed = execRepos(removed)
		return func() { server.Replace(a) }, err
	}
	go r.run(ctx, hangups)
	server.Current = e.currentCaller
	server.Shared = e.shared()
	defer e.close()
	if err := e.open(); err != nil {
		return err
	}
	return e.serve(ctx, server.Serve)
}

// execListeners are the addresses at which clients reach the server.
type execListeners struct {
	backend *Backend
	options config.ExecServer
	tokens  *tokens
	also    func(token string) (rpc.Caller, bool) // identifies callers with another token; nil: nobody
	serves  []func(ctx context.Context, serve transport.Handler) error
	closes  []func() error
}

// open listens at all addresses. An error at one of them is an error.
func (e *execListeners) open() error {
	for _, l := range e.options.Listen {
		var err error
		switch l.Kind {
		case config.ListenStdio:
			e.serves = append(e.serves, serveStdio)
		case config.ListenUnix:
			err = e.openUnix(l.Address)
		case config.ListenWeb:
			err = e.openWeb(l.Address)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// shared reports whether the clients can be of several principals.
func (e *execListeners) shared() bool {
	return len(e.options.Listen) > 1 || slices.ContainsFunc(e.options.Listen, func(l config.Listen) bool {
		return l.Kind == config.ListenWeb || l.Kind == config.ListenUnix && e.options.Peers != nil
	})
}

func (e *execListeners) close() {
	for _, c := range e.closes {
		_ = c()
	}
}

// errStdioEnded ends a server when the client on standard input has disconnected.
var errStdioEnded = errors.New("the client on standard input has disconnected")

func serveStdio(ctx context.Context, serve transport.Handler) error {
	conn, err := transport.Stdio(os.Stdin, os.Stdout)
	if err != nil {
		return err
	}
	err = serve(ctx, conn, rpc.Caller{Principal: UserPrincipal()})
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, os.ErrClosed) {
		return errStdioEnded
	}
	return err
}

func (e *execListeners) openUnix(path string) error {
	mode := os.FileMode(0o600)
	if e.options.Peers != nil {
		mode = 0o666 // SO_PEERCRED says who connects
	}
	socket, err := transport.ListenUnix(path, mode)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	e.closes = append(e.closes, socket.Close)
	e.backend.Log.Info("serving", "url", "unix://"+socket.Path())
	e.serves = append(e.serves, func(ctx context.Context, serve transport.Handler) error {
		return transport.ServeUnix(ctx, socket, transport.UnixOptions{
			Peers: e.options.Peers, Principal: PrincipalOf, Log: e.backend.Log,
		}, serve)
	})
	return nil
}

func (e *execListeners) openWeb(address string) error {
	if len(e.backend.Config.Principals) == 0 && e.also == nil {
		return errNoTokens
	}
	host, _, _ := net.SplitHostPort(address)
	if g := (gate.Gate{Hosts: e.options.AllowedHosts}); !g.Named(address) {
		return fmt.Errorf("--listen: %s can be reached from other machines\nhint: add %s to exec_server.allowed_hosts of the configuration; anybody who listens there on the network can read tokens",
			address, host)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	e.closes = append(e.closes, l.Close)
	e.backend.Log.Info("serving", "url", "ws://"+l.Addr().String())
	e.serves = append(e.serves, func(ctx context.Context, serve transport.Handler) error {
		return transport.ServeWeb(ctx, l, transport.WebOptions{
			Authenticate: e.authenticate(), Log: e.backend.Log, Ready: e.backend.Supervisor.Ready,
			Hosts: append(ownHosts(address, l.Addr()), e.options.AllowedHosts...),
		}, serve)
	})
	return nil
}

// authenticate identifies callers by their tokens.
func (e *execListeners) authenticate() func(token string) (rpc.Caller, bool) {
	if len(e.backend.Config.Principals) == 0 {
		return e.also
	}
	known := execAuthenticate(e.tokens)
	return func(token string) (rpc.Caller, bool) {
		who, ok := known(token)
		if !ok && e.also != nil {
			return e.also(token)
		}
		return who, ok
	}
}

// execAuthenticate identifies callers by their tokens. A token that is restricted to some tools must include
// command_exec.
func execAuthenticate(t *tokens) func(token string) (rpc.Caller, bool) {
	known := authenticate(t)
	return func(token string) (rpc.Caller, bool) {
		c, ok := known(token)
		ok = ok && (c.Tools == nil || slices.Contains(c.Tools, "command_exec"))
		return rpc.Caller{Principal: c.Principal, Repos: c.Repos}, ok
	}
}

// currentCaller returns what the principal of a connection may use now, and false if its token has been revoked. Callers without a
// token keep what they have.
func (e *execListeners) currentCaller(who rpc.Caller) (rpc.Caller, bool) {
	name, ok := strings.CutPrefix(who.Principal, tokenPrefix)
	if !ok {
		return who, true
	}
	now := config.At(time.Now())
	for _, p := range e.tokens.current() {
		if p.Name == name && (p.Expires == 0 || now < p.Expires) && (p.Tools == nil || slices.Contains(agent.Expand(p.Tools), "command_exec")) {
			who.Repos = p.Repos
			return who, true
		}
	}
	return who, false
}

// serve serves all addresses until ctx ends, one of them fails, or the client on standard input disconnects; then all
// of them end.
func (e *execListeners) serve(ctx context.Context, serve transport.Handler) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, one := range e.serves {
		all.Go(func() { cancel(one(ctx, serve)) })
	}
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, errStdioEnded) {
		return err
	}
	return nil
}
