package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/front/forward/status"
	"corral/internal/test/sandboxtest"
)

// A logHost is rsyslogd, which writes what it receives to a file.
type logHost struct {
	tcp, unix, file string
	*sandboxtest.Command
}

// rsyslog starts Debian's rsyslogd with a TCP port and a unix socket.
func rsyslog(t *testing.T) *logHost {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Program("rsyslogd"))
	dir := sandboxtest.OpenDir(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	h := &logHost{tcp: l.Addr().String(), unix: filepath.Join(dir, "log"), file: filepath.Join(dir, "received")}
	text := fmt.Sprintf(`global(workDirectory=%[1]q maxMessageSize="64k")
module(load="imuxsock" SysSock.Use="off")
module(load="imtcp")
input(type="imuxsock" Socket=%[2]q UseSpecialParser="off" ParseHostname="on" RateLimit.Interval="0")
input(type="imtcp" port=%[3]q address="127.0.0.1")
template(name="t" type="string" string="%%pri%% %%hostname%% %%app-name%% %%procid%% %%msgid%% %%structured-data%% %%msg%%\n")
action(type="omfile" file=%[4]q template="t")
`, dir, h.unix, port, h.file)
	conf := filepath.Join(dir, "rsyslog.conf")
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Command = sandboxtest.Start(t, exec.Command("rsyslogd", "-n", "-f", conf, "-i", filepath.Join(dir, "pid")))
	sandboxtest.Eventually(t, 20*time.Second, "rsyslogd listens", func() bool {
		c, err := net.Dial("tcp", h.tcp)
		if err != nil {
			return false
		}
		c.Close()
		info, err := os.Stat(h.unix)
		return err == nil && os.Chmod(h.unix, 0o666) == nil && info.Mode()&os.ModeSocket != 0
	})
	return h
}

// received returns the numbers of the records that rsyslogd has written.
func (h *logHost) received(t *testing.T) (seqs []uint64) {
	t.Helper()
	b, err := os.ReadFile(h.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		head, _, _ := strings.Cut(line, "{")
		var r struct {
			Seq      uint64
			Event    string
			Instance string
		}
		if err := json.Unmarshal([]byte(line[len(head):]), &r); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		name, _ := os.Hostname()
		if want := fmt.Sprintf("%s corral-audit %s %s [meta sequenceId=\"%d\"] ", name, r.Instance, r.Event, r.Seq); !strings.HasSuffix(head, want) {
			t.Errorf("%q, must end with %q", head, want)
		}
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

// TestForwardToRsyslog: rsyslogd gets each record once, by TCP and by its unix socket, also of supervisors that run later and while
// nothing is forwarded. The process that reads them and sends is not root.
func TestForwardToRsyslog(t *testing.T) {
	sandboxtest.RequireJails(t)
	h := rsyslog(t)
	d := daemon(t)
	config := func(to string) string {
		path := filepath.Join(d.Dir, fmt.Sprintf("forward-%d.yaml", serial.Add(1)))
		if err := os.WriteFile(path, []byte("version: 1\naudit_export: {to: \""+to+"\"}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	start := func(to string) *sandboxtest.Command {
		return sandboxtest.Start(t, exec.Command(sandboxtest.Bin(t, "corral-front"), "audit", "forward", "--config", config(to), "--state", d.State))
	}
	arrives := func(what string, count int) {
		t.Helper()
		sandboxtest.Eventually(t, 20*time.Second, what, func() bool { return len(h.received(t)) >= count })
	}
	end := func(c *sandboxtest.Command) {
		t.Helper()
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if !c.EndsWithin(time.Minute) || c.Code() != 0 {
			t.Errorf("it ended with %d: %s", c.Code(), c.Err.String())
		}
	}
	c := start("tcp://" + h.tcp)
	arrives("the start", 1)
	list := sandboxtest.Children(t, c.Process.Pid)
	if len(list) != 1 {
		t.Fatalf("%d has the children %d", c.Process.Pid, list)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", list[0]))
	if text := string(b); err != nil || strings.Contains(text, "\nUid:\t0\t") || !strings.Contains(text, "\nCapEff:\t0000000000000000\n") ||
		!strings.Contains(text, "\nNoNewPrivs:\t1\n") || !strings.Contains(text, "\nGroups:\t \n") {
		t.Errorf("the process that sends: %v\n%s", err, text)
	}
	if code := sandboxtest.Start(t, exec.Command(sandboxtest.Bin(t, "corral-front"), "audit", "forward", "--config", config("tcp://"+h.tcp), "--state", d.State)); !code.EndsWithin(time.Minute) ||
		!strings.Contains(code.Err.String(), "another process forwards") {
		t.Errorf("a second forwarder: %d %s", code.Code(), code.Err.String())
	}
	d.Stop(t)
	d.Start(t)
	arrives("the end and the next start", 3)
	end(c)
	d.Stop(t)
	d.Start(t)
	c = start("unix://" + h.unix)
	arrives("what was recorded meanwhile, and no record twice", 5)
	running := func() bool {
		s, ok := status.Read(filepath.Join(d.State, "audit-export", "status"))
		return ok && s.Running
	}
	if !running() {
		t.Error("it does not say that it runs")
	}
	if got := fmt.Sprint(h.received(t)); got != "[1 2 3 4 5]" {
		t.Errorf("records %s", got)
	}
	if s, ok := status.Read(filepath.Join(d.State, "audit-export", "status")); !ok || s.Seq != 5 || s.Dropped != 0 {
		t.Errorf("%+v, %v", s, ok)
	}
	// Without its opener the child ends.
	pid := sandboxtest.Children(t, c.Process.Pid)[0]
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, 20*time.Second, "the child ends", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	sandboxtest.Eventually(t, 20*time.Second, "a forwarder that was killed does not look as if it ran", func() bool { return !running() })
}

// TestForwardRefuses: without a receiver in the configuration, or with files that it must not use, nothing is forwarded.
func TestForwardRefuses(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := daemon(t)
	dir := t.TempDir()
	open := filepath.Join(dir, "headers")
	if err := errors.Join(os.WriteFile(open, []byte("Authorization: Bearer hunter2"), 0o644), os.Chmod(open, 0o644)); err != nil {
		t.Fatal(err)
	}
	for section, want := range map[string]string{
		"": "set `audit_export: {to:",
		"audit_export: {to: \"https://a.example.org\", headers_file: " + open + "}\n": "chmod o-rwx",
		"audit_export: {to: \"tls://a.example.org:1\", ca: " + open + "}\n":           "has no certificate in PEM",
		"audit_export: {ca: /x}\n": "missing `to`",
	} {
		path := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(path, []byte("version: 1\n"+section), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(sandboxtest.Bin(t, "corral-front"), "audit", "forward", "--config", path, "--state", d.State).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) || strings.Contains(string(out), "hunter2") {
			t.Errorf("%q: %v: %s, want %q", section, err, out, want)
		}
	}
}
