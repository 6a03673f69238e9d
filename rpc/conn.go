package rpc

import (
	"iter"
	"slices"

	"corral/internal/jsonrpc"
)

// A Conn carries the messages of one client. Each message is one JSON text without a line break: a line on a pipe or a
// unix socket, a text frame on a WebSocket. Package rpc/transport implements it. The Conn is responsible for framing,
// timeouts and the identity of the peer, but does not interpret the messages.
//
// Serve calls Read from one goroutine, Write from another one, and Close from any; it never runs two Reads or two Writes
// at once (WritePieces is a Write).
type Conn interface {
	// Read returns the next text, which the caller owns afterwards. It need not be JSON or UTF-8; an empty text is
	// ignored. A text has at most MaxMessage bytes. For a longer one Read returns ErrTooLong; the next Read either skips
	// it and continues with the following text, or fails. io.EOF means that the client closed its end; any other error
	// also ends the connection.
	Read() ([]byte, error)
	// Write returns once the text has been sent. It blocks as long as the client does not read, and so do the processes
	// that produce the text: a client that does not read slows only its own processes. Write must not retain the text. An
	// error ends the connection.
	Write(text []byte) error
	// WritePieces is Write for a text that is given in pieces, which may be far larger than what should be in memory at
	// once. It uses each piece only until it takes the next one.
	WritePieces(pieces iter.Seq[[]byte]) error
	// Close ends the connection and unblocks Read and Write. It may be called more than once.
	Close() error
}

// MaxMessage is the maximum size in bytes of a message from a client.
const MaxMessage = 10 << 20

// ErrTooLong reports that a message exceeded MaxMessage and was skipped. The client gets an error response without an id.
var ErrTooLong = jsonrpc.ErrTooLong

// A Caller identifies the peer of a connection, as authenticated by the transport.
type Caller struct {
	Principal string // "user:ada", "token:ci"
	Session   string // id of this connection in the diagnostic log; "" lets Serve generate one
	// Repos are the ids of the served repositories that the principal may use; nil means all of them.
	Repos []string
}

func (who *Caller) mayUse(repo string) bool {
	return who.Repos == nil || slices.Contains(who.Repos, repo)
}
