package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/isolate/client"
	"corral/job"
)

// Users without an account on the host.
const (
	alice = 61234
	bob   = 61235
)

// TestMain can act as a hostile client, which requests a directory by name. It hides the machine's own installation:
// supervisors that root's corral starts would read its configuration.
func TestMain(m *testing.M) {
	sandboxtest.ServeFiles()
	if socket := os.Getenv("CORRALD_TEST_SOCKET"); socket != "" {
		os.Exit(byPath(socket, os.Args[1]))
	}
	if socket := os.Getenv(stallVar); socket != "" {
		fmt.Fprintln(os.Stderr, beStalled(socket))
		os.Exit(1)
	}
	if sandboxtest.Installable() == nil {
		os.Exit(m.Run()) // there is no installation but a test's own
	}
	os.Exit(sandboxtest.WithoutInstallation(m))
}

func byPath(socket, repo string) int {
	c, err := client.Dial(socket)
	if err == nil {
		c.ByPath = true
		var r *client.Run
		if r, err = c.Start(job.Spec{Repo: repo, Args: []string{"true"}, Terminal: job.Size{Rows: 1, Cols: 1}}, job.Stdio{}, nil); err == nil {
			_, err = r.Wait()
		}
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		return 1
	}
	return 0
}

// TestByPath: a client that names a directory without passing a descriptor of it is refused, even if the directory is its
// own.
func TestByPath(t *testing.T) {
	sandboxtest.RequireJails(t)
	top := sandboxtest.OpenDir(t)
	at := func(name string) string { return filepath.Join(top, name) }
	makeDirectory(t, at("hers"), alice, 0o700)
	makeDirectory(t, at("roots"), 0, 0o755)
	makeDirectory(t, at("bobs"), bob, 0o777)
	d := serve(t)
	for _, repo := range []string{at("bobs"), at("roots"), at("hers"), "/", "relative", ""} {
		if out := d.byPath(t, repo); !strings.Contains(out, "the supervisor does not serve ") {
			t.Errorf("%q by its name: %q", repo, out)
		}
	}
}

// byPath has alice request a directory by name, which must be refused, and returns the error.
func (d *server) byPath(t *testing.T, repo string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", repo)
	cmd.Env = []string{"CORRALD_TEST_SOCKET=" + d.Socket}
	cmd.SysProcAttr = d.as(alice, "ps").SysProcAttr
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("%q by its name is served", repo)
	}
	return string(out)
}

// TestClosedSocket: a user who may not connect gets a hint.
func TestClosedSocket(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := serve(t)
	if err := os.Chmod(d.Socket, 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs := d.runs(alice, "ps")
	if code != 125 || !strings.Contains(errs, ": permission denied\nhint: add the user to group corral, or run with sudo\n") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}
