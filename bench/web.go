package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

// httpRows measures the same call over HTTP.
func httpRows(o *options) ([]*Row, func(), error) {
	w, err := o.serve()
	if err != nil {
		return nil, nil, err
	}
	params, err := json.Marshal(runTrue(filepath.Base(o.repo)))
	if err == nil {
		err = w.begin()
	}
	var id atomic.Int64
	if err != nil {
		w.close()
		return nil, nil, err
	}
	return []*Row{{
		Name: "corral, MCP by HTTP", Sets: full + "; policy, artifact, token; a shell starts the program",
		Run: func() error {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, id.Add(1), params)
			result, err := w.post([]byte(body))
			if err != nil {
				return err
			}
			return executed(result)
		},
	}}, w.close, nil
}

// A web is an HTTP server and a session with it.
type web struct {
	url, token, session string
	client              http.Client
	end                 func()
}

// serve starts a server for one principal.
func (o *options) serve() (*web, error) {
	// The port is free now, and the kernel does not soon assign it to another process.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	w := &web{url: "http://" + address + "/mcp", token: fmt.Sprintf("corral_bench_%d_%d", os.Getpid(), time.Now().UnixNano())}
	file := filepath.Join(o.dir, "serve.yaml")
	config := fmt.Sprintf("version: 1\nruntime:\n  max_concurrent_jobs: 64\nprincipals:\n  - name: bench\n    token_sha256: \"%x\"\n", sha256.Sum256([]byte(w.token)))
	if err := errors.Join(os.WriteFile(file, []byte(config), 0o600), os.Chown(file, nobody, nobody)); err != nil {
		return nil, err
	}
	cmd := o.frontCommand("serve", "--listen", address, "--config", file)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w.client.Transport = &http.Transport{MaxIdleConnsPerHost: 64}
	w.end = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	for range 500 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return w, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.end()
	return nil, errors.New("corral serve does not answer")
}

func (w *web) close() {
	w.client.CloseIdleConnections()
	w.end()
}

// begin opens the session.
func (w *web) begin() error {
	const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},` +
		`"clientInfo":{"name":"bench","version":"1"}}}`
	if _, err := w.post([]byte(hello)); err != nil {
		return err
	}
	_, err := w.post([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	return err
}

// post sends a message and returns the result of a request.
func (w *web) post(body []byte) (json.RawMessage, error) {
	r, err := http.NewRequest(http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer "+w.token)
	if w.session != "" {
		r.Header.Set("Mcp-Session-Id", w.session)
		r.Header.Set("MCP-Protocol-Version", "2025-11-25")
	}
	answer, err := w.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if id := answer.Header.Get("Mcp-Session-Id"); id != "" {
		w.session = id
	}
	switch answer.StatusCode {
	case http.StatusAccepted:
		return nil, nil
	case http.StatusOK:
		return resultOf(text)
	}
	return nil, fmt.Errorf("%s: %.200s", answer.Status, text)
}

// resultOf returns the result in a reply, which may be the last event of a stream.
func resultOf(text []byte) (json.RawMessage, error) {
	if at := bytes.LastIndex(text, []byte("data: ")); at >= 0 && !bytes.HasPrefix(text, []byte("{")) {
		text = firstLine(text[at+len("data: "):])
	}
	var reply struct {
		Result, Error json.RawMessage
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		return nil, err
	}
	if reply.Error != nil {
		return nil, fmt.Errorf("%s", reply.Error)
	}
	return reply.Result, nil
}
