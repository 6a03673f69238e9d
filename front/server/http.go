package server

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"

	"corral/mcp/agent"
	mcpserver "corral/mcp/server"
	"corral/mcp/tool"

	"corral/front/cli"
	"corral/front/supervisor"
	"corral/internal/config"
	"corral/internal/gate"
)

// HTTPHelp is the help text of corral serve.
const HTTPHelp = `corral serve serves agent hosts over the Model Context Protocol, on HTTP (Streamable HTTP).

Usage: corral serve [--listen HOST:PORT] [--repo DIR]... [--config FILE] [--supervisor SOCKET] [--tool-names WORD]
                    [--tools NAME,...] [--structured] [--preview HOST:PORT] [--page HOST:PORT [--state DIR]]
                    [--log-level LEVEL]

  --listen HOST:PORT    listen there (default 127.0.0.1:7070); the path is ` + mcpserver.Path + `
  --preview HOST:PORT   show browsers on this machine what servers in sessions serve, at pPORT-SESSION.localhost; HOST is
                        localhost, 127.0.0.1 or [::1], each of which stands for both addresses. A POST to
                        ` + mcpserver.PreviewsPath + ` of the other listener makes links
  --page HOST:PORT      serve a web page with running jobs, ended jobs and the audit log to browsers on this machine; HOST as
                        for --preview (default http.page of the configuration; if that is not set, there is no page). A
                        POST to ` + mcpserver.PagePath + ` of the other listener makes a link to log in, for principals with page or
                        operator among their tools
  --state DIR           state directory of the supervisor, whose audit log operators search on the page if this user may
                        read it (default ` + supervisor.StateDir + `)
` + serverOptions + `
Clients need a token of a principal in the configuration: corral config token NAME makes one. SIGTERM ends the server and
all its jobs. SIGHUP reads the configuration again: tokens, repositories and the rules for jobs apply to the calls that
come from then on; the log names other keys that were changed and need a restart. A faulty file changes nothing.
The server does not support TLS: for clients on other machines, use a reverse proxy that does.

Examples:
  corral serve --repo ~/src/app
  curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:7070` + mcpserver.Path + `
`

// HTTP is the cli.Command of corral serve.
func HTTP(args []string) error {
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	listen := f.String("listen", "", "")
	var at browsers
	f.StringVar(&at.previews, "preview", "", "")
	f.StringVar(&at.page, "page", "", "")
	f.StringVar(&at.state, "state", supervisor.StateDir, "")
	s, err := parseServing(f, true, args, HTTPHelp)
	if err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(*listen); *listen != "" && err != nil {
		return fmt.Errorf("--listen: %w\nhint: must be HOST:PORT, such as 127.0.0.1:7070", err)
	}
	s.tokens = true
	cli.IgnorePipes()
	ctx, stop := cli.UntilTerminated()
	defer stop()
	hangups, quiet := hangUps()
	defer quiet()
	b, server, err := s.serveTools()
	if err != nil {
		return err
	}
	defer b.Close()
	address := cmp.Or(*listen, b.Config.HTTP.Listen)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	t := s.tokensOf(b)
	r := s.newReloader(b, t)
	r.prepare, r.report = s.replaceTools(b, server), s.metrics.Reloaded
	go r.run(ctx, hangups)
	b.Log.Info("serving", "url", "http://"+l.Addr().String()+mcpserver.Path)
	o := mcpserver.HTTPOptions{
		Authenticate: authenticate(t), Ready: b.Supervisor.Ready, Metrics: s.metrics.Text,
		Origins: b.Config.HTTP.AllowedOrigins,
		Hosts:   append(ownHosts(address, l.Addr()), b.Config.HTTP.AllowedHosts...),
		Idle:    b.Config.HTTP.SessionIdle, MaxBody: b.Config.HTTP.MaxBody,
	}
	end, err := s.serveBrowsers(ctx, b, t, at, &o)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	err = server.Serve(ctx, l, o)
	return errors.Join(err, end())
}

// servePreviews serves previews at address until ctx ends or end is called, if address is not "".
func (s *serving) servePreviews(
	ctx context.Context, b *Backend, t *tokens, address string, o *mcpserver.HTTPOptions,
) (end func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	list, port, err := gate.Listen(address)
	if err != nil {
		return nil, fmt.Errorf("--preview: %w", err)
	}
	p := newPreviewer(b, t, port)
	o.Previews = p.answer
	b.Log.Info("serving previews", "port", port)
	return serveUntil(ctx, func(ctx context.Context) error { return p.server.Serve(ctx, list...) }), nil
}

// serveUntil calls serve in another goroutine, with a context that ends when ctx does or end is called. end waits for
// serve, and returns its error.
func serveUntil(ctx context.Context, serve func(context.Context) error) (end func() error) {
	ctx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- serve(ctx) }()
	return func() error {
		stop()
		return <-served
	}
}

// ownHosts returns the values of the Host header with which clients reach the server: the host as given on the command
// line and the address it is bound to. A wildcard address stands for every address of the machine, and adds none.
func ownHosts(given string, bound net.Addr) []string {
	var hosts []string
	_, port, _ := net.SplitHostPort(bound.String())
	add := func(host string) {
		ip := net.ParseIP(host)
		if host == "" || ip != nil && ip.IsUnspecified() {
			return
		}
		host = net.JoinHostPort(host, port)
		hosts = append(hosts, host, strings.TrimSuffix(host, ":80")) // clients omit the default port
	}
	for _, address := range []string{given, bound.String()} {
		host, _, _ := net.SplitHostPort(address)
		add(host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// tokenPrincipal returns the principal of a token, as it is in requests and in the audit log.
func tokenPrincipal(p config.Principal) string { return tokenPrefix + p.Name }

// tokenPrefix is the beginning of the principals of tokens.
const tokenPrefix = "token:"

// authenticate identifies callers by their tokens. It returns nil, which refuses everybody, if there are no principals.
func authenticate(t *tokens) func(token string) (tool.Caller, bool) {
	if len(t.current()) == 0 {
		return nil
	}
	return func(token string) (tool.Caller, bool) {
		p, ok := t.authenticate(token)
		return tool.Caller{Principal: tokenPrincipal(p), Repos: p.Repos, Tools: agent.Expand(p.Tools)}, ok
	}
}
