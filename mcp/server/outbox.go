package server

import (
	"io"

	"corral/internal/jsonrpc"
)

// Limits of the messages buffered for a client that does not read.
const (
	maxWaitingNotes = 256 << 10 // bytes; above, progress is dropped
	maxWaitingRead  = 16 << 20  // above, reading from the client pauses
	maxWaiting      = 64 << 20  // above, a response is replaced by a short error
)

// newOutbox returns an outbox that writes messages to out, one per line.
func newOutbox(out io.Writer) *jsonrpc.Outbox {
	o := jsonrpc.NewOutbox(func(i *jsonrpc.Item) error {
		_, err := out.Write(append(i.Text, '\n'))
		return err
	})
	o.Replace = func(i jsonrpc.Item, waiting int) jsonrpc.Item {
		if waiting+len(i.Text) > maxWaiting {
			i.Text = dialect.Error(i.ID, jsonrpc.Errorf(codeBusy, "the response of %d bytes was dropped: the client has not read the previous %d MiB",
				len(i.Text), waiting>>20))
		}
		return i
	}
	return o
}

// put queues a response, or a short error instead if too much is queued.
func (l *line) put(id, data []byte) { l.out.Put(jsonrpc.Item{ID: id, Text: data}) }

// send is like put, but may block.
func (l *line) send(id, data []byte) { l.out.Send(jsonrpc.Item{ID: id, Text: data}) }

// note queues a notification. If the client is slow, it is dropped.
func (l *line) note(data []byte) { l.out.PutBelow(maxWaitingNotes, jsonrpc.Item{Text: data}) }
