package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewSource(1))
	_, _ = r.Read(b)
	return b
}

func TestStandardInput(t *testing.T) {
	sandboxtest.RequireJails(t)
	d, repo, content := serve(t), repository(t), random(2<<20)
	run := func(stdin []byte, args ...string) outcome {
		cmd := command(t, append([]string{"run", "--supervisor", d.Socket, "--repo", repo, "--stdin", "--"}, args...)...)
		cmd.Stdin = bytes.NewReader(stdin)
		return start(t, cmd).ends(t)
	}
	if got := run(content, "cat"); got.code != 0 || got.stdout != string(content) || got.stderr != "" {
		t.Errorf("cat: exit code %d, %d bytes, stderr %q", got.code, len(got.stdout), got.stderr)
	}
	if got := run(content, "true"); got.code != 0 || got.stderr != "" {
		t.Errorf("a program that does not read: %+v", got)
	}
	if got := run(content, "head", "-c", "7"); got.stdout != string(content[:7]) {
		t.Errorf("a program that reads a little: %+v", got)
	}
	// Standard input that is never closed does not delay the end.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	cmd := command(t, "run", "--supervisor", d.Socket, "--repo", repo, "--stdin", "--", "sh", "-c", "exit 3")
	cmd.Stdin = r
	if got := start(t, cmd).ends(t); got.code != 3 {
		t.Errorf("standard input without end: %+v", got)
	}
}

// A holder is a job that receives a descriptor from another job of the repository and keeps it open.
func (d *daemon) holder(t *testing.T, repo string) *process {
	t.Helper()
	cmd := command(t, "run", "--supervisor", d.Socket, "--repo", repo, "--stdin", "--", "python3", "-c", `import os, socket, sys
s = socket.socket(socket.AF_UNIX); s.bind("s"); s.listen()
print("ready", flush=True)
c, _ = s.accept()
_, fds, _, _ = socket.recv_fds(c, 1, 2)
c.send(b"x")
print("held", flush=True)
sys.stdin.read()`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	p := start(t, cmd)
	p.ready(t)
	return p
}

// sends is a job that sends its standard output to the holder, writes that it did, and continues.
const sends = `import os, socket, sys, time
s = socket.socket(socket.AF_UNIX); s.connect("s")
socket.send_fds(s, [b"x"], [1, 2]); s.recv(1)
os.write(1, b"sent\n"); os.write(1, b"x" * 60000 + b"\n")
if len(sys.argv) > 1: time.sleep(1000)`

// TestOutputHeld: if another process holds a job's standard output open, the job still ends when its processes end or at
// its timeout, with all of its output.
func TestOutputHeld(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("python3"))
	d, repo := serve(t), repository(t)
	want := "sent\n" + strings.Repeat("x", 60000) + "\n"
	for _, tt := range []struct {
		name string
		code int
		args []string
	}{
		{"ends", 0, []string{"--", "python3", "-c", sends}},
		{"times out", 124, []string{"--timeout", "3s", "--", "python3", "-c", sends, "wait"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			holder := d.holder(t, repo)
			defer os.Remove(filepath.Join(repo, "s"))
			p := start(t, command(t, append([]string{"run", "--supervisor", d.Socket, "--repo", repo}, tt.args...)...))
			if !p.EndsWithin(time.Minute) {
				t.Fatalf("corral does not end; its output is %.100q", p.Out.String())
			}
			if got := p.ends(t); got.code != tt.code || got.stdout != want {
				t.Errorf("exit code %d, %d bytes %.100q, stderr %q", got.code, len(got.stdout), got.stdout, got.stderr)
			}
			if holder.EndsWithin(0) || !strings.Contains(holder.Out.String(), "held") {
				t.Errorf("the other job does not hold the descriptor any more: %q %q", holder.Out.String(), holder.Err.String())
			}
		})
	}
}

// TestEndlessOutput: a job with endless output ends although the reader is slow, gone, or out of space.
func TestEndlessOutput(t *testing.T) {
	sandboxtest.RequireJails(t)
	d, repo := serve(t), repository(t)
	args := []string{"run", "--supervisor", d.Socket, "--repo", repo, "--timeout", fmt.Sprint(sandboxtest.Slow(2 * time.Second))}
	endless := []string{"--", "sh", "-c", `tr '\0' x </dev/zero`}

	cmd := command(t, append(append(args, "--json", "--output-limit", "100"), endless...)...)
	o := decode(t, start(t, cmd).ends(t))
	if o.Status != "timeout" || o.Stdout != strings.Repeat("x", 100) || !o.Truncation.StdoutTruncated || o.Truncation.TotalStdoutBytes < 1000 {
		t.Errorf("with --json: %+v, %+v", o, o.Truncation)
	}

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd = command(t, "run", "--supervisor", d.Socket, "--repo", repo, "echo", "x")
	cmd.Stdout = full
	if got := start(t, cmd).ends(t); got.code != 125 || got.stderr != "corral: standard output: no space left on device\n" {
		t.Errorf("no room: %+v", got)
	}

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	mark := mark()
	cmd = command(t, "run", "--supervisor", d.Socket, "--repo", repo, "sh", "-c", `sleep `+mark+` & tr '\0' x </dev/zero`)
	cmd.Stdout = w
	p := start(t, cmd)
	w.Close()
	_, _ = r.Read(make([]byte, 10))
	r.Close()
	if got := p.ends(t); got.code != 128+13 {
		t.Errorf("the reader is gone: %+v", got)
	}
	gone(t, mark)
}

// TestFullDisk: a command that cannot write all of what it prints fails.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("version: 1\nrepos: [{path: /srv/app, id: app}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"version"}, {"help"}, {"repo", "list", "--config", config}} {
		cmd := command(t, args...)
		cmd.Stdout = full
		if got := start(t, cmd).ends(t); got.code != 125 || !strings.Contains(got.stderr, "no space left on device") {
			t.Errorf("corral %s: %+v", strings.Join(args, " "), got)
		}
	}
}

// decode reads the object that --json prints.
func decode(t *testing.T, got outcome) object {
	t.Helper()
	var o object
	d := json.NewDecoder(strings.NewReader(got.stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil || strings.Count(got.stdout, "\n") != 1 {
		t.Fatalf("no object on one line: %v; stdout %.500q, stderr %q", err, got.stdout, got.stderr)
	}
	return o
}

func TestJSON(t *testing.T) {
	sandboxtest.RequireJails(t)
	d, repo := serve(t), repository(t)
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string // fields of the object: status exitCode signal limit step
		also func(o object) bool
	}{
		{"success", []string{"sh", "-c", "echo out; echo err >&2"}, 0, "success 0 - - -", func(o object) bool {
			return o.Stdout == "out\n" && o.Stderr == "err\n" && o.Usage.WallMS > 0 && *o.Usage.PeakMemory > 0 && o.Cgroup != "" &&
				o.Truncation.TotalStdoutBytes == 4 && !o.Truncation.StdoutTruncated && o.Error == nil
		}},
		{"failure", []string{"sh", "-c", "exit 7"}, 7, "failure 7 - - -", nil},
		{"signal", []string{"sh", "-c", "kill -TERM $$"}, 143, "failure - SIGTERM - -", nil},
		{"timeout", []string{"--timeout", fmt.Sprint(sandboxtest.Slow(2 * time.Second)), "sh", "-c", "echo before; sleep 1000"}, 124, "timeout - SIGTERM - -", func(o object) bool {
			return o.Stdout == "before\n" && o.Usage.WallMS >= 2000
		}},
		{"memory", []string{"--memory", "48MiB", "tail", "/dev/zero"}, 137, "failure - SIGKILL memory -", nil},
		{"pids", []string{"--pids", "4", "sh", "-c", "sleep 100 & sleep 100 & sleep 100 & sleep 100 & sleep 100"}, 2, "failure 2 - pids -", nil},
		{"missing program", []string{"no-such-program"}, 127, "refused - - - exec", nil},
		{"not executable", []string{"./plain"}, 126, "refused - - - exec", nil},
		{"profile", []string{"--profile", "lax", "true"}, 125, "refused - - - profile", func(o object) bool { return o.Error.Hint != "" }},
		{"repository", []string{"--repo", "/nowhere", "true"}, 125, "refused - - - repo", func(o object) bool {
			return strings.Contains(o.Error.Message, "no such file")
		}},
		{"limits", []string{"--pids", "1", "true"}, 125, "refused - - - limits", nil},
		{"supervisor", []string{"--supervisor", "/nowhere", "true"}, 125, "refused - - - -", func(o object) bool {
			return strings.Contains(o.Error.Message, "/nowhere")
		}},
		{"no UTF-8", []string{"printf", "a\xffb<&>"}, 0, "success 0 - - -", func(o object) bool { return o.Stdout == "a\uFFFDb<&>" }},
		{"sensitive", []string{"sh", "-c", "mkdir .git; echo x >.git/config"}, 0, "success 0 - - -", func(o object) bool {
			return strings.Contains(strings.Join(o.SensitiveChanges, " "), ".git/config")
		}},
		{"limited", []string{"--output-limit", "2", "echo", "123"}, 0, "success 0 - - -", func(o object) bool {
			return o.Stdout == "12" && o.Truncation.StdoutTruncated && o.Truncation.TotalStdoutBytes == 4
		}},
		{"limited within a character", []string{"--output-limit", "3", "printf", "aé世"}, 0, "success 0 - - -", func(o object) bool {
			return o.Stdout == "aé" && o.Truncation.StdoutTruncated && o.Truncation.TotalStdoutBytes == 6
		}},
		{"limited within the next character", []string{"--output-limit", "5", "printf", "aé世"}, 0, "success 0 - - -", func(o object) bool {
			return o.Stdout == "aé" && o.Truncation.StdoutTruncated && o.Truncation.TotalStdoutBytes == 6
		}},
		{"limited by default", []string{"head", "-c", "11M", "/dev/zero"}, 0, "success 0 - - -", func(o object) bool {
			return len(o.Stdout) == 10<<20 && o.Truncation.TotalStdoutBytes == 11<<20
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"run", "--json", "--supervisor", d.Socket, "--repo", repo}, tt.args...)
			got := corral(t, args...)
			o := decode(t, got)
			if got.code != tt.code || summary(o) != tt.want || got.stderr != "" || tt.also != nil && !tt.also(o) {
				t.Errorf("exit code %d, want %d; %s, want %s; stdout %.1000s, stderr %q", got.code, tt.code, summary(o), tt.want, got.stdout, got.stderr)
			}
		})
	}
}

func summary(o object) string {
	exit, signal, limit, step := "-", "-", "-", "-"
	if o.ExitCode != nil {
		exit = fmt.Sprint(*o.ExitCode)
	}
	if o.Signal != nil {
		signal = *o.Signal
	}
	if o.Limit != "" {
		limit = o.Limit
	}
	if o.Error != nil && o.Error.Step != "" {
		step = o.Error.Step
	}
	return fmt.Sprint(o.Status, " ", exit, " ", signal, " ", limit, " ", step)
}
