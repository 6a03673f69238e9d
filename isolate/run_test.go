package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
	"corral/job"
)

func TestExit(t *testing.T) {
	f := sharedFront(t)
	for _, tt := range []struct {
		script string
		want   job.Result // only Status, ExitCode and Signal
	}{
		{"exit 0", job.Result{Status: job.Success}},
		{"exit 7", job.Result{Status: job.Failure, ExitCode: 7}},
		{"exit 255", job.Result{Status: job.Failure, ExitCode: 255}},
		{"kill -TERM $$", job.Result{Status: job.Failure, ExitCode: -1, Signal: int(unix.SIGTERM)}},
		{"kill -KILL $$", job.Result{Status: job.Failure, ExitCode: -1, Signal: int(unix.SIGKILL)}},
		{"kill -ABRT $$", job.Result{Status: job.Failure, ExitCode: -1, Signal: int(unix.SIGABRT)}},
		{"kill -TERM -1; exit 3", job.Result{Status: job.Failure, ExitCode: 3}}, // kill(-1) spares its caller and process 1
		{"sleep 1000 & exit 4", job.Result{Status: job.Failure, ExitCode: 4}},
	} {
		got := f.Run(f.Spec("sh", "-c", tt.script)).Result
		if got.Status != tt.want.Status || got.ExitCode != tt.want.ExitCode || got.Signal != tt.want.Signal {
			t.Errorf("%s: %+v", tt.script, got)
		}
		if got.ID == "" || got.Cgroup == "" || got.Usage.Wall <= 0 || got.Usage.CPU <= 0 || got.Limit != "" {
			t.Errorf("%s: %+v", tt.script, got)
		}
	}
}

// TestArgumentsExact: arguments and environment reach the program byte by byte, and nothing else does.
func TestArgumentsExact(t *testing.T) {
	f := sharedFront(t)
	args := []string{"perl", "-e", `print map "$_\0", @ARGV; open E, "/proc/self/environ"; print "ENV\0", <E>`}
	words := []string{"", "a b", "ü\xff\n'\"$(", "-", "--", strings.Repeat("x", 100_000), ""}
	env := []string{"PATH=/usr/bin", "EMPTY=", "A=b=c", "ODD NAME=\xff\n", "=", "LARGE=" + strings.Repeat("y", 100_000)}
	spec := f.Spec(append(append(args, "--"), words...)...)
	spec.Env = env
	want := strings.Join(words, "\x00") + "\x00ENV\x00" + strings.Join(env, "\x00") + "\x00"
	if got := f.Run(spec).Out; got != want {
		t.Errorf("%.300q, want %.300q", got, want)
	}
	spec = f.Spec("/usr/bin/env")
	spec.Env = nil
	if d := f.Run(spec); d.Out != "" || d.ExitCode != 0 {
		t.Errorf("without an environment: %+v", d)
	}
}

// TestProcessOneHasName checks that ps(1) in a job shows process 1 under the name of its program.
func TestProcessOneHasName(t *testing.T) {
	f := sharedFront(t)
	if d := f.Run(f.Spec("cat", "/proc/1/comm")); d.Out != "corral-stub\n" {
		t.Errorf("%q, %q", d.Out, d.Err)
	}
}

// TestHostNameHasAnswer checks that a job's own host name is its full name.
func TestHostNameHasAnswer(t *testing.T) {
	f := sharedFront(t)
	if d := f.Run(f.Spec("sh", "-c", `test "$(hostname -f)" = "$(uname -n)" && getent hosts localhost 127.0.0.1`)); d.ExitCode != 0 || !strings.Contains(d.Out, "localhost") {
		t.Errorf("%q, %q", d.Out, d.Err)
	}
}

func TestArgumentsTooLong(t *testing.T) {
	f := sharedFront(t)
	// MAX_ARG_STRLEN of execve(2) is 128 KiB including the final NUL.
	_, err := f.Try(f.Spec("/bin/true", strings.Repeat("x", 128<<10)))
	refusedAt(t, "one argument of 128 KiB", err, "exec", unix.E2BIG)
	_, err = f.Try(f.Spec("/bin/true", strings.Repeat("x", wire.MaxPayload)))
	refusedAt(t, "4 MiB", err, "payload", 0)
	_, err = f.Try(f.Spec())
	refusedAt(t, "no program", err, "payload", 0)
	_, err = f.Try(f.Spec("a\x00b"))
	refusedAt(t, "NUL", err, "payload", 0)
}

func TestStreams(t *testing.T) {
	f := sharedFront(t)
	l, err := f.Start(f.Spec("sh", "-c", "cat; echo problem >&2"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("0123456789abcdef", 1<<14) // more than a pipe holds
	if _, err := l.In.WriteString(text); err != nil {
		t.Error(err)
	}
	if d, err := l.End(); err != nil || d.Out != text || d.Err != "problem\n" {
		t.Errorf("%d bytes, %q, %v", len(d.Out), d.Err, err)
	}
	// The job's streams are in blocking mode, whatever the mode of the front-end's ends, and can be opened by name.
	for _, script := range []string{
		`perl -MFcntl -e 'for (0..2) { open F, "<&=$_"; print fcntl(F, F_GETFL, 0) & O_NONBLOCK ? 1 : 0 }'`,
		`echo 0 >/dev/stdout; echo x >/dev/stderr; printf 00 >/proc/self/fd/1`,
	} {
		if got := strings.ReplaceAll(f.Sh(script), "\n", ""); got != "000" {
			t.Errorf("%s: %q", script, got)
		}
	}
}

// TestNoInput: without standard input the job gets /dev/null.
func TestNoInput(t *testing.T) {
	f := sharedFront(t)
	_, out := f.Pipe()
	r, stderr := f.Pipe()
	var said fronttest.Output
	said.Read(r)
	spec := f.Spec("sh", "-c", "readlink /proc/self/fd/0 >&2; wc -c >&2")
	run, err := f.C.Start(spec, job.Stdio{Stdout: out, Stderr: stderr}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if result, err := run.Wait(); err != nil || result.Status != job.Success {
		t.Errorf("%+v, %v", result, err)
	}
	<-said.Done
	if said.String() != "/dev/null\n0\n" {
		t.Errorf("%q", said.String())
	}
}

// TestNoSuchProgram: an error of execve(2) is a refusal at the step exec with its errno, not an exit code.
func TestNoSuchProgram(t *testing.T) {
	f := sharedFront(t)
	put(t, f.Repo+"/plain", "#!/bin/sh\n", 0o644, owner)
	put(t, f.Repo+"/no-line", "echo hello\n", 0o755, owner)
	put(t, f.Repo+"/no-interpreter", "#!/no/such/interpreter\n", 0o755, owner)
	put(t, f.Repo+"/empty", "", 0o755, owner)
	put(t, f.Repo+"/script", "#!/bin/sh\necho \"$0 $1\"\n", 0o755, owner)
	put(t, f.Repo+"/set-id", "#!/bin/sh\nid -u\n", 0o755, 0)
	mkdir(t, f.Repo+"/directory", owner)
	for _, tt := range []struct {
		program string
		errno   unix.Errno
	}{
		{"/no/such/program", unix.ENOENT},
		{"no-such-program", unix.ENOENT},
		{"", unix.ENOENT},
		{"./plain", unix.EACCES},
		{"./directory", unix.EACCES},
		{"/etc/passwd/x", unix.ENOTDIR},
		{"./no-line", unix.ENOEXEC},
		{"./empty", unix.ENOEXEC},
		{"./no-interpreter", unix.ENOENT},
		{"./loop", unix.ELOOP},
		{"/proc/1/exe", unix.EACCES}, // CVE-2019-5736: jobs cannot read process 1's program
	} {
		if tt.program == "./loop" {
			if err := os.Symlink("loop", f.Repo+"/loop"); err != nil {
				t.Fatal(err)
			}
		}
		_, err := f.Try(f.Spec(tt.program))
		refusedAt(t, fmt.Sprintf("%q", tt.program), err, "exec", tt.errno)
	}
	if got := f.Run(f.Spec("./script", "x")).Out; got != "./script x\n" {
		t.Errorf("script: %q", got)
	}
}

// TestPathLookup: a name is looked up in the job's PATH, as execvp(3) does; a file that may not be executed takes
// precedence over a missing one in the error.
func TestPathLookup(t *testing.T) {
	f := sharedFront(t)
	for _, dir := range []string{"a", "b"} {
		mkdir(t, filepath.Join(f.Repo, dir), owner)
	}
	put(t, f.Repo+"/a/tool", "#!/bin/sh\necho a\n", 0o644, owner)
	put(t, f.Repo+"/b/tool", "#!/bin/sh\necho b\n", 0o755, owner)
	put(t, f.Repo+"/tool", "#!/bin/sh\necho here\n", 0o755, owner)
	for _, tt := range []struct {
		path, want string
		errno      unix.Errno
	}{
		{"PATH=/none:" + f.Repo + "/a:" + f.Repo + "/b", "b\n", 0},
		{"PATH=" + f.Repo + "/a:/none", "", unix.EACCES},
		{"PATH=/etc/passwd:/none", "", unix.ENOENT},
		{"PATH=", "", unix.ENOENT}, // an empty entry is not the working directory, which is the repository
		{"PATH=:", "", unix.ENOENT},
		{"PATHS=/usr/bin", "", unix.ENOENT},
	} {
		spec := f.Spec("tool")
		spec.Env = []string{tt.path}
		d, err := f.Try(spec)
		if tt.errno != 0 {
			refusedAt(t, tt.path, err, "exec", tt.errno)
		} else if err != nil || d.Out != tt.want {
			t.Errorf("%s: %q, %v", tt.path, d.Out, err)
		}
	}
}

func TestReadOnlyWorkspace(t *testing.T) {
	f := sharedFront(t)
	put(t, f.Repo+"/file", "x", 0o644, owner)
	spec := f.Spec("sh", "-c", `exec 2>&1; touch new; rm -f file; mkdir d; (echo y >file); chmod 600 file; mv file f; ln file g; cat file`)
	spec.Workspace = job.ReadOnly
	d := f.Run(spec)
	if n := strings.Count(d.Out, "Read-only file system"); n != 7 || !strings.HasSuffix(d.Out, "x") {
		t.Errorf("%d of 7 refused: %s", n, d.Out)
	}
}

func TestStrictProfile(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	f := sharedFront(t)
	script := fmt.Sprintf(`exit(syscall(%d, 0) < 0 ? $!+0 : 0)`, unix.SYS_SYNC)
	for profile, want := range map[string]int{"": 0, "default": 0, "strict": int(unix.EPERM)} {
		spec := f.Spec("perl", "-e", script)
		spec.Profile = profile
		if d := f.Run(spec); d.ExitCode != want {
			t.Errorf("sync(2) in profile %q: %+v", profile, d)
		}
	}
}
