package main

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// TestBrokenPipe checks that a client that does not read its answer does not end the server.
func TestBrokenPipe(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	token, hash := config.NewToken()
	w := p.web(t, daemon(t), "principals:\n  - {name: ci, token_sha256: \""+fmt.Sprintf("%x", hash)+"\"}\n")
	_ = w.Process.Signal(syscall.SIGPIPE) // as the kernel does for an unread pipe
	if status, _, _ := w.post(token, "", hello); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	if w.EndsWithin(0) {
		t.Error("the server has ended")
	}
}
