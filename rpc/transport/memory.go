package transport

import (
	"errors"
	"io"

	"corral/internal/ratelimit"
	"corral/rpc"
)

// Bounds on the memory for messages that are being received or handled, of all connections of a server together. Without
// them the connections of one client could make the server keep many unfinished messages of rpc.MaxMessage bytes.
const (
	maxReceived      = 256 << 20       // bytes
	maxReceivedShare = maxReceived / 4 // of one user or principal
	freeReceived     = 64 << 10        // the first bytes of each message do not count: the number of connections bounds them
	firstRead        = 4 << 10         // initial capacity for a message
)

// errNoMemory ends a connection whose message would exceed a bound. The message cannot be skipped instead: it may take the
// client any time to send the rest.
var errNoMemory = errors.New("this client is sending too many large messages at once")

// received reports whether the bounds allow what the messages of all connections, and of one client, take.
func received(all, own int64) bool { return all <= maxReceived && own <= maxReceivedShare }

// A share is what the messages of one connection take. It is used by the goroutine that reads the connection.
// A nil share is unlimited.
type share struct {
	of   *ratelimit.Shares // bytes of messages, by client
	who  string
	held int
}

// hold counts n bytes instead of those held so far.
func (s *share) hold(n int) error {
	if s == nil {
		return nil
	}
	n = max(0, n-freeReceived)
	if n > s.held && !s.of.Take(s.who, int64(n-s.held), received) {
		return errNoMemory
	}
	if n < s.held {
		s.of.Return(s.who, int64(s.held-n))
	}
	s.held = n
	return nil
}

// release counts nothing any more. It must be called when the connection has ended.
func (s *share) release() { _ = s.hold(0) } // fewer bytes are always allowed

// readAll reads r to its end. Memory is counted as bytes arrive, and stays counted until hold or release is called.
func (s *share) readAll(r io.Reader) ([]byte, error) {
	text := make([]byte, 0, firstRead)
	for {
		n, err := r.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case errors.Is(err, io.EOF):
			return text, nil
		case err != nil:
			return nil, err
		case len(text) == cap(text):
			// r fails beyond rpc.MaxMessage; a byte more is for finding out that it ends there.
			size := max(min(2*cap(text), rpc.MaxMessage+1), cap(text)+1)
			if err := s.hold(size); err != nil {
				return nil, err
			}
			text = append(make([]byte, 0, size), text...)
		}
	}
}
