package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestMain hides the machine's own installation, whose configuration corral doctor reads.
func TestMain(m *testing.M) { os.Exit(sandboxtest.WithoutInstallation(m)) }

func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		list []Status
		want string
		code int
	}{
		{[]Status{OK, OK}, Protected, 0},
		{[]Status{OK, Degraded}, Partly, 1},
		{[]Status{Degraded, Fail}, Unprotected, 2},
		{[]Status{OK, Unknown}, Unprotected, 2},
		{[]Status{Unknown, OK, Unknown}, Unexamined, 2},
		{[]Status{Unknown, Fail}, Unprotected, 2},
	} {
		var list []Check
		for _, s := range tt.list {
			list = append(list, Check{Status: s})
		}
		r := Report{Verdict: verdict(list)}
		if r.Verdict != tt.want || r.ExitCode() != tt.code {
			t.Errorf("%v: %s, %d; want %s, %d", tt.list, r.Verdict, r.ExitCode(), tt.want, tt.code)
		}
	}
}

func TestText(t *testing.T) {
	r := Report{
		Verdict: Unprotected,
		Checks: []Check{
			{"one", OK, "it is", "all is well", "nothing"},
			{"longer", Fail, "a\x1b[2J", "all is well", "mend it"},
			{"three", Unknown, "not tried", "all is well", "mend it"},
			{"four", Unknown, noJob, "all is well", "mend it"},
			{"five", Unknown, noJob, "all is well", "mend it"},
		},
		Host: Host{Kernel: "6.1", Architecture: "amd64", System: "Debian", CPUs: 2, Memory: 4 << 30},
	}
	const want = `Debian, Linux 6.1, amd64, 2 CPUs, 4GiB of memory

ok        one     all is well (it is)
FAIL      longer  should be: all is well
                  found:     a\x1b[2J
                  fix:       mend it
?         three   should be: all is well
                  found:     not tried
?         not tried, because no job runs: four, five

unprotected: 1 of 5 checks failed, 3 could not be made; do not run untrusted programs here
`
	var b strings.Builder
	if err := r.WriteText(&b, false); err != nil || b.String() != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, b.String(), want)
	}
	b.Reset()
	if err := r.WriteText(&b, true); err != nil || strings.Count(b.String(), "\x1b[0m") != 3 || strings.Contains(b.String(), "\x1b[2J") {
		t.Errorf("%v, in color: %q", err, b.String())
	}
}

func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		err            error
		detail, remedy string
	}{
		{errors.New("no\nhint: do"), "no", "do"},
		{errors.New("no"), "no", "of the row"},
		{&job.Refusal{Step: "repo", Message: "no", Hint: "do"}, "refused at step repo: no", "do"},
		{&job.Refusal{Step: "jail", Message: "no"}, "refused at step jail: no", "of the row"},
	} {
		if detail, remedy := explain(tt.err, "of the row"); detail != tt.detail || remedy != tt.remedy {
			t.Errorf("%v: %q, %q", tt.err, detail, remedy)
		}
	}
}

func TestSection(t *testing.T) {
	o := outcome{stdout: "@one\na: 1\nb:\t2\n@two\n@three\nx"}
	for name, want := range map[string]string{"one": "a: 1\nb:\t2", "two": "", "three": "x", "four": ""} {
		if got := o.section(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := o.field("one", "b"); got != "2" {
		t.Errorf("field: %q", got)
	}
}

// TestNoSupervisor: without a supervisor, the first check fails with reason and remedy, other jobs are not tried, and the
// host is examined.
func TestNoSupervisor(t *testing.T) {
	r := Examine(context.Background(), Subject{Err: errors.New("none\nhint: start one")})
	first := r.Checks[0]
	if r.ExitCode() != 2 || first.Status != Fail || first.Detail != "none" || first.Remedy != "start one" {
		t.Errorf("%s, %+v", r.Verdict, first)
	}
	rows := checks
	for i, c := range r.Checks[1:] {
		if tried := c.Status != Unknown; tried != (rows[i+1].probe == nil) {
			t.Errorf("%+v", c)
		}
	}
}

func TestPlace(t *testing.T) {
	parent := t.TempDir()
	link := filepath.Join(parent, "link")
	if err := os.Symlink(parent, link); err != nil {
		t.Fatal(err)
	}
	p, err := MakePlace(filepath.Join(parent, "absent"), link)
	if err != nil || filepath.Dir(filepath.Dir(p.Repo())) != parent {
		t.Fatalf("%v, %s", err, p.Repo())
	}
	if err := p.Remove(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(parent, "corral-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if _, err := MakePlace(filepath.Join(parent, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nowhere: %v", err)
	}
}

// examine runs corral doctor and returns its report and exit code.
func examine(t *testing.T, args ...string) (Report, int) {
	t.Helper()
	cmd := exec.Command(sandboxtest.Bin(t, "corral-front"), append([]string{"doctor", "--json"}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	cmd.Env = append(os.Environ(), "CORRAL_DOCTOR_SECRET=1", "SUDO_UID=", "SUDO_GID=")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s, %s", err, out, errs.String())
	}
	if errs.Len() > 0 {
		t.Errorf("standard error: %s", errs.String())
	}
	return r, cmd.ProcessState.ExitCode()
}

// TestReal examines this machine, which must not fail any check.
func TestReal(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Cgroups)
	ownPlaces(t)
	r, code := examine(t)
	if code != r.ExitCode() || code > 1 {
		t.Errorf("exit code %d, %s", code, r.Verdict)
	}
	rows := checks
	if len(r.Checks) != len(rows) {
		t.Fatalf("%d checks of %d", len(r.Checks), len(rows))
	}
	for i, c := range r.Checks {
		if c.Name != rows[i].name || c.Meaning == "" || c.Detail == "" || c.Remedy == "" {
			t.Errorf("%+v", c)
		}
		if c.Status == Fail || c.Status == Unknown {
			t.Errorf("%s: %s: %s", c.Status, c.Name, c.Detail)
		}
		t.Logf("%-8s %-18s %s", c.Status, c.Name, c.Detail)
	}
	if r.Host.Kernel == "" || r.Host.Cgroup == "" || r.Host.Memory == 0 || r.Host.CPUs == 0 {
		t.Errorf("%+v", r.Host)
	}
}

// ownPlaces gives the test a directory of its own for doctor's files, which must be empty at the end.
func ownPlaces(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	mountOver(t, dir, "/var/tmp", "", unix.MS_BIND, "")
	t.Cleanup(func() {
		if left, _ := filepath.Glob("/var/tmp/*"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

// TestOfSupervisor examines a running supervisor, as root, which may connect to each, and as a user.
func TestOfSupervisor(t *testing.T) {
	sandboxtest.RequireJails(t)
	ownPlaces(t)
	own := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Config: rules(t)})
	if err := os.Chmod(own.Socket, 0o600); err != nil {
		t.Fatal(err)
	}
	listed := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Args: []string{"--repo", t.TempDir()}})
	for _, tt := range []struct {
		name, socket, verdict string
	}{{"own directories", own.Socket, Partly}, {"listed directories", listed.Socket, Unexamined}} {
		t.Run(tt.name, func(t *testing.T) {
			r, code := examine(t, "--supervisor", tt.socket)
			if r.Verdict == Protected {
				r.Verdict = Partly // the machine decides
			}
			if r.Verdict != tt.verdict || code == 2 && tt.verdict == Partly {
				t.Errorf("exit code %d, %s, want %s: %+v", code, r.Verdict, tt.verdict, r.Checks[0])
			}
			for _, c := range r.Checks {
				if c.Status == Fail {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// rules returns a configuration whose rules are about requests and have a secret.
func rules(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("abcdefghijklmnop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`
network:
  allow:
    - {preset: npm, registry: npm}
    - {host: api.example.org, methods: [GET], secret: acme}
secrets:
  acme: {file: %s, env: [ACME_TOKEN]}
`, file)
}

// TestBroken: if the named supervisor is not there, the verdict is unprotected.
func TestBroken(t *testing.T) {
	r, code := examine(t, "--supervisor", "/nonexistent/corral.sock")
	if code != 2 || r.Verdict != Unprotected {
		t.Errorf("exit code %d, %s", code, r.Verdict)
	}
	c := r.Checks[0]
	if c.Status != Fail || !strings.Contains(c.Detail, "no supervisor") || !strings.Contains(c.Remedy, "corrald") {
		t.Errorf("%+v", c)
	}
}
