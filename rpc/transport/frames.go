package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"corral/internal/gate"
	"corral/rpc"
)

// Intervals and timeouts of a WebSocket.
const (
	pingInterval = 30 * time.Second // proxies may close a connection that is idle for longer than a minute
	pongTimeout  = 60 * time.Second // for the answer to a ping
	closeTimeout = time.Second      // for the peer to answer a close frame
	stallTimeout = 2 * time.Second  // a write that takes longer waits for a client that does not read
)

// frameConn is a connection of text frames.
type frameConn struct {
	ws  *websocket.Conn
	raw net.Conn // under ws; closing it ends the connection at once
	in  *share
	ctx context.Context //nolint:containedctx // ends with the connection
	end context.CancelFunc

	revoked atomic.Bool
	writing atomic.Int64 // start of the write in progress, as Unix time in nanoseconds; 0 if none
	once    sync.Once
	pings   sync.WaitGroup
}

// accept upgrades an authenticated request to a WebSocket. If it returns an error, the request has been answered.
func accept(w http.ResponseWriter, r *http.Request, in *share) (*frameConn, error) {
	raw := gate.Conn(r.Context())
	if raw == nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return nil, errors.New("no network connection in the context of the request")
	}
	f := &frameConn{raw: raw, in: in}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the caller refuses requests with an Origin
		CompressionMode:    websocket.CompressionDisabled,
		// A pong would wait behind the stalled write, and its timeout would end the connection.
		OnPingReceived: func(context.Context, []byte) bool { return !f.stalled() },
	})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(rpc.MaxMessage)
	f.ws = ws
	f.ctx, f.end = context.WithCancel(context.Background())
	f.pings.Go(f.ping)
	return f, nil
}

// Read implements rpc.Conn. A binary frame, or one that is too long, ends the connection.
func (f *frameConn) Read() ([]byte, error) {
	kind, data, err := f.next()
	switch {
	case errors.Is(err, errNoMemory):
		f.close(websocket.StatusTryAgainLater, err.Error())
		return nil, err
	case err == nil && kind == websocket.MessageText:
		return data, nil
	case err == nil:
		f.close(websocket.StatusUnsupportedData, "only text frames are accepted")
		return nil, errors.New("got a binary frame, only text frames are accepted")
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	}
	switch websocket.CloseStatus(err) {
	case websocket.StatusNormalClosure, websocket.StatusGoingAway, websocket.StatusNoStatusRcvd:
		return nil, io.EOF
	}
	return nil, fmt.Errorf("read from the client: %w", err)
}

// next reads a message of any kind. Its memory stays counted until the next call.
func (f *frameConn) next() (websocket.MessageType, []byte, error) {
	f.in.release()
	kind, r, err := f.ws.Reader(f.ctx)
	if err != nil {
		return 0, nil, err
	}
	data, err := f.in.readAll(r)
	return kind, data, err
}

// Write implements rpc.Conn.
func (f *frameConn) Write(text []byte) error {
	f.writing.Store(time.Now().UnixNano())
	defer f.writing.Store(0)
	return f.ws.Write(f.ctx, websocket.MessageText, text)
}

// WritePieces implements rpc.Conn. Each piece is a frame of one message.
func (f *frameConn) WritePieces(pieces iter.Seq[[]byte]) error {
	defer f.writing.Store(0)
	w, err := f.ws.Writer(f.ctx, websocket.MessageText)
	if err != nil {
		return err
	}
	for p := range pieces {
		f.writing.Store(time.Now().UnixNano()) // a client that takes each piece in time does not stall
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	f.writing.Store(time.Now().UnixNano())
	return w.Close()
}

// Close implements rpc.Conn.
func (f *frameConn) Close() error {
	f.close(websocket.StatusGoingAway, "the server closes the connection")
	return nil
}

// Revoked reports whether the connection was closed because its token is not accepted any more.
func (f *frameConn) Revoked() bool { return f.revoked.Load() }

// close sends a close frame, unless a write is stalled, and ends the connection within closeTimeout.
func (f *frameConn) close(status websocket.StatusCode, why string) {
	f.once.Do(func() {
		if !f.stalled() {
			// ws.Close has a longer timeout, but returns as soon as raw is closed.
			timer := time.AfterFunc(closeTimeout, func() { _ = f.raw.Close() })
			_ = f.ws.Close(status, why)
			timer.Stop()
		}
		_ = f.raw.Close()
		f.end()
		f.pings.Wait()
	})
}

// ping keeps the connection open, and closes it if the client no longer answers. It skips a client with a stalled write,
// which is connected but slow, and delays nobody else.
func (f *frameConn) ping() {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			return
		}
		if f.stalled() {
			continue
		}
		ctx, cancel := context.WithTimeout(f.ctx, pongTimeout)
		err := f.ws.Ping(ctx)
		cancel()
		if err != nil && f.ctx.Err() == nil && !f.stalled() {
			_ = f.raw.Close() // makes Read fail
		}
	}
}

// stalled reports whether a write has been waiting for the client to read.
func (f *frameConn) stalled() bool {
	begun := f.writing.Load()
	return begun != 0 && time.Since(time.Unix(0, begun)) > stallTimeout
}
