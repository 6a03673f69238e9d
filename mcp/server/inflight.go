package server

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"corral/internal/jsonrpc"
)

// Limits of the requests in flight of a connection or an HTTP session.
const (
	maxInFlight      = 256
	maxInFlightBytes = 64 << 20 // of messages
)

// errCancelled is the cause of a context cancelled by the client's notifications/cancelled: its request gets no response.
var errCancelled = errors.New("cancelled by the client")

// An inflight holds one client's requests without a response.
type inflight struct {
	mu     sync.Mutex
	calls  map[string]context.CancelCauseFunc // guarded by mu, by idKey
	count  int                                // guarded by mu: includes those whose response is being written
	bytes  int                                // guarded by mu
	closed bool                               // guarded by mu
	all    sync.WaitGroup
}

// add adds a request of size bytes, or returns why it cannot. After it, finish and release must be called once each.
func (f *inflight) add(id json.RawMessage, size int, cancel context.CancelCauseFunc) *jsonrpc.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := jsonrpc.Key(id)
	switch _, taken := f.calls[key]; {
	case f.closed:
		return jsonrpc.Errorf(codeBusy, "the server is shutting down")
	case taken:
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "duplicate id: a request with this id is in flight")
	case f.count >= maxInFlight:
		return jsonrpc.Errorf(codeBusy, "%d requests are in flight, the maximum: wait for a response", f.count)
	case f.bytes+size > maxInFlightBytes && f.count > 0:
		return jsonrpc.Errorf(codeBusy, "the requests in flight have %d MiB: wait for a response", f.bytes>>20)
	}
	if f.calls == nil {
		f.calls = map[string]context.CancelCauseFunc{}
	}
	f.calls[key] = cancel
	f.count++
	f.bytes += size
	f.all.Add(1)
	return nil
}

// cancel cancels a request if it is in flight.
func (f *inflight) cancel(id json.RawMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if stop := f.calls[jsonrpc.Key(id)]; stop != nil {
		stop(errCancelled)
	}
}

// finish removes a request's id: the request can no longer be cancelled. It must be called before the response is sent,
// because the client may reuse the id as soon as it has the response.
func (f *inflight) finish(id json.RawMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.calls, jsonrpc.Key(id))
}

// release returns the request's share of the limits.
func (f *inflight) release(size int) {
	f.mu.Lock()
	f.count--
	f.bytes -= size
	f.mu.Unlock()
	f.all.Done()
}

// close makes add refuse all requests.
func (f *inflight) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// cancelAll makes add refuse all requests, and cancels those in flight.
func (f *inflight) cancelAll(cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, stop := range f.calls {
		stop(cause)
	}
}

// idle returns a channel that is closed when no request is in flight. close must have been called.
func (f *inflight) idle() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.all.Wait()
	}()
	return done
}
