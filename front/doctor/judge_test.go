package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/config"
	"corral/isolate/sessions"
	"corral/isolate/trust"
	"corral/job"
)

// said returns the outcome of a script that wrote these sections.
func said(sections map[string]string) outcome {
	var b strings.Builder
	for name, text := range sections {
		b.WriteString("@" + name + "\n" + text + "\n")
	}
	return outcome{stdout: b.String()}
}

const goodMap = "         0 1879048192          1\n      1000 1879048193        512"

// judged is a row of a table of tests for one judge.
type judged struct {
	name string
	e    evidence
	want Status
	part string // part of the detail
}

func try(t *testing.T, judge func(*evidence) (Status, string), rows []judged) {
	t.Helper()
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			if tt.e.host == nil {
				tt.e.host = &host{}
			}
			status, detail := judge(&tt.e)
			if status != tt.want || !strings.Contains(detail, tt.part) || detail == "" {
				t.Errorf("%s: %q, want %s with %q", status, detail, tt.want, tt.part)
			}
		})
	}
}

func TestSession(t *testing.T) {
	place, written := Place{dir: t.TempDir()}, Place{dir: t.TempDir()}
	for _, p := range []Place{place, written} {
		if err := os.MkdirAll(p.Repo(), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(written.Repo(), "layered"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	full := job.Result{Status: job.Failure, ExitCode: 1, Limit: job.LimitDisk}
	try(t, judgeSession, []judged{
		{"walled", evidence{place: place, outcome: outcome{stdout: "here\n", result: full}}, OK, "32MiB"},
		{"written through", evidence{place: written, outcome: outcome{stdout: "here\n", result: full}}, Fail, "in the repository"},
		{"no wall", evidence{place: place, outcome: outcome{stdout: "here\n", result: job.Result{Status: job.Success}}}, Fail, "100 MB"},
		{"not writable", evidence{place: place, outcome: outcome{result: job.Result{Status: job.Failure, ExitCode: 1}}}, Degraded, "could not write"},
	})
}

func TestSimple(t *testing.T) {
	try(t, judgeSimple, []judged{
		{"answers", evidence{outcome: outcome{stdout: "ready\n"}}, OK, ""},
		{"is silent", evidence{outcome: outcome{stderr: "sh: no"}}, Fail, "sh: no"},
	})
}

func TestIdentity(t *testing.T) {
	try(t, judgeIdentity, []judged{
		{"nobody", evidence{outcome: said(map[string]string{"id": "1003", "uid_map": goodMap})}, OK, "user 1003, another"},
		{"root inside", evidence{outcome: said(map[string]string{"id": "0", "uid_map": goodMap})}, Fail, "root"},
		{"root outside", evidence{outcome: said(map[string]string{"id": "1000", "uid_map": "1000 0 1"})}, Fail, "root"},
		{"an account", evidence{outcome: said(map[string]string{"id": "1000", "uid_map": "0 0 4294967295"})}, Fail, "of the host too"},
		{"no map", evidence{outcome: said(map[string]string{"id": "1000", "uid_map": ""})}, Fail, "map"},
		{"not in it", evidence{outcome: said(map[string]string{"id": "999", "uid_map": goodMap})}, Fail, "map"},
		{"nothing", evidence{}, Fail, "user"},
	})
}

func TestRange(t *testing.T) {
	from := func(users, text string) evidence {
		return evidence{facts: map[string]fact{factUsers: {true, users}}, host: &host{subuid: ranges(text)}}
	}
	with := func(text string) evidence { return from("1879048193+512", text) }
	try(t, judgeRange, []judged{
		{"no file", with(""), OK, "1879048193+512"},
		{"another range", with("al:100000:65536\nbo:1879048705:9\n"), OK, ""},
		{"up to it", with("al:1879048000:193\n"), OK, ""},
		{"into it", with("al:1879048000:194\n"), Degraded, "user al"},
		{"around it", with("# no\nal:0:4294967295\n"), Degraded, "user al"},
		{"accounts", from("1000+9", ""), Fail, "accounts"},
		{"no range", from("", ""), Fail, "does not report"},
	})
}

func TestFiles(t *testing.T) {
	p := Place{t.TempDir()}
	if err := errors.Join(os.Mkdir(p.Repo(), 0o755), os.WriteFile(filepath.Join(p.Repo(), "made"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	good := said(map[string]string{"id": "1003", "owner": "1003", "owned": "owned"})
	try(t, judgeFiles, []judged{
		{"the owner's", evidence{outcome: good, place: p}, OK, ""},
		{"nothing made", evidence{outcome: good, place: Place{t.TempDir()}}, Fail, "no such file"},
		{"another's inside", evidence{outcome: said(map[string]string{"id": "1003", "owner": "65534", "owned": "owned"}), place: p}, Fail, "65534"},
		{"not to be read", evidence{outcome: said(map[string]string{"id": "1003", "owner": "1003"}), place: p}, Fail, `contains ""`},
	})
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(p.Repo(), "made"), 70000, 70000); err != nil {
			t.Fatal(err)
		}
		try(t, judgeFiles, []judged{{"another's outside", evidence{outcome: good, place: p}, Fail, "belongs to user 70000"}})
	}
}

func TestIDMap(t *testing.T) {
	line := func(options string) outcome {
		return said(map[string]string{"mountinfo": "1 2 3:4 / / ro - tmpfs tmpfs rw\n5 6 7:8 /x /p/repo " + options + " - ext4 /dev/vda rw"})
	}
	p := Place{"/p"}
	try(t, judgeIDMap, []judged{
		{"mapped", evidence{outcome: line("rw,nosuid,nodev,relatime,idmapped"), place: p}, OK, "ext4"},
		{"not mapped", evidence{outcome: line("rw,nosuid"), place: p}, Fail, "no id map"},
		{"not there", evidence{outcome: line("rw,idmapped"), place: Place{"/q"}}, Fail, "not a mount"},
	})
}

func TestNamespaces(t *testing.T) {
	own, theirs := map[string]string{}, map[string]string{}
	for _, k := range kinds {
		own[k], theirs[k] = k+":[1]", k+":[2]"
	}
	text := func(change string, to string) outcome {
		var b strings.Builder
		for _, k := range kinds {
			v := theirs[k]
			if k == change {
				v = to
			}
			b.WriteString(k + ": " + v + "\n")
		}
		return said(map[string]string{"ns": b.String()})
	}
	h := &host{namespaces: own}
	rows := []judged{{"its own", evidence{host: h, outcome: text("", "")}, OK, "user"}, {"silent", evidence{host: h}, Fail, "cgroup, ipc"}}
	for _, k := range kinds {
		rows = append(rows, judged{k, evidence{host: h, outcome: text(k, own[k])}, Fail, "shared with the host: " + k})
	}
	rows = append(rows, judged{"unread", evidence{host: h, outcome: text("net", "")}, Fail, "net"})
	try(t, judgeNamespaces, rows)
}

func TestPrivileges(t *testing.T) {
	const none = "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n" +
		"CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2"
	status := func(old, with string) evidence {
		return evidence{outcome: said(map[string]string{"status": strings.Replace(none, old, with, 1)})}
	}
	try(t, judgePrivileges, []judged{
		{"none", status("", ""), OK, ""},
		{"bounding", status("CapBnd:\t0", "CapBnd:\t8"), Fail, "CapBnd 8"},
		{"no_new_privs", status("Privs:\t1", "Privs:\t0"), Fail, "NoNewPrivs 0"},
		{"silent", evidence{}, Fail, "CapInh"},
	})
	filter := func(mode, unshare string) evidence {
		return evidence{outcome: said(map[string]string{"status": "Seccomp:\t" + mode, "unshare": unshare})}
	}
	try(t, judgeFilter, []judged{
		{"filter", filter("2", "unshare: unshare failed: Operation not permitted"), OK, "refused"},
		{"filter, no unshare", filter("2", ""), OK, "mode 2"},
		{"no filter", filter("0", ""), Fail, "mode"},
		{"a namespace", filter("2", "made"), Fail, "namespace"},
	})
}

func TestProcesses(t *testing.T) {
	list := func(n int) evidence {
		return evidence{outcome: said(map[string]string{"processes": strings.Repeat("/proc/1\n", n)})}
	}
	try(t, judgeProcesses, []judged{{"few", list(3), OK, "3"}, {"many", list(40), Fail, "40"}, {"none", list(0), Fail, "0"}})
}

func TestNetwork(t *testing.T) {
	const head = "Inter-|   Receive\n face |bytes    packets\n"
	seen := func(devices, sockets string) evidence {
		return evidence{outcome: said(map[string]string{"devices": head + devices, "sockets": sockets})}
	}
	try(t, judgeNetwork, []judged{
		{"loopback", seen("    lo:       0       0", "Num RefCount\n"), OK, "lo"},
		{"another", seen("    lo: 0\n  eth0: 1", ""), Fail, "lo eth0"},
		{"none", seen("", ""), Fail, "interfaces"},
		{"abstract socket", seen("    lo: 0", "0: 2 0 10000 1 1 7 @"+abstractName()), Fail, "abstract"},
	})
	try(t, judgeServices, []judged{
		{"refused", evidence{outcome: outcome{stdout: "/bin/bash\n"}}, OK, "refused"},
		{"reached", evidence{outcome: outcome{stdout: "/bin/bash\nreached\n"}}, Fail, "connected"},
		{"visited", evidence{outcome: outcome{reached: true}}, Fail, "connected"},
		{"no program", evidence{outcome: outcome{stdout: "untried\n"}}, OK, "not tried"},
	})
}

const placeholder = "corral-ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// environment returns the outcome of a probe whose job has more variables than its request.
func environment(more ...string) evidence {
	return evidence{outcome: outcome{env: []string{"A=1"}, stdout: "A=1\n" + strings.Join(more, "\n") + "\n"}}
}

// TestVariables compares the variables that doctor expects with those that a jail with an authority has, and the form of a placeholder.
func TestVariables(t *testing.T) {
	if got := new(trust.Files).Env(); !slices.Equal(got, trusted) {
		t.Errorf("jobs have %q, doctor expects %q", got, trusted)
	}
	if config.SecretVariable != secretVariable || !isPlaceholder().MatchString(sessions.NewPlaceholder()) {
		t.Errorf("doctor expects %s=%v", secretVariable, isPlaceholder())
	}
}

func TestAccess(t *testing.T) {
	try(t, judgeNothing, []judged{
		{"nothing", evidence{}, OK, ""},
		{"something", evidence{outcome: outcome{stdout: "sees /root\nsees /boot\n"}}, Fail, "sees /root, sees /boot"},
		{"no answer", evidence{outcome: outcome{result: job.Result{ExitCode: 127}, stderr: "sh: no"}}, Fail, "sh: no"},
	})
	try(t, judgeEnvironment, []judged{
		{"given", evidence{outcome: outcome{env: []string{"A=1", "B=2"}, stdout: "A=1\nB=2\n"}}, OK, "2"},
		{"more", evidence{outcome: outcome{env: []string{"A=1"}, stdout: "A=1\nTOKEN=secret\n"}}, Fail, "A, TOKEN"},
		{"none", evidence{outcome: outcome{env: []string{"A=1"}}}, Fail, ""},
		{"corral's", environment(slices.Concat([]string{secretVariable + "=" + placeholder, "ACME_TOKEN=" + placeholder}, trusted)...), OK, "7 of corral"},
		{"an authority of the caller", environment("SSL_CERT_FILE=/home/ada/ca.pem"), Fail, "SSL_CERT_FILE"},
		{"a secret", environment(secretVariable + "=hunter2hunter2hunter2hunter2hunter"), Fail, secretVariable},
		{"a secret beside the placeholder", environment(secretVariable+"="+placeholder, "ACME_TOKEN=hunter2"), Fail, "ACME_TOKEN"},
		{"a placeholder without corral's", environment("ACME_TOKEN=" + placeholder), Fail, "ACME_TOKEN"},
		{"changed", evidence{outcome: outcome{env: []string{"A=1"}, stdout: "A=2\n"}}, Fail, "A"},
		{"twice", environment("A=1"), Fail, "A, A"},
	})
	try(t, judgeSensitive, []judged{
		{"reported", evidence{outcome: outcome{result: job.Result{Sensitive: []string{".git/hooks/x"}}}}, OK, ".git/hooks/x"},
		{"not reported", evidence{outcome: outcome{result: job.Result{Sensitive: []string{".envrc"}}}}, Fail, ".envrc"},
	})
}

func result(r job.Result) evidence { return evidence{outcome: outcome{result: r}} }

func TestLimits(t *testing.T) {
	try(t, judgeMemory, []judged{
		{"ended", result(job.Result{Status: job.Failure, Limit: job.LimitMemory}), OK, "32MiB"},
		{"got it", result(job.Result{Status: job.Success}), Fail, "used 100 MB"},
		{"not named", result(job.Result{Status: job.Failure, Signal: 9}), Degraded, "signal 9"},
	})
	try(t, judgePIDs, []judged{
		{"stopped", evidence{outcome: outcome{stdout: "1\n2\n14\n"}}, OK, "14 of 40"},
		{"all", evidence{outcome: outcome{stdout: "1\n40\n"}}, Fail, "40 of 40"},
		{"none", evidence{outcome: outcome{stderr: "sh: cannot fork"}}, Degraded, "cannot fork"},
	})
	cpu := func(status job.Status, used time.Duration) evidence {
		return result(job.Result{Status: status, Usage: job.Usage{CPU: used, Wall: time.Second}})
	}
	try(t, judgeCPU, []judged{
		{"a fifth", cpu(job.Timeout, 210*time.Millisecond), OK, "21 %"},
		{"all", cpu(job.Timeout, time.Second), Fail, "100 %"},
		{"unknown", cpu(job.Timeout, -1), Degraded, "not known"},
		{"ended", cpu(job.Success, time.Millisecond), Fail, "success"},
	})
	deadline := func(status job.Status, took time.Duration) evidence {
		return evidence{outcome: outcome{result: job.Result{Status: status}, took: took}}
	}
	try(t, judgeDeadline, []judged{
		{"prompt", deadline(job.Timeout, 310*time.Millisecond), OK, "310 ms"},
		{"late", deadline(job.Timeout, promptly+time.Second), Degraded, "4s"},
		{"lives on", deadline(job.Timeout, time.Minute), Fail, "lived for"},
		{"no deadline", deadline(job.Success, time.Millisecond), Fail, "success"},
	})
	try(t, judgeTmp, []judged{
		{"bounded", evidence{outcome: outcome{stdout: "1048576\n"}}, OK, "1048576"},
		{"all", evidence{outcome: outcome{stdout: "8000000\n"}}, Fail, "8000000"},
		{"no answer", evidence{outcome: outcome{stderr: "no stat"}}, Degraded, "no stat"},
	})
	try(t, judgeDisk, []judged{
		{"ended", result(job.Result{Status: job.Failure, Limit: job.LimitDisk}), OK, "1MiB"},
		{"all", result(job.Result{Status: job.Success}), Fail, "wrote 16 MB"},
		{"not named", result(job.Result{Status: job.Timeout}), Degraded, "timeout"},
	})
	start := func(status job.Status, times ...time.Duration) evidence {
		return evidence{outcome: outcome{result: job.Result{Status: status}, times: times}}
	}
	try(t, judgeStart, []judged{
		{"quick", start(job.Success, time.Millisecond, 2*time.Millisecond, time.Second), OK, "2.0 ms"},
		{"slow", start(job.Success, time.Second), Degraded, "1000.0 ms"},
		{"not there", start(job.Failure, time.Millisecond), Fail, "failure"},
		{"never", start(job.Success), Fail, ""},
	})
}

func TestHost(t *testing.T) {
	at := func(h host) evidence { return evidence{host: &h} }
	try(t, judgeLandlock, []judged{{"there", at(host{landlock: 2}), OK, "ABI 2"}, {"not there", at(host{}), Degraded, "none"}})
	try(t, judgeKernel, []judged{
		{"new", at(host{kernel: "6.18.4-fc"}), OK, ""},
		{"just", at(host{kernel: "6.1.0-9-amd64"}), OK, ""},
		{"old", at(host{kernel: "5.15.0"}), Degraded, "CVE"},
		{"too old", at(host{kernel: "5.10.0-30-amd64"}), Fail, "5.15"},
		{"later", at(host{kernel: "10.0"}), OK, ""},
		{"odd", at(host{kernel: "unknown"}), Degraded, "not understood"},
	})
	try(t, judgeFlaws, []judged{
		{"none", at(host{flaws: map[string]string{"mds": "Not affected", "tsa": "Mitigation: x"}}), OK, "2 known"},
		{"two", at(host{flaws: map[string]string{"mds": "Vulnerable", "l1tf": "Vulnerable: SMT"}}), Degraded, "open: l1tf, mds"},
		{"off", at(host{cmdline: "quiet mitigations=off"}), Degraded, "mitigations=off"},
		{"auto", at(host{cmdline: "mitigations=auto"}), OK, ""},
	})
	crash := func(pattern, limit string) evidence {
		return evidence{host: &host{core: pattern}, outcome: said(map[string]string{"limits": "Max core file size         " + limit + "  unlimited   bytes"})}
	}
	try(t, judgeCrashes, []judged{
		{"a file", crash("core", "0"), OK, "core"},
		{"nothing", crash("", "0"), OK, ""},
		{"a program", crash("|/usr/lib/systemd/systemd-coredump %P", "0"), Degraded, "systemd-coredump"},
		{"a socket", crash("@/run/coredump", "unlimited"), Degraded, "@/run"},
		{"a program, not for jobs", crash("|/bin/x", "1"), OK, "does not apply"},
	})
	try(t, judgeHardening, []judged{
		{"good", at(host{sysctls: map[string]string{"fs.protected_symlinks": "1"}}), OK, "nothing"},
		{"better", at(host{sysctls: map[string]string{"fs.protected_symlinks": "0", "kernel.kptr_restrict": ""}}), OK, "fs.protected_symlinks=1"},
	})
}

func TestFacts(t *testing.T) {
	with := func(h host, facts map[string]fact) evidence { return evidence{host: &h, facts: facts} }
	yes, no := fact{present: true}, fact{detail: "frozen"}
	layout := func(name string) fact { return fact{true, name} }
	try(t, judgeCgroup, []judged{
		{"v2", with(host{}, map[string]fact{factLayout: layout("v2"), factKill: yes}), OK, "v2"},
		{"hybrid", with(host{}, map[string]fact{factLayout: layout("hybrid"), factKill: yes, "x": no}), OK, "missing: x"},
		{"v1", with(host{}, map[string]fact{factLayout: layout("v1"), factKill: yes}), Degraded, "v1"},
		{"no kill", with(host{}, map[string]fact{factLayout: layout("v2"), factKill: no}), Degraded, "frozen"},
		{"silent", with(host{}, nil), Degraded, "does not report"},
	})
	try(t, judgeSwap, []judged{
		{"none", with(host{}, nil), OK, "none"},
		{"accounted", with(host{swap: true}, map[string]fact{factSwap: yes}), OK, "accounted"},
		{"not accounted", with(host{swap: true}, map[string]fact{factSwap: no}), Degraded, "frozen"},
		{"silent", with(host{swap: true}, nil), Degraded, "not accounted"},
	})
}

func TestExposed(t *testing.T) {
	with := func(facts map[string]fact) evidence { return evidence{facts: facts} }
	try(t, judgeExposed, []judged{
		{"nothing", with(map[string]fact{factExpose: {true, ""}}), OK, "no socket"},
		{"a socket", with(map[string]fact{factExpose: {true, "/opt/x is a socket"}}), Degraded, "/opt/x"},
		{"silent", with(nil), Degraded, "does not report"},
	})
}

func TestOpenFiles(t *testing.T) {
	with := func(most, need string) evidence {
		return evidence{host: &host{fileMax: most}, facts: map[string]fact{factFiles: {true, need}}}
	}
	try(t, judgeOpenFiles, []judged{
		{"more", with("9223372036854775807", "2154496"), OK, "2154496"},
		{"as many", with("100", "100"), OK, "100"},
		{"fewer", with("99", "100"), Degraded, "fs.file-max is 99, less than 100"},
		{"silent kernel", with("", "100"), Degraded, "not known"},
		{"no number", with("many", "100"), Degraded, "not known"},
		{"silent supervisor", evidence{host: &host{fileMax: "100"}}, Degraded, "does not report"},
		{"odd supervisor", with("100", "-1"), Degraded, "does not report"},
	})
}

func TestAudit(t *testing.T) {
	with := func(facts map[string]fact) evidence { return evidence{facts: facts} }
	try(t, judgeAudit, []judged{
		{"none", with(map[string]fact{factAudit: {true, ""}}), OK, "no file"},
		{"one", with(map[string]fact{factAudit: {true, "audit-1.jsonl"}}), OK, "audit-1.jsonl is removed"},
		{"silent supervisor", with(nil), Degraded, "does not report"},
	})
}

func TestErrors(t *testing.T) {
	with := func(facts map[string]fact) evidence { return evidence{facts: facts} }
	try(t, judgeErrors, []judged{
		{"none", with(map[string]fact{factErrors: {true, "0"}}), OK, "none"},
		{"some", with(map[string]fact{factErrors: {true, "3"}}), Degraded, "3 since the supervisor started"},
		{"silent supervisor", with(nil), Degraded, "does not report"},
	})
}

// TestRows: each row of the table is complete, and names are unique.
func TestRows(t *testing.T) {
	var names []string
	for _, c := range checks {
		if c.name == "" || c.meaning == "" || c.remedy == "" || c.judge == nil || slices.Contains(names, c.name) {
			t.Errorf("row %+v", c)
		}
		if p := c.probe; p != nil && (p.script == "") == (p.args == nil) {
			t.Errorf("%s: a probe has a script or a program", c.name)
		}
		names = append(names, c.name)
	}
	if checks[0].probe != simple {
		t.Error("the first row must have the job that does nothing but run")
	}
}

// TestAgain: a machine that did not run for a while is no machine without limits.
func TestAgain(t *testing.T) {
	cpu := func(used, wall time.Duration) *outcome {
		return &outcome{result: job.Result{Status: job.Timeout, Usage: job.Usage{CPU: used, Wall: wall}}}
	}
	for name, c := range map[string]struct {
		first, again *outcome
		want         Status
	}{
		"enforced":              {cpu(130*time.Millisecond, 600*time.Millisecond), nil, OK},
		"enforced in the end":   {cpu(300*time.Millisecond, 600*time.Millisecond), cpu(1100*time.Millisecond, 5*time.Second), OK},
		"not enforced":          {cpu(600*time.Millisecond, 600*time.Millisecond), cpu(5*time.Second, 5*time.Second), Fail},
		"it cannot be repeated": {cpu(600*time.Millisecond, 600*time.Millisecond), &outcome{err: errors.New("refused")}, Fail},
	} {
		x := &examination{done: map[*probe]*outcome{computing: c.first, computing.again: c.again}}
		if got := x.check(t.Context(), &check{probe: computing, judge: judgeCPU}); got.Status != c.want {
			t.Errorf("%s: %v, %s", name, got.Status, got.Detail)
		}
	}
}
