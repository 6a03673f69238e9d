package rpc

import (
	"context"
	"errors"
	"slices"
)

// A Conn carries the messages of one client, each one JSON text without a line break: a line on a pipe or a unix socket, a
// text frame on a WebSocket. Package rpc/transport has them. How a text is framed, how long it may take, and who is at the
// other end is the Conn's matter; what the text says is not.
//
// Serve calls Read from one goroutine and Write from another one, each never twice at once, and Close from any.
type Conn interface {
	// Read returns the next text, which is the caller's afterwards. It need not be JSON, nor UTF-8; an empty one is
	// ignored. It has at most MaxMessage bytes: a longer one is ErrTooLong, after which Read goes on behind it, or has the
	// connection end. io.EOF is the end of the client; every other error ends the connection too.
	Read() ([]byte, error)
	// Write returns when the text is on its way: as long as it waits, so does what writes it. That is how a client that
	// does not read slows its own processes and nobody else. It must not keep the text. An error ends the connection.
	Write(text []byte) error
	// Close ends the connection, and a Read and a Write that wait. It may be called more than once.
	Close() error
}

// MaxMessage is how many bytes a text of a client may have.
const MaxMessage = 10 << 20

// ErrTooLong is a text that was longer than MaxMessage and passed over. The client gets an error without an id.
var ErrTooLong = errors.New("message too long")

// A Caller is who is at the other end of a connection, as the transport has found out.
type Caller struct {
	Principal string // "user:ada", "token:ci"
	Session   string // of this connection, for the log; "" has Serve make one
	// Repos are the ids of the repositories that the principal may use, of those that are served; nil is all of them.
	Repos []string
}

func (who *Caller) mayUse(repo string) bool {
	return who.Repos == nil || slices.Contains(who.Repos, repo)
}

// Serve serves one client: it reads from conn until io.EOF, an error, or the end of ctx; then it ends every process of
// the connection, closes conn, and returns when none is left. A client that has only stopped to write, as a pipe does, has
// a second to read the last answers in.
//
// The error is nil at io.EOF, ctx's own when that ended, else what went wrong with conn.
func (s *Server) Serve(ctx context.Context, conn Conn, who Caller) error {
	return s.serve(ctx, conn, who)
}
