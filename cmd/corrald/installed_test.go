package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/isolate/client"
	"corral/isolate/wire"
)

// A service is corrald as installed by `make install` below /usr/local, started by systemd.
type service struct {
	*server
	t *testing.T
}

// install installs corral and its unit. The end of the test stops the service.
func install(t *testing.T) *service {
	t.Helper()
	const lib = "/usr/local/lib/corral"
	unit, err := os.ReadFile("../../scripts/corrald.service")
	if err == nil {
		err = errors.Join(os.MkdirAll(lib, 0o755), os.MkdirAll("/usr/local/bin", 0o755),
			os.WriteFile("/etc/systemd/system/corrald.service", bytes.ReplaceAll(unit, []byte("@PREFIX@"), []byte("/usr/local")), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	programs := filepath.Dir(sandboxtest.Bin(t, "corrald"))
	list, err := os.ReadDir(programs)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.IsDir() { // manual pages and completion scripts, which the service does not need
			continue
		}
		if err := os.Link(filepath.Join(programs, p.Name()), filepath.Join(lib, p.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(programs, "corral"), "/usr/local/bin/corral"); err != nil {
		t.Fatal(err)
	}
	s := &service{&server{&sandboxtest.Supervisor{Socket: client.DefaultSocket}, "/usr/local/bin/corral"}, t}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("systemctl", "status", "--lines=50", "corrald.service").CombinedOutput()
			t.Logf("%s", out)
		}
		s.stop()
	})
	return s
}

func (s *service) systemctl(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("systemctl %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// start starts the service for these directories. Everybody may connect, because the tests' users are in no group.
func (s *service) start(repos ...string) {
	s.t.Helper()
	const dropIn = "/run/systemd/system/corrald.service.d"
	line := "[Service]\nExecStart=\nExecStart=/usr/local/lib/corral/corrald"
	for _, r := range repos {
		line += " --repo " + r
	}
	if err := errors.Join(os.MkdirAll(dropIn, 0o755), os.WriteFile(dropIn+"/repos.conf", []byte(line+"\n"), 0o644)); err != nil {
		s.t.Fatal(err)
	}
	s.systemctl("daemon-reload")
	s.systemctl("start", "corrald.service")
	sandboxtest.Eventually(s.t, 30*time.Second, "the service listens", func() bool {
		c, err := client.Dial(client.DefaultSocket)
		if err == nil {
			_, err = c.Hello()
			c.Close()
		}
		return err == nil
	})
	if err := os.Chmod(client.DefaultSocket, 0o666); err != nil {
		s.t.Fatal(err)
	}
}

// stop stops the service, which must end successfully and in time.
func (s *service) stop() {
	s.t.Helper()
	s.systemctl("stop", "corrald.service") // after 30 s systemd kills it, and the result is a failure
	if result := s.systemctl("show", "-P", "Result", "corrald.service"); result != "success" {
		s.t.Errorf("the service's result is %s", result)
	}
}

const unitGroup = "/sys/fs/cgroup/system.slice/corrald.service"

// TestInstalled: in the installed service, systemd delegates a cgroup, jobs run, and nothing is left behind. Links that
// users put in place of directories do not lead to root's directories, and a file system of a user that hangs delays
// nobody else.
func TestInstalled(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Installable)
	_ = exec.Command("modprobe", "fuse").Run()
	sandboxtest.RequireJails(t, sandboxtest.Fuse)
	s := install(t)
	top := sandboxtest.OpenDir(t)
	at := func(name string) string { return filepath.Join(top, name) }
	closed := closedTo(t, at("closed"))
	makeDirectory(t, at("home"), alice, 0o755)
	makeDirectory(t, at("home/.ssh"), alice, 0o700)
	mono := makeDirectory(t, at("home/mono"), alice, 0o755)
	sub := makeDirectory(t, at("home/mono/sub"), alice, 0o755)

	s.start()
	code, out, errs := s.runs(alice, "run", "--json", "--repo", mono, "--", "echo", "ran")
	if code != 0 || !strings.Contains(out, `"ran\n"`) || !strings.Contains(out, `"v2"`) {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	pid := s.systemctl("show", "-P", "MainPID", "corrald.service")
	if b, err := os.ReadFile(unitGroup + "/supervisor/cgroup.procs"); err != nil || !strings.Contains("\n"+string(b), "\n"+pid+"\n") {
		t.Errorf("process %s has not moved itself: %q, %v", pid, b, err)
	}
	if _, err := os.Stat(unitGroup + "/corral"); err != nil { // jails are made below the unit
		t.Error(err)
	}
	if _, err := os.Stat("/sys/fs/cgroup/corral"); !errors.Is(err, os.ErrNotExist) { // and nowhere else
		t.Errorf("%v", err)
	}

	t.Run("a link to the user's own keys", func(t *testing.T) {
		link := at("home/mono/keys")
		if err := os.Symlink("../.ssh", link); err != nil {
			t.Fatal(err)
		}
		s.refuses(t, link, closed, "is a symbolic link")
	})
	t.Run("a job's link, entered by root for its user", func(t *testing.T) {
		s.runs(alice, "run", "--repo", mono, "--", "sh", "-c", "mv sub .sub && ln -s ../../closed sub")
		s.refuses(t, sub, closed, "is a symbolic link")
		// A supervisor started by corral creates its cgroups below the one that it is in.
		scope := []string{"--quiet", "--scope", "--property=Delegate=yes", s.exe, "run", "--repo", sub}
		cmd := exec.Command("systemd-run", append(scope, attack...)...)
		cmd.Env = append(os.Environ(), fmt.Sprintf("SUDO_UID=%d", alice), fmt.Sprintf("SUDO_GID=%d", alice))
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "is a symbolic link") || strings.Contains(string(out), "secret") {
			t.Errorf("%v: %s", err, out)
		}
		if err := errors.Join(os.Remove(sub), os.Rename(at("home/mono/.sub"), sub)); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a link in place of what is served, and a restart", func(t *testing.T) {
		hers := makeDirectory(t, at("home/hers"), alice, 0o755)
		s.stop()
		s.start(hers, mono)
		s.works(t, alice, hers)
		if err := errors.Join(os.Rename(hers, hers+"-away"), os.Symlink(closed, hers)); err != nil {
			t.Fatal(err)
		}
		s.stop()
		s.start(hers, mono)
		s.refuses(t, hers, closed, "is a symbolic link")
		s.works(t, alice, mono)
	})
	t.Run("what is served lies in another", func(t *testing.T) {
		s.stop()
		s.start(mono, sub)
		s.refuses(t, sub, closed, "overlaps")
		s.refuses(t, mono, closed, "overlaps")
	})
	t.Run("a file system that hangs", func(t *testing.T) {
		s.stop()
		s.start()
		s.standsStall(t, makeDirectory(t, at("bobs"), bob, 0o755))
	})
	s.stop()
	if _, err := os.Stat(unitGroup); !errors.Is(err, os.ErrNotExist) { // systemd keeps the group of a unit with processes left
		t.Errorf("%v", err)
	}
}

// stalls is the number of sessions that the hostile client requests.
const stalls = 200

// standsStall has alice request many sessions in a directory below a file system of hers that hangs, in a user namespace
// of hers. The supervisor must not lose threads, and other users must not notice.
func (s *service) standsStall(t *testing.T, bobs string) {
	t.Helper()
	pid := s.systemctl("show", "-P", "MainPID", "corrald.service")
	threads := func() int {
		list, err := os.ReadDir("/proc/" + pid + "/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	s.works(t, bob, bobs)
	before := threads()
	files := sandboxtest.StartFileServerInNamespace(t, alice)
	files.Stall(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{stallVar + "=" + s.Socket}
	cmd.ExtraFiles = []*os.File{files.Overlay}
	cmd.SysProcAttr = s.as(alice, "ps").SysProcAttr
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(output, make([]byte, len("sent\n"))); err != nil {
		t.Fatalf("the hostile client: %v", err)
	}
	s.works(t, bob, bobs)
	if now := threads(); now > before+stalls/4 {
		t.Errorf("%d threads after %d openings, %d before", now, stalls, before)
	}
	s.stop()
}

// stallVar is the environment variable that makes the test binary a hostile client of the supervisor at its value.
const stallVar = "CORRALD_TEST_STALL"

// beStalled requests sessions in the directory at descriptor 3, each over a new connection while the supervisor accepts
// more, and keeps them open.
func beStalled(socket string) error {
	dir := os.NewFile(3, "/overlay")
	var conns []*wire.Conn
	open := wire.Open{Flags: wire.FlagRepo | wire.FlagReadOnly, Repo: dir.Name()}
	for n := range stalls {
		if n < 20 {
			conn, err := wire.Dial(socket)
			if err != nil {
				return err
			}
			conns = append(conns, conn)
		}
		conn := conns[n%len(conns)]
		conn.SetDeadline(time.Now().Add(time.Second))
		_ = conn.Send(wire.Encode(&open, uint32(n)), dir) // a message that the supervisor does not read any more serves the test, too
	}
	fmt.Println("sent")
	_, _ = io.Copy(io.Discard, os.Stdin)
	select {}
}

// TestMakeInstall: what is in bin/ is installed without a compiler, as by sudo, whose PATH has no go, and uninstalled again.
func TestMakeInstall(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	programs := filepath.Dir(sandboxtest.Bin(t, "corrald"))
	root, err := filepath.Abs("../..")
	if err != nil || filepath.Dir(programs) != root {
		t.Skipf("the programs are those of %s, and make installs those of %s", programs, root)
	}
	dir := t.TempDir()
	run := func(target string) {
		t.Helper()
		cmd := exec.Command("make", "-C", root, target, "DESTDIR="+dir, "PREFIX=/usr")
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GO=/nonexistent/go", "CC=/nonexistent/cc"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make %s: %v: %s", target, err, out)
		}
	}
	files := func() (list []string) {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				list = append(list, strings.TrimPrefix(path, dir))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	// Whoever has put a link there does not choose which file root writes.
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bin/corral", "lib/corral/corrald", "lib/systemd/system/corrald.service", "lib/sysusers.d/corral.conf"} {
		path := filepath.Join(dir, "usr", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
	}
	run("install")
	if content, err := os.ReadFile(target); err != nil || len(content) > 0 {
		t.Errorf("a file that a link leads to was written: %.80q, %v", content, err)
	}
	installed := "\n" + strings.Join(files(), "\n") + "\n"
	for _, want := range []string{
		"/usr/bin/corral", "/usr/lib/corral/corrald", "/usr/lib/corral/corral-front", "/usr/lib/corral/corral-stub",
		"/usr/lib/systemd/system/corrald.service", "/usr/lib/systemd/system/corrald.socket",
		"/usr/lib/systemd/system/corral-serve.service",
		"/usr/lib/sysusers.d/corral.conf", "/usr/lib/tmpfiles.d/corral.conf",
		"/usr/share/corral/monitoring/corral-dashboard.json", "/usr/share/corral/monitoring/corral-alerts.yaml",
		"/usr/share/corral/monitoring/corral-prometheus.yaml",
	} {
		if !strings.Contains(installed, "\n"+want+"\n") {
			t.Errorf("%s is not installed:%s", want, installed)
		}
	}
	unit, err := os.ReadFile(dir + "/usr/lib/systemd/system/corrald.service")
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/usr/lib/corral/corrald\n") || strings.Contains(string(unit), "@PREFIX@/") {
		t.Errorf("%v: %s", err, unit)
	}
	run("uninstall")
	if left := files(); len(left) > 0 {
		t.Errorf("uninstall leaves %q", left)
	}
}
