package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// These tests prove that no process of a job outlives corral or its supervisor by more than a second, however they end.

// busy is the delay that other programs on this machine may cause. It only tells a delay from a job that goes on for an hour.
const busy = 10 * time.Second

// gone waits for the end of every process that has mark.
func gone(t *testing.T, mark string) {
	t.Helper()
	sandboxtest.Eventually(t, time.Second+busy, "the job's processes are gone", func() bool { return len(marked(mark)) == 0 })
}

// cleared waits until nothing is left of an instance.
func cleared(t *testing.T, instance string) {
	t.Helper()
	for end := time.Now().Add(sandboxtest.Slow(time.Minute)); ; time.Sleep(10 * time.Millisecond) {
		left := sandboxtest.Leftovers(instance)
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left of %s: %q", instance, left)
		}
	}
}

// running starts a stubborn job, with a supervisor of its own unless socket names one, and waits for it.
func running(t *testing.T, socket, mark string, more ...string) *process {
	t.Helper()
	args := append([]string{"run", "--repo", repository(t)}, more...)
	if socket != "" {
		args = append(args, "--supervisor", socket)
	}
	p := start(t, command(t, append(append(args, "--"), stubborn(mark)...)...))
	p.ready(t)
	sandboxtest.Eventually(t, time.Minute, "all processes of the job run", func() bool { return len(marked(mark)) >= 4 })
	return p
}

// instanceOf is the name of corral's own supervisor.
func instanceOf(t *testing.T, p *process) string {
	t.Helper()
	return fmt.Sprintf("embedded-%d", supervisor(t, p.Process.Pid))
}

// each runs f with a supervisor of its own ("") and with one that listens.
func each(t *testing.T, f func(t *testing.T, socket string)) {
	t.Helper()
	sandboxtest.RequireJails(t)
	t.Run("own supervisor", func(t *testing.T) { f(t, "") })
	t.Run("daemon", func(t *testing.T) { f(t, serve(t).Socket) })
}

func TestInterrupt(t *testing.T) {
	sandboxtest.RequireJails(t)
	d, repo := serve(t), repository(t)
	for _, tt := range []struct {
		name, script string
		signal       syscall.Signal
		code         int
		stdout       string
		stderr       string
	}{
		{"a job with a handler", "trap 'echo bye; exit 5' INT; echo ready; while :; do sleep 0.05; done", syscall.SIGINT, 5, "ready\nbye\n", ""},
		{"a job without", "echo ready; exec sleep 1000", syscall.SIGINT, 130, "ready\n", "corral: the job was ended by signal 2 (SIGINT)\n"},
		{"termination", "echo ready; exec sleep 1000", syscall.SIGTERM, 143, "ready\n", "corral: the job was ended by signal 15 (SIGTERM)\n"},
		{"hang-up", "echo ready; exec sleep 1000", syscall.SIGHUP, 129, "ready\n", "corral: the job was ended by signal 1 (SIGHUP)\n"},
		{"all processes get it", "trap : TERM; (trap 'echo child; exit' TERM; echo ready; while :; do sleep 0.05; done) 2>/dev/null & wait; wait; exit 6", syscall.SIGTERM, 6, "ready\nchild\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// It ends by itself: on a busy machine, the usual two seconds for that may be too few.
			p := start(t, command(t, "run", "--kill-after", "1m", "--supervisor", d.Socket, "--repo", repo, "--", "sh", "-c", tt.script))
			p.ready(t)
			p.signal(t, tt.signal)
			if got := p.ends(t); got.code != tt.code || got.stdout != tt.stdout || got.stderr != tt.stderr {
				t.Errorf("%+v, want %d, %q, %q", got, tt.code, tt.stdout, tt.stderr)
			}
		})
	}
}

// TestInterruptIgnored: a job that ignores the interrupt is killed when its time to end is over, or at the second signal at once.
func TestInterruptIgnored(t *testing.T) {
	each(t, func(t *testing.T, socket string) {
		m := mark()
		p := running(t, socket, m)
		p.signal(t, syscall.SIGINT)
		got := p.ends(t)
		if got.code != 137 || !strings.Contains(got.stderr, "corral: the job was killed: it did not end after the signal\n") {
			t.Errorf("%+v", got)
		}
		gone(t, m)

		m = mark()
		p = running(t, socket, m)
		p.signal(t, syscall.SIGINT)
		p.signal(t, syscall.SIGTERM)
		if got := p.ends(t); got.code != 130 && got.code != 143 { // the two signals may arrive in either order
			t.Errorf("%+v", got)
		}
		gone(t, m)
	})
}

// TestIgnoredHangUp: a signal that corral was started with as ignored does not end the job (nohup(1)).
func TestIgnoredHangUp(t *testing.T) {
	sandboxtest.RequireJails(t)
	m := mark()
	cmd := command(t, append([]string{"run", "--repo", repository(t), "--"}, stubborn(m)...)...)
	cmd.Args = append([]string{"sh", "-c", `trap '' HUP; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	p := start(t, cmd)
	p.ready(t)
	p.signal(t, syscall.SIGHUP)
	p.signal(t, syscall.SIGINT) // the first that counts
	if got := p.ends(t); got.code != 137 {
		t.Errorf("%+v", got)
	}
	gone(t, m)
}

// TestClientKilled: kill -9 of corral ends its job.
func TestClientKilled(t *testing.T) {
	each(t, func(t *testing.T, socket string) {
		m := mark()
		p := running(t, socket, m)
		instance := ""
		if socket == "" {
			instance = instanceOf(t, p)
		}
		p.signal(t, syscall.SIGKILL)
		gone(t, m)
		if instance != "" {
			cleared(t, instance)
		}
	})
}

// TestSupervisorKilled: kill -9 of corrald ends the jobs, corral reports it, and the next corrald removes what was left.
func TestSupervisorKilled(t *testing.T) {
	check := func(t *testing.T, p *process, m string) {
		t.Helper()
		gone(t, m)
		got := p.ends(t)
		if got.code != 125 || !strings.HasPrefix(got.stderr, "corral: the supervisor is gone, and the job with it: ") {
			t.Errorf("%+v", got)
		}
		if got := corral(t, "run", "--repo", repository(t), "--", "echo", "next"); got.stdout != "next\n" {
			t.Errorf("afterwards: %+v", got)
		}
	}
	sandboxtest.RequireJails(t)
	t.Run("own supervisor", func(t *testing.T) {
		m := mark()
		p := running(t, "", m)
		instance := instanceOf(t, p)
		if err := syscall.Kill(supervisor(t, p.Process.Pid), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		check(t, p, m)
		cleared(t, instance)
	})
	t.Run("daemon", func(t *testing.T) {
		d, m, other := serve(t), mark(), mark()
		p, q := running(t, d.Socket, m), running(t, d.Socket, other)
		d.Kill()
		check(t, p, m)
		check(t, q, other)
		cleared(t, d.Instance)
	})
	t.Run("with --json", func(t *testing.T) {
		d := serve(t)
		p := start(t, command(t, "run", "--json", "--repo", repository(t), "--supervisor", d.Socket, "sh", "-c", "echo partly; sleep 1000"))
		sandboxtest.Eventually(t, time.Minute, "the job runs", func() bool {
			got := corral(t, "ps", "--supervisor", d.Socket)
			return strings.Contains(got.stdout, "job-")
		})
		d.Kill()
		got := p.ends(t)
		if o := decode(t, got); got.code != 125 || o.Status != "lost" || o.Error == nil {
			t.Errorf("%+v", got)
		}
	})
}

// TestSupervisorStopped: a supervisor that is stopped at the deadline does not keep the job alive, and reports a timeout
// when it continues.
func TestSupervisorStopped(t *testing.T) {
	sandboxtest.RequireJails(t)
	d, m := serve(t), mark()
	p := running(t, d.Socket, m, "--timeout", fmt.Sprint(sandboxtest.Slow(5*time.Second))) // until then, the supervisor must be stopped
	d.Signal(t, syscall.SIGSTOP)
	sandboxtest.Eventually(t, 10*time.Second, "the job is ended without its supervisor", func() bool { return len(marked(m)) == 0 })
	select {
	case <-p.Ended:
		t.Error("corral ended while its supervisor was stopped")
	default:
	}
	d.Signal(t, syscall.SIGCONT)
	if got := p.ends(t); got.code != 124 || !strings.Contains(got.stderr, "timeout") {
		t.Errorf("%+v", got)
	}
}
