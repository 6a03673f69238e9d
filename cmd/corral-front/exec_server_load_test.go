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

// TestExecStalled checks that a client that does not read stalls only its own processes: the server's memory does not grow,
// others are served, and no output is lost when the client reads again.
func TestExecStalled(t *testing.T) {
	sandboxtest.RequireJails(t)
	s := newPlace(t).execSite(t, daemon(t), overUnix, "")
	warm := s.client()
	warm.exec(object{"processId": "warm", "streamStdoutStderr": true, "disableOutputCap": true}, "head", "-c", "10000000", "/dev/zero")
	const many, size = 4, 12_000_000
	stalled := s.client()
	stalled.held.Lock()
	before := peak(t, s.pid())
	var answers []<-chan *execMessage
	for n := range many {
		answers = append(answers, stalled.start(object{
			"processId": itoa(n), "streamStdoutStderr": true, "disableOutputCap": true, "disableTimeout": true,
		}, "head", "-c", itoa(size), "/dev/zero"))
	}
	for range sandboxtest.Scale(50) {
		if r := warm.shell("echo served"); *r.Stdout != "served\n" {
			t.Fatalf("%+v", r)
		}
	}
	grown := peak(t, s.pid()) - before
	t.Logf("the server's memory grew by %d kB from %d kB", grown, before)
	if grown > 16<<10 {
		t.Errorf("the server's memory grew by %d kB", grown)
	}
	stalled.held.Unlock()
	for n, answer := range answers {
		r := stalled.result("stalled", answer)
		if d := stalled.of(itoa(n)); *r.ExitCode != 0 || d.total[0] != size || d.last > r.nth {
			t.Errorf("%d, %d bytes", *r.ExitCode, d.total[0])
		}
	}
}

// TestExecGone checks that all processes of a client end with it, whatever they do, and that other clients are still
// served.
func TestExecGone(t *testing.T) {
	everywhere(t, func(t *testing.T, _ *place, s *execSite) {
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
			if s.over == overStdio {
				sandboxtest.Eventually(t, 2*time.Second+busy, "the server ends with its only client", func() bool { return s.server.EndsWithin(0) })
			}
		}
		if r := s.client().shell("echo still"); *r.Stdout != "still\n" {
			t.Errorf("%+v", r)
		}
	})
}
