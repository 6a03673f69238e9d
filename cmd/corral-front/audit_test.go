package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/job"
	"corral/store/audit"
)

// newAudit creates an audit log with a few jobs in a state directory.
func newAudit(t testing.TB, state string) *audit.Log {
	t.Helper()
	l, err := audit.Open(filepath.Join(state, "audit"), audit.Options{Instance: "main"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.Instance(audit.Started, "main", 7))
	for i := range 3 {
		who := audit.Who{Instance: "main", Job: fmt.Sprintf("job-%d", i+1), Peer: 1000}
		of, err := l.Decided(&audit.Decision{
			Who: who, Repo: "/srv/a b", Profile: "default", Claim: job.Claim{Tool: "run", Principal: "\x1b[31muser=x\u202e"},
		})
		must(err)
		must(l.Finished(&audit.Ending{Who: who, Of: of, Result: job.Result{Status: job.Failure, Signal: 9, Limit: "memory", Usage: job.Usage{Wall: time.Second}}}))
	}
	must(l.Denied(audit.Who{Instance: "main", Peer: 1000}, job.Claim{Reason: "no\nfaked line"}))
	return l
}

// newNetworkAudit creates an audit log of jobs that reached hosts, were denied some, and had no network access.
func newNetworkAudit(t testing.TB, state string) *audit.Log {
	t.Helper()
	l, err := audit.Open(filepath.Join(state, "audit"), audit.Options{Instance: "main"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	for n, reached := range []string{
		"", `{"connections":3,"bytes_up":10,"bytes_down":2000}`,
		`{"denied":6,"denials":[{"name":"example.org","port":443,"why":"no rule allows it","allow":"host: example.org","count":4},` +
			`{"name":"\u202eevil\u001b","why":"no rule allows it","count":1}]}`,
		`{"connections":3,"deni…`,
	} {
		who := audit.Who{Instance: "main", Job: fmt.Sprintf("job-%d", n+1), Peer: uint32(1000 + n)}
		d := &audit.Decision{
			Who: who, Repo: "/srv/a b", Profile: "default", Claim: job.Claim{Tool: "run", Principal: "\x1b[31muser=x\u202e", Repo: fmt.Sprint("r", n)},
		}
		of, err := l.Decided(d)
		if err == nil {
			err = l.Finished(&audit.Ending{Who: who, Of: of, Result: job.Result{Status: job.Success}, Reached: reached})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// TestNetworkLogFollow: corral network log -f prints jobs that end while it runs.
func TestNetworkLogFollow(t *testing.T) {
	state := t.TempDir()
	l := newNetworkAudit(t, state)
	who := audit.Who{Instance: "main", Job: "job-late", Peer: 1000}
	of, err := l.Decided(&audit.Decision{Who: who, Repo: "/srv/late", Profile: "default"})
	if err != nil {
		t.Fatal(err)
	}
	c := sandboxtest.Start(t, exec.Command(sandboxtest.Bin(t, "corral-front"), "network", "log", "-f", "--state", state))
	sandboxtest.Eventually(t, time.Minute, "the jobs before", func() bool { return strings.Contains(c.Out.String(), "job-4 ") })
	if err := l.Finished(&audit.Ending{Who: who, Of: of, Result: job.Result{Status: job.Success}, Reached: `{"connections":9}`}); err != nil {
		t.Fatal(err)
	}
	want := "job-late uid=1000 repo=/srv/late: 9 connections, 0 bytes up, 0 down, 0 denied\n"
	sandboxtest.Eventually(t, time.Minute, "the job that ended", func() bool { return strings.HasSuffix(c.Out.String(), want) })
	_ = c.Process.Kill()
	<-c.Ended
}

func auditReport(t testing.TB, state string) *audit.Report {
	t.Helper()
	r, err := audit.OpenReader(filepath.Join(state, "audit"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	report, err := r.Verify()
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestAuditFollow checks that records written after the command was started are printed.
func TestAuditFollow(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	state := t.TempDir()
	l := newAudit(t, state)
	cmd := exec.Command(sandboxtest.Bin(t, "corral-front"), "audit", "tail", "--state", state, "-n", "1", "--follow")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	buf := make([]byte, 4096)
	for _, want := range []string{" 8 denied main", " 9 ended main"} {
		n, err := out.Read(buf)
		if err != nil || !strings.Contains(string(buf[:n]), want) {
			t.Fatalf("%q, %v", buf[:n], err)
		}
		if err := l.Instance(audit.Ended, "main", 7); err != nil {
			t.Fatal(err)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil || strings.Contains(string(status), "\nUid:\t0\t") || !strings.Contains(string(status), "\nCapEff:\t0000000000000000") {
		t.Errorf("it parses the log as root: %v", err)
	}
}
