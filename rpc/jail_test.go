package rpc

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	frontend "corral/isolate/client"
	"corral/job"
	"corral/policy"
	"corral/policy/runtimes"
)

// jailed returns a server whose commands run in jails of a supervisor started for the test. Dir is its repository.
func jailed(t *testing.T) *Server {
	t.Helper()
	sandboxtest.RequireJails(t)
	repo := t.TempDir()
	socket := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Args: []string{"--repo", repo}}).Socket
	c, err := frontend.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	rules := policy.Rules{
		Enabled: true, Rootfs: "host", Environ: []string{"SECRET=of the server", "TOKEN=allowed"},
		// Without a default, machines with little memory would refuse the jobs.
		Repos: []policy.Repo{{ID: "app", Path: repo, Env: []string{"TOKEN"}, Defaults: job.Limits{Memory: 256 << 20}}},
	}
	p, err := policy.New(rules, runtimes.Find(runtimes.Places{Never: []string{repo}}))
	if err != nil {
		t.Fatal(err)
	}
	return &Server{Access: Access{Engine: &job.Engine{Policy: p, Runner: c, Auditor: c}, Repos: []Repo{{ID: "app", Path: repo}}}, Dir: repo}
}

// TestJail checks the results and errors of real commands.
func TestJail(t *testing.T) {
	s := jailed(t)
	p := initialized(t, s)
	put := func(name, content string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(s.Dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	put("plain", "text", 0o644)
	put("script", "#!/bin/sh\necho script $1\n", 0o755)
	put("noprogram", "nothing", 0o755)
	for _, err := range []error{os.Mkdir(filepath.Join(s.Dir, "sub"), 0o755), os.Symlink("/", filepath.Join(s.Dir, "out"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		params string
		code   int
		stdout string
		fault  string // in place of a result
	}{
		{`{"command":["/bin/echo","a b",""]}`, 0, "a b \n", ""},
		{`{"command":["./script","x"]}`, 0, "script x\n", ""},
		{`{"command":["sh","-c","exit 300"]}`, 44, "", ""},
		{`{"command":["sh","-c","kill -TERM $$"]}`, 143, "", ""},
		{`{"command":["sh","-c","echo part; sleep 100"],"timeoutMs":300}`, 124, "part\n", ""},
		{`{"command":["sh","-c","sleep 100 & echo x"]}`, 0, "x\n", ""},
		{`{"command":["cat"]}`, 0, "", ""},
		{`{"command":["pwd"],"cwd":"sub"}`, 0, s.Dir + "/sub\n", ""},
		{`{"command":["sh","-c","echo ${SECRET-unset} $TOKEN $A ${HOME-unset}"],"env":{"A":"b c","HOME":null}}`, 0, "unset allowed b c unset\n", ""},
		{`{"command":["sh","-c","echo x >f; echo $?"]}`, 0, "2\n", ""},
		{`{"command":["sh","-c","echo x >f; cat f; echo y >/tmp/f; cat /tmp/f; rm f"],"sandboxPolicy":{"type":"workspaceWrite"}}`, 0, "x\ny\n", ""},
		{`{"command":["head","-c","3000000","/dev/zero"],"outputBytesCap":10}`, 0, strings.Repeat("\x00", 10), ""},
		{`{"command":["printf","\\377\\376a\\342\\202"]}`, 0, "\uFFFD\uFFFDa\uFFFD", ""},
		{`{"command":["no-such-program"]}`, 0, "", "-32603 failed to spawn command: No such file or directory (os error 2)"},
		{`{"command":["./no-such-program"],"tty":true,"processId":"x"}`, 0, "", "-32603 failed to spawn command: No such file or directory (os error 2)"},
		{`{"command":["./plain"]}`, 0, "", "-32603 failed to spawn command: Permission denied (os error 13)"},
		{`{"command":["./sub"]}`, 0, "", "-32603 failed to spawn command: Permission denied (os error 13)"},
		{`{"command":["./noprogram"]}`, 0, "", "-32603 failed to spawn command: Exec format error (os error 8)"},
		{`{"command":["./plain/x"]}`, 0, "", "-32603 failed to spawn command: Not a directory (os error 20)"},
		{`{"command":["true"],"cwd":"nowhere"}`, 0, "", "-32603 failed to spawn command: No such file or directory (os error 2)"},
		{`{"command":["true"],"cwd":"plain"}`, 0, "", "-32603 failed to spawn command: Not a directory (os error 20)"},
		{`{"command":["true","a\u0000"]}`, 0, "", "-32603 failed to spawn command: nul byte found in provided data"},
		{`{"command":["true","` + strings.Repeat("x", 200<<10) + `"]}`, 0, "", "-32603 failed to spawn command: Argument list too long (os error 7)"},
		{`{"command":["true"],"cwd":"out/etc"}`, 0, "", `-32600 command/exec denied: Relative CWD "out/etc" escapes repository root`},
		{`{"command":["true"],"cwd":"/etc"}`, 0, "", `-32600 cwd "/etc" is not in a served repository: use a directory in "` + s.Dir + `"`},
	} {
		m := p.answer(p.ask("command/exec", tt.params))
		switch {
		case tt.fault != "":
			if m.Error == nil || fmt.Sprint(m.Error.Code, " ", m.Error.Message) != tt.fault {
				t.Errorf("%.100s: %.300s, want %s", tt.params, m.raw, tt.fault)
			}
		case m.Error != nil:
			t.Errorf("%.100s: %s", tt.params, m.raw)
		default:
			if r := p.result(string(m.ID)); *r.ExitCode != tt.code || *r.Stdout != tt.stdout {
				t.Errorf("%.100s: exit code %d, %.300q, %.300q", tt.params, *r.ExitCode, *r.Stdout, *r.Stderr)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "f")); err == nil {
		t.Error("a read-only job created f")
	}
}

// TestJailTerminal checks that a terminal has the requested size, is resized, and forwards keys.
func TestJailTerminal(t *testing.T) {
	p := initialized(t, jailed(t))
	write := func(id, keys string) {
		t.Helper()
		p.must("command/exec/write", fmt.Sprintf(`{"processId":%q,"deltaBase64":%q}`, id, base64.StdEncoding.EncodeToString([]byte(keys))))
	}
	shows := func(id, want string) {
		t.Helper()
		p.until(fmt.Sprintf("%q on the screen", want), func(arrival) bool {
			out, _, _ := p.output(id, "stdout")
			return strings.Contains(out, want)
		})
	}
	// The size is changed before the terminal exists, and applies once it does.
	exec := p.ask("command/exec", `{"command":["sh","-c","trap 'echo INT; exit 7' INT; echo $TERM ready; while read l; do stty size; echo got $l; done"],"processId":"sh","tty":true}`)
	p.must("command/exec/resize", `{"processId":"sh","size":{"rows":30,"cols":100}}`)
	shows("sh", "xterm-256color ready\r\n")
	write("sh", "a\n")
	shows("sh", "30 100\r\ngot a\r\n")
	p.must("command/exec/resize", `{"processId":"sh","size":{"rows":31,"cols":101}}`)
	write("sh", "b\n")
	shows("sh", "31 101\r\ngot b\r\n")
	write("sh", "\x03") // the shell is in its read or about to enter it
	shows("sh", "INT\r\n")
	if r := p.result(exec); *r.ExitCode != 7 || *r.Stdout != "" || *r.Stderr != "" {
		t.Errorf("%+v", r)
	}

	// The default size; the end of input, within a line and at its beginning; a signal.
	for n, tt := range []struct {
		command, keys, want string
		code                int
	}{
		{`["stty","size"]`, "", "24 80\r\n", 0},
		{`["sh","-c","cat >/tmp/f; wc -c </tmp/f; exit 5"]`, "abc", "3\r\n", 5},
		{`["sh","-c","cat >/tmp/f; wc -c </tmp/f; exit 5"]`, "abc\n", "4\r\n", 5},
		{`["sh","-c","cat >/tmp/f; wc -c </tmp/f; exit 5"]`, "", "0\r\n", 5},
		{`["sh","-c","test -t 0 && test -t 1 && test -t 2 && kill -HUP $$"]`, "", "", 129},
	} {
		id := fmt.Sprint("t", n)
		exec := p.ask("command/exec", fmt.Sprintf(`{"command":%s,"processId":%q,"tty":true}`, tt.command, id))
		p.answer(p.ask("command/exec/write", fmt.Sprintf(`{"processId":%q,"deltaBase64":%q,"closeStdin":true}`, id, base64.StdEncoding.EncodeToString([]byte(tt.keys)))))
		r := p.result(exec)
		if out, _, _ := p.output(id, "stdout"); *r.ExitCode != tt.code || !strings.HasSuffix(out, tt.want) {
			t.Errorf("%s, %q: exit code %d, %q", tt.command, tt.keys, *r.ExitCode, out)
		}
	}

	// A process on a terminal is ended by its client and by its timeout.
	exec = p.ask("command/exec", `{"command":["cat"],"processId":"end","tty":true}`)
	write("end", "x\n")
	shows("end", "x\r\nx\r\n")
	p.must("command/exec/terminate", `{"processId":"end"}`)
	if r := p.result(exec); *r.ExitCode != 137 {
		t.Errorf("%+v", r)
	}
	if r := p.result(p.ask("command/exec", `{"command":["cat"],"processId":"end","tty":true,"timeoutMs":200}`)); *r.ExitCode != 124 {
		t.Errorf("%+v", r)
	}
}

// TestJailInput covers large input and output, programs that do not read, and programs that do not exit by themselves.
func TestJailInput(t *testing.T) {
	s := jailed(t)
	p := initialized(t, s)
	data := bytes.Repeat([]byte("0123456789abcde\n"), 1_900_000/16)
	delta := base64.StdEncoding.EncodeToString(data)
	feed := func(command string) result {
		exec := p.ask("command/exec", fmt.Sprintf(`{"command":[%q],"processId":"in","streamStdin":true,"disableOutputCap":true}`, command))
		// The write is refused if the program has ended already.
		p.answer(p.ask("command/exec/write", fmt.Sprintf(`{"processId":"in","deltaBase64":%q,"closeStdin":true}`, delta)))
		return p.result(exec)
	}
	if r := feed("cat"); *r.ExitCode != 0 || *r.Stdout != string(data) {
		t.Errorf("exit code %d, %d bytes", *r.ExitCode, len(*r.Stdout))
	}
	if r := feed("true"); *r.ExitCode != 0 {
		t.Errorf("%+v", r)
	}
	// Terminating a process ends the request even if a descendant outlives it and holds its output.
	exec := p.ask("command/exec", `{"command":["sh","-c","trap '' TERM HUP; (setsid sleep 100 &) ; yes"],"processId":"y","streamStdoutStderr":true,"outputBytesCap":100000}`)
	p.until("cap", func(m arrival) bool { return m.Params.CapReached })
	p.must("command/exec/terminate", `{"processId":"y"}`)
	if r := p.result(exec); *r.ExitCode != 137 || !r.StdoutTruncated {
		t.Errorf("%+v", r)
	}
	if held, _ := s.held.Held(); held != 0 {
		t.Errorf("%d bytes of the budget are still reserved", held)
	}
}

// TestJailEndsWithConnection checks that no process survives the connection of its client.
func TestJailEndsWithConnection(t *testing.T) {
	s := jailed(t)
	p := initialized(t, s)
	mark := fmt.Sprint(3_000_000 + os.Getpid())
	for n := range 5 {
		p.ask("command/exec", fmt.Sprintf(`{"command":["sh","-c","trap '' TERM HUP INT; setsid sleep %s & echo up; wait"],"processId":"%d","tty":%v,"streamStdoutStderr":true}`, mark, n, n%2 == 0))
		p.until("start", func(m arrival) bool { return m.Params.ProcessID == fmt.Sprint(n) })
	}
	p.must("process/spawn", fmt.Sprintf(`{"command":["sleep",%q],"processHandle":"h","cwd":%q,"timeoutMs":null}`, mark, s.Dir))
	sandboxtest.Eventually(t, 10*time.Second, "six sleeping processes", func() bool { return sleepers(mark) >= 6 })
	p.conn.Close()
	<-p.ended
	if n := sleepers(mark); n != 0 {
		t.Errorf("%d processes survived the connection", n)
	}
}

// sleepers counts the processes of the host that run "sleep mark".
func sleepers(mark string) int {
	dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	n := 0
	for _, dir := range dirs {
		if b, err := os.ReadFile(dir); err == nil && bytes.Equal(b, []byte("sleep\x00"+mark+"\x00")) {
			n++
		}
	}
	return n
}
