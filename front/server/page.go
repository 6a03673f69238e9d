package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"corral/front/page"
	"corral/internal/gate"
	mcpserver "corral/mcp/server"
	"corral/store/artifact"
	"corral/store/audit"
	"corral/workspace/session"
)

// Words of a principal's tools that are no tools: with pageTool it may see its own jobs on the page, with operatorTool those of all
// principals, and the audit log. A principal that may use all tools may not: the page is for people, and most tokens are for agents.
const (
	pageTool     = "page"
	operatorTool = "operator"
)

// accessOf returns what somebody who has logged in by a token may see on the page now.
func (t *tokens) accessOf(by gate.Holder) (page.Access, bool) {
	p, ok := t.holds(by)
	operator := slices.Contains(p.Tools, operatorTool)
	return page.Access{All: operator, Repos: p.Repos}, ok && (operator || slices.Contains(p.Tools, pageTool))
}

// newPage returns the page of a server, at a port of the loopback interface. state is the state directory of the supervisor.
func newPage(b *Backend, t *tokens, port uint16, state string) *page.Server {
	follow := func(ctx context.Context, handle string, w io.Writer, skipped func(int64)) error {
		err := artifact.Follow(ctx, handle, uint32(os.Geteuid()), true, w, skipped)
		if errors.Is(err, artifact.ErrNotLive) {
			err = errors.New("this job shows no output: it may just have ended")
		}
		return err
	}
	c := page.Config{
		Port: port, Access: t.accessOf, Samples: b.Samples, Kill: b.Supervisor.Kill, Outputs: b.Outputs(), Follow: follow, Log: b.Log,
		Sessions: b.Supervisor.ListSessions, Denials: b.Supervisor.Denials,
		Owns: func(principal, id string) bool {
			return slices.ContainsFunc(b.Sessions.OpenOf(principal), func(o session.Open) bool { return o.ID == id })
		},
	}
	dir := filepath.Join(state, "audit")
	// Otherwise the page has no search: the log is root's, unless root shares it with a group.
	if unix.Access(dir, unix.R_OK|unix.X_OK) == nil {
		c.Audit = func() (*audit.Reader, error) { return audit.OpenReaderUnlocked(dir) }
	}
	return page.New(c)
}

// pageLinks returns the answers of PagePath.
func pageLinks(s *page.Server) func(principal string, r *http.Request) (status int, data []byte) {
	return func(principal string, r *http.Request) (int, []byte) {
		url, expires, err := s.Link(holder(principal, r))
		if err != nil {
			return http.StatusForbidden, encode(map[string]any{
				"error": err.Error(), "hint": "the operator adds page or operator to the principal's tools",
			})
		}
		return http.StatusOK, encode(map[string]any{"url": url, "expires": expires})
	}
}

// browsers are the addresses at which a server listens for browsers; "" is none.
type browsers struct {
	previews, page string
	state          string // directory of the supervisor
}

// serveBrowsers serves previews and the page until ctx ends or end is called.
func (s *serving) serveBrowsers(
	ctx context.Context, b *Backend, t *tokens, at browsers, o *mcpserver.HTTPOptions,
) (end func() error, err error) {
	endPreviews, err := s.servePreviews(ctx, b, t, at.previews, o)
	if err != nil {
		return nil, err
	}
	endPage, err := s.servePage(ctx, b, t, cmp.Or(at.page, b.Config.HTTP.Page), at.state, o)
	if err != nil {
		return nil, errors.Join(err, endPreviews())
	}
	return func() error { return errors.Join(endPreviews(), endPage()) }, nil
}

// servePage serves the page at address until ctx ends or end is called, if address is not "".
func (s *serving) servePage(
	ctx context.Context, b *Backend, t *tokens, address, state string, o *mcpserver.HTTPOptions,
) (end func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	list, port, err := gate.Listen(address)
	if err != nil {
		return nil, fmt.Errorf("--page: %w", err)
	}
	p := newPage(b, t, port, state)
	o.Page = pageLinks(p)
	b.Log.Info("serving the page", "port", port)
	return serveUntil(ctx, func(ctx context.Context) error { return p.Serve(ctx, list...) }), nil
}
