package sandboxtest

import (
	"strings"
	"testing"
)

// TestDaemon: a supervisor can be killed, restarted and stopped, and uses the given configuration.
func TestDaemon(t *testing.T) {
	RequireJails(t)
	Leaks(t)
	d := Daemon(t, DaemonOptions{Config: "max_jobs: 3\n"})
	first := d.PID()
	d.Kill()
	if d.Code() != 128+9 || len(Leftovers(d.Instance)) == 0 {
		t.Errorf("killed: exit code %d, left: %q", d.Code(), Leftovers(d.Instance))
	}
	d.Start(t)
	if d.PID() == first || d.served() != 2 {
		t.Errorf("process %d after %d, log: %s", d.PID(), first, d.Log())
	}
	d.Stop(t)
	if d.Code() != 0 {
		t.Errorf("exit code %d", d.Code())
	}
	d.Config = "max_job: 3\n"
	if got := record(t, func(tb testing.TB) { d.Start(tb) }); !strings.Contains(got, "the supervisor ended before it served") {
		t.Errorf("with a mistake in its configuration: %q", got)
	}
}

// TestDaemonKilled: if the test killed the supervisor, what it left behind is removed at the end of the test.
func TestDaemonKilled(t *testing.T) {
	RequireJails(t)
	var instance string
	t.Run("test", func(t *testing.T) {
		d := Daemon(t, DaemonOptions{})
		instance = d.Instance
		d.Kill()
	})
	if left := Leftovers(instance); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestDaemonFails(t *testing.T) {
	RequireJails(t)
	if code, said := DaemonFails(t, "--instance", "../x"); code != 125 || !strings.Contains(said, "instance name") {
		t.Errorf("exit code %d, %q", code, said)
	}
}
