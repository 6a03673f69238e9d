package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// background starts a line of shell in the background of a session, and returns the job's id.
func (d *daemon) background(t *testing.T, id, line string) (jobID string) {
	t.Helper()
	got := corral(t, "session", "exec", "--background", id, "--supervisor", d.Socket, "--", "sh", "-c", line)
	jobID = strings.TrimSuffix(got.stdout, "\n")
	if got.code != 0 || !regexp.MustCompile("^job-[0-9a-z]+$").MatchString(jobID) {
		t.Fatalf("%+v", got)
	}
	return jobID
}

// wrote waits until a running job has written lines, in any order: those of its two streams have none.
func (d *daemon) wrote(t *testing.T, jobID string, lines ...string) {
	t.Helper()
	sandboxtest.Eventually(t, time.Minute, fmt.Sprintf("%s writes %q", jobID, lines), func() bool {
		got := strings.Split(strings.TrimSuffix(corral(t, "logs", jobID, "--supervisor", d.Socket).stdout, "\n"), "\n")
		slices.Sort(got)
		return slices.Equal(got, lines)
	})
}

// keepers returns the processes that keep jobs of the daemon.
func (d *daemon) keepers() []int { return marked("session-keeper\x00--supervisor\x00" + d.Socket) }

// stored returns what corral output has of the jobs of root, once the keepers have ended.
func (d *daemon) stored(t *testing.T, handle string) string {
	t.Helper()
	sandboxtest.Eventually(t, time.Minute, "no job is kept", func() bool { return len(d.keepers()) == 0 })
	dirs, err := filepath.Glob(filepath.Join(d.State, "users", "*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%q, %v", dirs, err)
	}
	got := corral(t, "output", handle, "--state", dirs[0])
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	return got.stdout + got.stderr
}

// handle returns the handle of the output of a running job.
func (d *daemon) handle(t *testing.T, jobID string) string {
	t.Helper()
	list := corral(t, "ps", "--json", "--supervisor", d.Socket).stdout
	found := regexp.MustCompile(`"job":"` + jobID + `".*"tool":"session exec".*"artifact":"([^"]+)"`).FindStringSubmatch(list)
	if found == nil {
		t.Fatalf("%s: %s", jobID, list)
	}
	return found[1]
}

// TestBackground: a job in the background survives the end of the command's process group and terminal, and ends with its session. Its
// output is stored, however it ends.
func TestBackground(t *testing.T) {
	sandboxtest.RequireJails(t)
	sandboxtest.Leaks(t)
	repo, d := repository(t), serve(t)
	id := d.open(t, "--repo", repo)
	sleep := mark()
	line := command(t, "session", "exec", "--background", id, "--supervisor", d.Socket, "--", "sh", "-c", "echo out; echo err >&2; exec sleep "+sleep)
	shell := exec.Command("setsid", append([]string{"--wait", "sh", "-c", `"$0" "$@"; kill -HUP 0`, line.Path}, line.Args[1:]...)...)
	shell.Env, shell.Dir = line.Env, "/"
	got := start(t, shell).ends(t)
	jobID := strings.TrimSpace(got.stdout)
	kept := d.keepers()
	if !strings.HasPrefix(jobID, "job-") || len(kept) != 1 || len(marked(sleep)) == 0 {
		t.Fatalf("%+v, kept by %d", got, kept)
	}
	if sid, err := syscall.Getpgid(kept[0]); sid != kept[0] || err != nil {
		t.Errorf("the keeper is in process group %d, %v", sid, err)
	}
	for fd := range 3 {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", kept[0], fd)); to != os.DevNull {
			t.Errorf("the keeper's descriptor %d is %s, %v", fd, to, err)
		}
	}
	handle := d.handle(t, jobID)
	d.wrote(t, jobID, "err", "out")
	if s := d.listed(t)[id]; s.Jobs != 1 || s.Kept {
		t.Errorf("%+v", s)
	}
	corral(t, "kill", jobID, "--supervisor", d.Socket).want(t, 0, "")
	if got := d.stored(t, handle); got != "out\nerr\n" {
		t.Errorf("%q", got)
	}
	// It asks the job to end when it is to end itself.
	jobID = d.background(t, id, `trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	handle = d.handle(t, jobID)
	d.wrote(t, jobID, "ready") // before that, the signal ends it
	if err := syscall.Kill(d.keepers()[0], syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := d.stored(t, handle); !strings.HasPrefix(got, "ready\nasked\n") { // the shell may say that sleep was terminated
		t.Errorf("%q", got)
	}
	jobID = d.background(t, id, "echo until the end; sleep "+sleep)
	handle = d.handle(t, jobID)
	d.wrote(t, jobID, "until the end")
	d.session(t, "close", id).want(t, 0, "")
	if got := d.stored(t, handle); got != "until the end\n" {
		t.Errorf("%q", got)
	}
	if left := marked(sleep); len(left) > 0 {
		t.Errorf("processes %d are left", left)
	}
}

// TestBackgroundKeepsSession: a job in the background keeps its session from being idle.
func TestBackgroundKeepsSession(t *testing.T) {
	sandboxtest.RequireJails(t)
	repo, d := repository(t), serve(t)
	var id string
	idle := time.Second
	for begun := false; !begun; idle *= 2 { // so long that the session does not end before the job begins, however busy the machine is
		id = d.open(t, "--repo", repo, "--idle", idle.String())
		got := corral(t, "session", "exec", "--background", id, "--supervisor", d.Socket, "--", "sleep", mark())
		if begun = got.code == 0; !begun && idle > time.Minute {
			t.Fatalf("%+v", got)
		}
	}
	time.Sleep(idle) // twice what was asked for: a session that is idle would have ended
	if s := d.listed(t)[id]; s.Jobs != 1 || s.Kept {
		t.Errorf("%+v", s)
	}
	d.session(t, "close", id).want(t, 0, "")
	sandboxtest.Eventually(t, time.Minute, "its keeper ends", func() bool { return len(d.keepers()) == 0 })
}

// TestBackgroundKilled: a job ends with its keeper, however that ends, and with the supervisor.
func TestBackgroundKilled(t *testing.T) {
	sandboxtest.RequireJails(t)
	repo, d := repository(t), serve(t)
	id, sleep := d.open(t, "--repo", repo), mark()
	d.background(t, id, "exec sleep "+sleep)
	if err := syscall.Kill(d.keepers()[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, time.Minute, "the job ends", func() bool { return d.listed(t)[id].Jobs == 0 && len(marked(sleep)) == 0 })
	d.background(t, id, "exec sleep "+sleep)
	d.Kill()
	sandboxtest.Eventually(t, time.Minute, "the job and its keeper end", func() bool { return len(d.keepers())+len(marked(sleep)) == 0 })
}

// TestBackgroundMaximum: a user has a limited number of jobs in the background.
func TestBackgroundMaximum(t *testing.T) {
	sandboxtest.RequireJails(t)
	repo, d := repository(t), serve(t)
	id, sleep := d.open(t, "--repo", repo), mark()
	results := make(chan outcome)
	atOnce := make(chan struct{}, 8) // one waits no more than half a minute for others that start
	for range 70 {
		go func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			results <- corral(t, "session", "exec", "--background", id, "--supervisor", d.Socket, "--", "sleep", sleep)
		}()
	}
	for range 70 {
		if got := <-results; got.code != 0 && !strings.Contains(got.stderr, "64 jobs in the background, the maximum\nhint: corral ps") {
			t.Errorf("%+v", got)
		}
	}
	got := corral(t, "session", "exec", "--background", id, "--supervisor", d.Socket, "--", "true")
	if got.code != 125 || !strings.Contains(got.stderr, "jobs in the background, the maximum\nhint: corral ps") {
		t.Errorf("%+v", got)
	}
	d.session(t, "close", id).want(t, 0, "")
	sandboxtest.Eventually(t, time.Minute, "the keepers end", func() bool { return len(d.keepers()) == 0 })
}
