package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
	api "corral/isolate/client"
	"corral/job"
)

// inFull returns how often a soak repeats something, or how often a test does.
func inFull(soak, test int) int {
	if sandboxtest.Soak() {
		return soak
	}
	return test
}

// A soak is a supervisor of its own process, with jobs, sessions and front-ends that come and go.
type soak struct {
	*testing.T
	d     *sandboxtest.Supervisor
	repo  string
	state string // directory of front-ends
	front string // a program that every user can start

	jobs, sessions, fronts atomic.Int64 // that did what they should
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	sandboxtest.RequireJails(t)
	in := nettest.NewInternet(t)
	in.Name("db.example.org", "192.0.2.2")
	echo(in.Listen("192.0.2.2:5432"))
	dir := sandboxtest.OpenDir(t)
	s := &soak{T: t, repo: filepath.Join(dir, "repo"), state: filepath.Join(dir, "state"), front: filepath.Join(dir, "corral-front")}
	if err := errors.Join(
		os.Mkdir(s.repo, 0o755), os.Chown(s.repo, soakUser, soakUser), os.Mkdir(s.state, 0o700), os.Chown(s.state, soakUser, soakUser),
		sandboxtest.CopyProgram(sandboxtest.Bin(t, "corral-front"), s.front),
	); err != nil {
		t.Fatal(err)
	}
	s.d = sandboxtest.Daemon(t, sandboxtest.DaemonOptions{
		Everyone: true, Args: []string{"--repo", s.repo},
		Config: fmt.Sprintf("warm_slots: %d\nnetwork:\n", waiting) +
			"  allow: [{host: db.example.org, ports: [5432], protocol: tcp}]\n  private: [192.0.2.2/32]\n",
	})
	return s
}

// soakUser owns the repository, and runs the front-ends.
const soakUser = 61300

const (
	// asks reaches the host, and prints what it echoes.
	asks = `use Socket; socket S, PF_INET, SOCK_STREAM, 0; connect S, sockaddr_in(5432, inet_aton("db.example.org") || die "unknown") or die $!;
		syswrite S, "echo"; defined sysread S, $x, 9 or die "read: $!"; syswrite STDOUT, $x`
	// serves says at port 8000 what the host echoes.
	serves = `use Socket; socket L, PF_INET, SOCK_STREAM, 0; bind L, sockaddr_in(8000, INADDR_LOOPBACK) or die $!; listen L, 9;
		while (accept C, L) { socket S, PF_INET, SOCK_STREAM, 0; connect S, sockaddr_in(5432, inet_aton("db.example.org") || next) or next;
		syswrite S, "echo"; sysread S, $x, 9; syswrite C, $x; close C }`
)

// job runs a job that reaches a host. If nothing is killed, it must succeed.
func (s *soak) job() error {
	c, err := api.Dial(s.d.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	out, err := s.run(c, job.Spec{Repo: s.repo, Args: []string{"/usr/bin/perl", "-e", asks}})
	if err == nil && out != "echo" {
		err = fmt.Errorf("a job printed %q", out)
	}
	if err == nil {
		s.jobs.Add(1)
	}
	return err
}

// run runs a job and returns what it wrote.
func (s *soak) run(c *api.Client, spec job.Spec) (string, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer read.Close()
	fd, err := unix.FcntlInt(write.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		write.Close()
		return "", err
	}
	ctx, stop := context.WithTimeout(s.Context(), sandboxtest.Slow(time.Minute))
	defer stop()
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(&out, read)
		done <- err
	}()
	r, err := c.Run(ctx, spec, job.Stdio{Stdout: write, Stderr: os.NewFile(uintptr(fd), "standard error")})
	if err == nil && r.Status != job.Success {
		err = fmt.Errorf("%+v", r)
	}
	err = errors.Join(err, <-done)
	return out.String(), err
}

// session opens a session with a server in the background, reaches that, and closes the session.
func (s *soak) session() (err error) {
	c, err := api.Dial(s.d.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	ss, err := c.OpenSession(s.Context(), job.SessionSpec{Repo: s.repo, Workspace: job.Direct, Share: true})
	if err != nil {
		return err
	}
	server := make(chan error, 1)
	go func() {
		_, err := s.run(c, job.Spec{Repo: s.repo, Session: ss.ID, Workspace: ss.Workspace, Args: []string{"/usr/bin/perl", "-e", serves}})
		server <- err
	}()
	served := s.reach(c, ss.ID, server)
	_, closed := c.CloseSession(s.Context(), ss.ID, false)
	if served == nil {
		if err := <-server; err == nil { // its job is ended with the session
			return errors.New("a server ended by itself")
		}
		s.sessions.Add(1)
	}
	return errors.Join(served, closed)
}

// reach asks the server in a session what the host echoes, once the server listens.
func (s *soak) reach(c *api.Client, session string, server chan error) error {
	for end := time.Now().Add(sandboxtest.Slow(time.Minute)); ; {
		f, err := c.Connect(s.Context(), session, 8000)
		if err == nil {
			conn, err := net.FileConn(f)
			f.Close()
			if err != nil {
				return err
			}
			defer conn.Close()
			_ = conn.SetDeadline(end)
			if text, err := io.ReadAll(conn); err != nil || string(text) != "echo" {
				return fmt.Errorf("a server in a session wrote %q, %w", text, err)
			}
			return nil
		}
		if refusal := (*job.Refusal)(nil); !errors.As(err, &refusal) || time.Now().After(end) {
			return err
		}
		select {
		case err := <-server:
			return errors.Join(errors.New("the server in a session has ended"), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// frontEnd starts a front-end whose job connects to a host and stays, and kills it.
func (s *soak) frontEnd() error {
	cmd := exec.Command(s.front, "exec-server", "--supervisor", s.d.Socket, "--repo", s.repo, "--config", filepath.Join(s.d.Dir, "supervisor.yaml"))
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + s.state, "XDG_STATE_HOME=" + s.state}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: soakUser, Gid: soakUser}, Pdeathsig: unix.SIGKILL}
	cmd.Stderr = s.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	_, err = fmt.Fprintf(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientInfo":{"name":"soak","version":"1"}}}
{"jsonrpc":"2.0","method":"initialized"}
{"jsonrpc":"2.0","id":2,"method":"command/exec","params":{"processId":"a","streamStdoutStderr":true,"command":["perl","-e",%q],"cwd":%q,`+
		`"sandboxPolicy":{"type":"workspaceWrite","writableRoots":[],"networkAccess":true}}}
`, strings.ReplaceAll(asks, "\n", " ")+"; sleep 100", s.repo)
	if err != nil {
		return err
	}
	text := make([]byte, 0, 4096)
	for !bytes.Contains(text, []byte("outputDelta")) { // the job has reached the host
		n, err := out.Read(text[len(text):cap(text)])
		if text = text[:len(text)+n]; err != nil || bytes.Contains(text, []byte(`"id":2`)) || len(text) == cap(text) {
			return fmt.Errorf("the front-end wrote %q, %w", text, err)
		}
	}
	s.fronts.Add(1)
	return nil
}

// load runs jobs, sessions and front-ends, some of each at once, and returns when all have ended. failed is called with what a job,
// session or front-end did not do.
func (s *soak) load(jobs, sessions, fronts int, failed func(error)) {
	var all sync.WaitGroup
	for _, kind := range []struct {
		total, atOnce int
		run           func() error
	}{{jobs, 4, s.job}, {sessions, 2, s.session}, {fronts, 1, s.frontEnd}} {
		var left atomic.Int64
		left.Store(int64(kind.total))
		for range kind.atOnce {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					if err := kind.run(); err != nil {
						failed(err)
						s.awaitSupervisor()
					}
				}
			})
		}
	}
	all.Wait()
}

// awaitSupervisor waits until a supervisor serves: one that was killed is started again.
func (s *soak) awaitSupervisor() {
	for end := time.Now().Add(sandboxtest.Slow(time.Minute)); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("unix", s.d.Socket); err == nil || !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) {
			if err == nil {
				c.Close()
			}
			return
		}
	}
}

// A holding is what the supervisor and the processes below it hold.
type holding map[string]int

// slack is how much more may be held than before: slots are made ahead, and processes end a moment after their jobs.
var slack = holding{"processes": 24, "namespaces": 16, "descriptors": 160, "threads": 24, "MiB": 128}

func (s *soak) holds() holding {
	h := holding{}
	spaces := map[string]bool{}
	for pid := range s.below() {
		h["processes"]++
		if link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil {
			spaces[link] = true
		}
		files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		h["descriptors"] += len(files)
		h["threads"] += len(tasks)
		if _, rest, ok := strings.Cut(string(status), "RssAnon:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			h["KiB"] += kib
		}
	}
	h["namespaces"], h["MiB"] = len(spaces), h["KiB"]>>10
	return h
}

// below returns the names of the supervisor's process and of those below it, by process id.
func (s *soak) below() map[int]string {
	parents, names := map[int]int{}, map[int]string{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		s.Fatal(err)
	}
	for _, dir := range dirs {
		b, _ := os.ReadFile(dir + "/stat") // a process may have ended
		head, tail, ok := strings.Cut(string(b), ") ")
		if !ok {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		parents[pid], _ = strconv.Atoi(strings.Fields(tail)[1])
		_, names[pid], _ = strings.Cut(head, "(")
	}
	found := map[int]string{}
	for pid := range parents {
		for at := pid; at > 1; at = parents[at] {
			if at == s.d.PID() {
				found[pid] = names[pid]
			}
		}
	}
	return found
}

// flat fails the test if more is held than before, some time after the load.
func (s *soak) flat(before holding) {
	s.Helper()
	var more []string
	defer func() { s.Logf("before %v, after %v", before, s.holds()) }()
	for end := time.Now().Add(sandboxtest.Slow(30 * time.Second)); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		more = nil
		for what, now := range s.holds() {
			if most, ok := slack[what]; ok && now > before[what]+most {
				more = append(more, fmt.Sprintf("%s: %d, before %d", what, now, before[what]))
			}
		}
		if more == nil {
			return
		}
	}
	s.Errorf("there is more than before: %q", more)
}

// TestSoakFlat: many jobs that reach hosts, sessions with servers and front-ends that are killed leave nothing behind.
func TestSoakFlat(t *testing.T) {
	s := newSoak(t)
	fail := func(err error) { t.Error(err) }
	s.load(20, 4, 2, fail)
	before := s.holds()
	s.load(inFull(10_000, 200), inFull(100, 10), inFull(50, 5), fail)
	s.flat(before)
}

// killPause is the maximum time between two kills.
const killPause = 150 * time.Millisecond

// waiting is as many slots as a jail has waiting. How many a jail makes depends on how busy the machine is, and each has ten descriptors.
// Of each, a process can have been killed that nothing needs before a job comes, and that job fails: so many that succeed in a row have
// found none.
const waiting = 4

// TestSoakKilled: whichever process below the supervisor is killed, at any moment, what needs none of it goes on, and nothing is left.
// Then the supervisor is killed, with everything below it, and its successor serves.
func TestSoakKilled(t *testing.T) {
	s := newSoak(t)
	s.load(20, 4, 2, func(err error) { t.Error(err) })
	before := s.holds()
	for _, supervisor := range []bool{false, true} {
		stop, stopped := make(chan struct{}), make(chan map[string]int, 1)
		go func() {
			defer close(stopped) // also if a supervisor does not start
			stopped <- s.kills(supervisor, stop)
		}()
		var failed atomic.Int64
		s.load(inFull(3_000, 60), inFull(100, 5), inFull(50, 3), func(error) { failed.Add(1) })
		close(stop)
		t.Logf("killed %v; %d jobs, sessions and front-ends failed", <-stopped, failed.Load())
		s.flat(before)
		for what, run := range map[string]func() error{"jobs": s.job, "sessions": s.session, "front-ends": s.frontEnd} {
			sandboxtest.Eventually(t, time.Minute, what+" reach the host again", func() bool {
				for range waiting {
					if run() != nil {
						return false
					}
				}
				return true
			})
		}
		s.load(5, 2, 1, func(err error) { t.Errorf("after all was killed: %v", err) })
	}
	t.Logf("%d jobs, %d sessions and %d front-ends did what they should", s.jobs.Load(), s.sessions.Load(), s.fronts.Load())
}

// kills kills a process after the other until stop is closed: any below the supervisor or, if supervisor is set, that. It returns how many
// of each name.
func (s *soak) kills(supervisor bool, stop chan struct{}) map[string]int {
	killed := map[string]int{}
	for {
		select {
		case <-stop:
			return killed
		case <-time.After(time.Duration(rand.Int64N(int64(killPause)))): //nolint:gosec // any moment
		}
		if supervisor {
			s.d.Kill()
			s.d.Start(s.T)
			killed["corrald"]++
			continue
		}
		var all []int
		names := s.below()
		for pid := range names {
			if pid != s.d.PID() {
				all = append(all, pid)
			}
		}
		if len(all) == 0 {
			continue
		}
		pid := all[rand.IntN(len(all))] //nolint:gosec // any process
		if unix.Kill(pid, unix.SIGKILL) == nil {
			killed[names[pid]]++
		}
	}
}
