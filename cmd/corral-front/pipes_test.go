package main

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// TestUnreadInput checks that a job that does not read its input does not end the server.
func TestUnreadInput(t *testing.T) {
	_, _, h := served(t, "")
	for range 3 {
		if o := h.execute(object{"runtime": "shell", "code": "exec <&-; sleep 0.2", "stdin": strings.Repeat("x", 500_000)}); o.Status != "success" {
			t.Errorf("%+v", o)
		}
	}
	h.must("ping", object{})
}

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
