package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// TestExecBudget checks that memory for answers is bounded, and that exceeding the bound is an error.
func TestExecBudget(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	c := p.execSite(t, daemon(t), overStdio, "exec_server: {output_budget: 16MiB}\n").client()
	m := c.answer("yes", c.start(object{"disableOutputCap": true, "timeoutMs": 60_000}, "yes"))
	if m.Error == nil || m.Error.Code != -32603 && m.Error.Code != -32001 {
		t.Errorf("%.200s", m.raw)
	} else {
		t.Logf("%d %s", m.Error.Code, m.Error.Message)
	}
	if r := c.exec(object{"disableOutputCap": true}, "head", "-c", "8000000", "/dev/zero"); len(*r.Stdout) != 8_000_000 {
		t.Errorf("%d bytes", len(*r.Stdout))
	}
}

// TestExecGone checks that all processes of a client end with it, whatever they do, and that other clients are still
// served.
func TestExecGone(t *testing.T) {
	sandboxtest.RequireJails(t)
	s := newPlace(t).execSite(t, daemon(t), overUnix, "")
	for range sandboxtest.Scale(3) {
		mark := fmt.Sprintf("mark-%d-%d", os.Getpid(), serial.Add(1))
		c := s.client()
		scripts := []string{
			"exec -a MARK sleep 600", "trap '' TERM HUP INT; (setsid bash -c 'exec -a MARK sleep 600' &); exec -a MARK sleep 600",
			"exec -a MARK yes", "exec -a MARK cat", "for n in 1 2 3 4 5; do bash -c 'exec -a MARK sleep 600' & done; wait",
		}
		for n, script := range scripts {
			c.start(object{
				"processId": itoa(n), "tty": n%2 == 1, "streamStdin": true, "streamStdoutStderr": n%2 == 0, "disableTimeout": true, "disableOutputCap": true,
			}, "bash", "-c", strings.ReplaceAll(script, "MARK", mark))
		}
		sandboxtest.Eventually(t, 20*time.Second, "they run", func() bool { return marked(mark) >= 9 })
		c.close()
		sandboxtest.Eventually(t, time.Second+busy, "the processes of a client that is gone are gone", func() bool { return marked(mark) == 0 })
	}
	if r := s.client().shell("echo still"); *r.Stdout != "still\n" {
		t.Errorf("%+v", r)
	}
}
