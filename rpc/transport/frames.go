package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"corral/internal/gate"
	"corral/rpc"
)

// Times of a WebSocket.
const (
	pingEvery = 30 * time.Second // what is between may close a connection that is quiet for longer than a minute
	pongTime  = 60 * time.Second // for the answer to a ping
	closeTime = time.Second      // for the other side to close, too
	stallTime = 2 * time.Second  // after it, a write waits for a client that does not read
)

// frames is a connection of text frames.
type frames struct {
	ws  *websocket.Conn
	raw net.Conn        // below ws, to end it for good
	ctx context.Context //nolint:containedctx // ends with the connection
	end context.CancelFunc

	writing atomic.Int64 // when the write under way began, as Unix time in nanoseconds; 0 without one
	once    sync.Once
	pings   sync.WaitGroup
}

// accept makes a request's connection a WebSocket. Who may is known by then. The request is answered if it is an error.
func accept(w http.ResponseWriter, r *http.Request) (*frames, error) {
	raw := gate.Conn(r.Context())
	if raw == nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return nil, errors.New("the connection of the request is not known")
	}
	f := &frames{raw: raw}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // of the Origin: a request with one has been refused
		CompressionMode:    websocket.CompressionDisabled,
		// An answer that waits for the client to read would end the connection.
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

// Read implements rpc.Conn. A frame that is too long, or no text, ends the connection.
func (f *frames) Read() ([]byte, error) {
	kind, data, err := f.ws.Read(f.ctx)
	switch {
	case err == nil && kind == websocket.MessageText:
		return data, nil
	case err == nil:
		f.close(websocket.StatusUnsupportedData, "text frames are wanted")
		return nil, errors.New("a binary frame, and text is wanted")
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	}
	switch websocket.CloseStatus(err) {
	case websocket.StatusNormalClosure, websocket.StatusGoingAway, websocket.StatusNoStatusRcvd:
		return nil, io.EOF
	}
	return nil, fmt.Errorf("read from the client: %w", err)
}

// Write implements rpc.Conn.
func (f *frames) Write(text []byte) error {
	f.writing.Store(time.Now().UnixNano())
	defer f.writing.Store(0)
	return f.ws.Write(f.ctx, websocket.MessageText, text)
}

// Close implements rpc.Conn.
func (f *frames) Close() error {
	f.close(websocket.StatusGoingAway, "the server ends the connection")
	return nil
}

// close tells the client why, if that does not wait for it to read first, and has the connection end within closeTime.
func (f *frames) close(status websocket.StatusCode, why string) {
	f.once.Do(func() {
		if !f.stalled() {
			// Close waits for longer, but not when raw is closed.
			timer := time.AfterFunc(closeTime, func() { _ = f.raw.Close() })
			_ = f.ws.Close(status, why)
			timer.Stop()
		}
		_ = f.raw.Close()
		f.end()
		f.pings.Wait()
	})
}

// ping keeps the connection open, and ends that of a client which is gone without a word. One that does not read what is
// written has no ping: it is not gone, and slow at nobody's cost.
func (f *frames) ping() {
	tick := time.NewTicker(pingEvery)
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
		ctx, cancel := context.WithTimeout(f.ctx, pongTime)
		err := f.ws.Ping(ctx)
		cancel()
		if err != nil && f.ctx.Err() == nil && !f.stalled() {
			_ = f.raw.Close() // which Read tells
		}
	}
}

// stalled says whether a write waits for the client to read.
func (f *frames) stalled() bool {
	begun := f.writing.Load()
	return begun != 0 && time.Since(time.Unix(0, begun)) > stallTime
}
