package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// TestExecOrder checks with many commands that the answer comes after all output, and that no output is lost.
func TestExecOrder(t *testing.T) {
	overOne(t, func(t *testing.T, _ *place, s *execSite) {
		c := s.client()
		const size, atOnce = 400_000, 8
		runs := sandboxtest.Scale(1000)
		stream := func(id string) object {
			return object{"processId": id, "streamStdoutStderr": true, "timeoutMs": 120_000}
		}
		var answers []<-chan *execMessage
		id := func(n int) string { return fmt.Sprintf("run-%d", n) }
		for n := range runs + atOnce {
			if n >= atOnce {
				done := n - atOnce
				r := c.result(id(done), answers[done])
				d := c.of(id(done))
				if *r.ExitCode != 0 || d.total != [2]int{size, 6} || d.last > r.nth || d.caps != [2]bool{} {
					t.Fatalf("run %d: exit code %d, %v bytes, the last of them is message %d, the answer %d", done, *r.ExitCode, d.total, d.last, r.nth)
				}
				c.forget(id(done))
			}
			if n < runs {
				answers = append(answers, c.start(stream(id(n)), "sh", "-c", "head -c 400000 /dev/zero; echo there >&2"))
			}
		}
	})
}

// TestExecLarge checks large input and output, and programs that do not read their input.
func TestExecLarge(t *testing.T) {
	overOne(t, func(t *testing.T, _ *place, s *execSite) {
		c := s.client()
		const size = 1_900_000
		large := make([]byte, size)
		for n := range large {
			large[n] = byte(rand.Uint32())
		}
		feed := func(id string) <-chan *execMessage {
			return c.ask("command/exec/write", object{"processId": id, "deltaBase64": base64Of(string(large)), "closeStdin": true})
		}
		long := func(id string) object {
			return object{"processId": id, "streamStdin": true, "streamStdoutStderr": true, "outputBytesCap": size, "timeoutMs": 60_000}
		}
		run := c.start(long("cat"), "cat")
		fed := feed("cat")
		r := c.result("cat", run)
		if d := c.of("cat"); *r.ExitCode != 0 || !bytes.Equal(d.data[0], large) || d.caps[0] {
			t.Errorf("%d, %d bytes, capReached %t", *r.ExitCode, d.total[0], d.caps[0])
		}
		if m := c.answer("write", fed); m.Error != nil {
			t.Errorf("%+v", *m.Error)
		}
		// A program that does not read its input.
		run = c.start(long("true"), "true")
		fed = feed("true")
		if r := c.result("true", run); *r.ExitCode != 0 {
			t.Errorf("%+v", r)
		}
		c.answer("write", fed)
		run = c.start(long("sleep"), "sleep", "600")
		fed = feed("sleep")
		if r := c.shell("echo meanwhile"); *r.Stdout != "meanwhile\n" {
			t.Errorf("%+v", r)
		}
		c.must("command/exec/terminate", object{"processId": "sleep"})
		if r := c.result("sleep", run); *r.ExitCode != 137 {
			t.Errorf("%+v", r)
		}
		c.answer("write", fed)
		// A program that writes without end. It uses the processors until its time is over.
		for name, params := range map[string]object{
			"buffered": {"timeoutMs": 1000}, "capped": {"processId": "capped", "streamStdoutStderr": true, "timeoutMs": 1000},
			"streamed": {"processId": "streamed", "streamStdoutStderr": true, "disableOutputCap": true, "timeoutMs": 3000},
		} {
			r := c.exec(params, "yes")
			d := c.of(name)
			if *r.ExitCode != 124 || name == "buffered" && len(*r.Stdout) != 1<<20 || name == "capped" && (d.total[0] != 1<<20 || !d.caps[0]) ||
				name == "streamed" && (d.total[0] <= 1<<20 || d.caps[0]) || d.last > r.nth {
				t.Errorf("%s: %d, %d bytes, %v, %v", name, *r.ExitCode, len(*r.Stdout), d.total, d.caps)
			}
		}
	})
}

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

// TestExecStalled checks that a client that does not read stalls only its own processes: the server's memory does not
// grow, others are served, and no output is lost when the client reads again.
func TestExecStalled(t *testing.T) {
	everywhere(t, func(t *testing.T, _ *place, s *execSite) {
		warm := s.client()
		warm.exec(object{"processId": "warm", "streamStdoutStderr": true, "disableOutputCap": true}, "head", "-c", "10000000", "/dev/zero")
		const many, size = 4, 12_000_000
		stalled, other := warm, warm
		if s.over == overStdio {
			other = nil // stdio has one client
			stalled.held.Lock()
		} else {
			stalled = s.dial()
			stalled.held.Lock()
			go stalled.receive()
			_ = stalled.write([]byte(`{"id":"i","method":"initialize","params":{"clientInfo":{"name":"t","version":"1"}}}`))
		}
		var answers []<-chan *execMessage
		stalled.mu.Lock()
		stalled.pending[`"i"`] = make(chan *execMessage, 1)
		for n := range many {
			answer := make(chan *execMessage, 1)
			stalled.pending[fmt.Sprintf(`"s%d"`, n)] = answer
			answers = append(answers, answer)
		}
		stalled.mu.Unlock()
		before := peak(t, s.pid())
		for n := range many {
			_ = stalled.write(fmt.Appendf(nil, `{"id":"s%d","method":"command/exec","params":{"command":["head","-c","%d","/dev/zero"],"processId":"s%d",`+
				`"streamStdoutStderr":true,"disableOutputCap":true,"disableTimeout":true}}`, n, size, n))
		}
		if other != nil {
			for range sandboxtest.Scale(50) {
				if r := other.shell("echo served"); *r.Stdout != "served\n" {
					t.Fatalf("%+v", r)
				}
			}
		} else {
			time.Sleep(sandboxtest.Slow(time.Second)) // time for the server to buffer more and more
		}
		grown := peak(t, s.pid()) - before
		t.Logf("the server's memory grew by %d kB from %d kB", grown, before)
		if grown > 16<<10 {
			t.Errorf("the server's memory grew by %d kB", grown)
		}
		stalled.held.Unlock()
		for n, answer := range answers {
			r := stalled.result("stalled", answer)
			if d := stalled.of(fmt.Sprintf("s%d", n)); *r.ExitCode != 0 || d.total[0] != size || d.last > r.nth {
				t.Errorf("%d, %d bytes", *r.ExitCode, d.total[0])
			}
		}
	})
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
