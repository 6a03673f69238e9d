package isolate

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/job"
)

// TestFileOwners: the owner's files belong to the job, files that the job creates belong to the owner, and files of
// others appear as nobody's.
func TestFileOwners(t *testing.T) {
	f := sharedFront(t)
	put(t, f.Repo+"/own", "own", 0o600, owner)
	put(t, f.Repo+"/private", "secret", 0o600, 0)
	put(t, f.Repo+"/public", "public", 0o644, 1002)
	shared := f.Repo + "/shared" // with another group, which new files in it get
	if err := errors.Join(os.Mkdir(shared, 0o775), os.Chown(shared, owner, 1002), os.Chmod(shared, 0o775|os.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
	put(t, shared+"/theirs", "old", 0o664, owner)
	if err := os.Chown(shared+"/theirs", owner, 1002); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ script, want string }{
		{"cat own", "own"},
		{"echo more >>own && cat own", "ownmore"},
		{"stat -c %U:%G own . ", "job:job\njob:job"},
		{"stat -c %u own | grep -qx $(id -u) && echo mine", "mine"},
		{"stat -c %u private public", "65534\n65534"},
		{"cat private 2>&1 | grep -o 'Permission denied'", "Permission denied"},
		{"cat public", "public"},
		{"(echo x >public) 2>&1 | grep -o 'Permission denied'", "Permission denied"},
		{"chmod 600 public 2>&1 | grep -o 'Value too large'", "Value too large"}, // EOVERFLOW: its owner has no id in the jail
		{"touch made && mkdir dir && ln -s made link && ln made hard && mkfifo fifo && echo done", "done"},
		{"cd shared && echo new >>theirs && touch made && mkdir dir && mv made moved && stat -c %g moved", "65534"},
		{"chgrp 1002 own 2>&1 | grep -o 'not permitted'", "not permitted"},
		{"umask", "0022"},
	} {
		if got := strings.TrimSpace(f.Sh(tt.script)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.script, got, tt.want)
		}
	}
	for name, mode := range map[string]uint32{
		"made": unix.S_IFREG | 0o644, "dir": unix.S_IFDIR | 0o755, "link": unix.S_IFLNK | 0o777, "fifo": unix.S_IFIFO | 0o644,
	} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(f.Repo, name), &st); err != nil || st.Uid != owner || st.Gid != owner || st.Mode != mode {
			t.Errorf("%s outside: owner %d:%d, mode %o, %v", name, st.Uid, st.Gid, st.Mode, err)
		}
	}
	for _, name := range []string{"theirs", "moved", "dir"} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(shared, name), &st); err != nil || st.Uid != owner || st.Gid != 1002 {
			t.Errorf("%s outside: owner %d:%d, %v, want the group of its directory", name, st.Uid, st.Gid, err)
		}
	}
}

// TestNamespacesLeft: a jail in which no further user namespace can be made, because others keep those of its ended jobs, refuses no job,
// and jobs of other jails keep the number of the owner.
func TestNamespacesLeft(t *testing.T) {
	f := newFront(t, func(c *Config) { c.Slots = -1 })
	l, err := f.Start(f.Spec("sh", "-c", "echo runs; exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	l.Until("runs\n")
	stubs := processes(t, f.s, "corral-stub")
	if len(stubs) == 0 {
		t.Fatal("no process 1 of a job")
	}
	namespace := fmt.Sprintf("--user=/proc/%d/ns/user", stubs[0]) // the jail's
	const fill = "echo 0 >/proc/sys/user/max_user_namespaces"
	if out, err := exec.Command("nsenter", namespace, "sh", "-c", fill).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const ownMap = "grep -c ' 1$' /proc/self/uid_map" // lines for a single user: in the jail's namespace, root's alone
	for range 2 {
		if got := strings.TrimSpace(f.Sh(ownMap)); got != "1" {
			t.Errorf("in the full jail: %q lines", got)
		}
	}
	if got := strings.TrimSpace(frontOf(t, f.s, f.C, newRepo(t)).Sh(ownMap)); got != "2" {
		t.Errorf("in another jail: %q lines, want those of a namespace of the job's own", got)
	}
}

// hostIDs returns the user and group ids of a process as the host sees them.
func hostIDs(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for line := range strings.Lines(string(b)) {
		if name, value, _ := strings.Cut(line, ":"); name == "Uid" || name == "Gid" || name == "Groups" {
			ids = append(ids, strings.Fields(value)...)
		}
	}
	return strings.Join(ids, " ")
}

// members returns the processes named sleep of a supervisor's jobs.
func members(t *testing.T, s *Supervisor) []int { return processes(t, s, "sleep") }

// processes returns the processes of a supervisor's jobs that run program.
func processes(t *testing.T, s *Supervisor, program string) []int {
	t.Helper()
	var list []int
	seen := map[int]bool{}
	for _, pattern := range []string{"", "*/", "*/*/"} {
		files, _ := filepath.Glob("/sys/fs/cgroup/" + pattern + "corral/" + s.InstanceName() + "/user-*/*/job-*/cgroup.procs")
		for _, file := range files {
			b, _ := os.ReadFile(file) // gone with its job
			for _, word := range strings.Fields(string(b)) {
				pid, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				if !seen[pid] && comm(pid) == program {
					list = append(list, pid)
				}
				seen[pid] = true
			}
		}
	}
	return list
}

// TestHostUser: on the host each job has a user id of the jail's block that no other live job has, and no other
// group.
func TestHostUser(t *testing.T) {
	f := sharedFront(t)
	other := frontOf(t, f.s, f.C, newRepo(t))
	var jobs []*live
	for _, where := range []*front{f, f, other} {
		l, err := where.Start(where.Spec("sh", "-c", "echo up; exec sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		l.Until("up")
		jobs = append(jobs, l)
	}
	var pids []int
	eventually(t, func() string {
		if pids = members(t, f.s); len(pids) != len(jobs) {
			return fmt.Sprintf("processes %v", pids)
		}
		return ""
	})
	seen := map[string]bool{}
	for _, pid := range pids {
		ids := hostIDs(t, pid)
		id, _, _ := strings.Cut(ids, " ")
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil || n < host.DefaultUIDBase || n >= host.DefaultUIDBase+host.DefaultUIDSize {
			t.Errorf("user %s", id)
		}
		if ids != strings.TrimSpace(strings.Repeat(id+" ", 9)) {
			t.Errorf("ids %q: more than one, or another group", ids)
		}
		if seen[id] {
			t.Errorf("user %s has two jobs", id)
		}
		seen[id] = true
	}
	for _, l := range jobs {
		if err := l.Kill(); err != nil {
			t.Error(err)
		}
		if _, err := l.End(); err != nil {
			t.Error(err)
		}
	}
}

// TestOwnNumbers: the user and group of a job have the numbers of the repository's owner, in jobs that run at once as in those of a
// session, so that git's index stays right from one job to the next, and outside.
func TestOwnNumbers(t *testing.T) {
	f := sharedFront(t)
	want := fmt.Sprintf("%d:%d", owner, owner)
	script := `echo $(id -u):$(id -g) $(stat -c %u:%g .) $(grep -c "^job:x:$(id -u):$(id -g):" /etc/passwd) $(grep -c "^job:x:$(id -g):" /etc/group); exec sleep 1000`
	specs := []job.Spec{f.Spec("sh", "-c", script), f.Spec("sh", "-c", script), f.Spec("sh", "-c", script)}
	for _, of := range []job.SessionSpec{{}, {Workspace: job.Overlay}, {Workspace: job.Overlay, Share: true}} {
		spec := f.Spec("sh", "-c", script)
		spec.Session, spec.Workspace = f.Session(of).ID, of.Workspace
		specs = append(specs, spec)
	}
	for _, spec := range specs {
		l, err := f.Start(spec)
		if err != nil {
			t.Fatal(err)
		}
		l.Until(want + " " + want + " 1 1\n")
	}
}

// TestAttach: a tool attaches to a Java machine of the same job. It finds the other's directory for temporary files in /proc, and each
// compares the other's user and group with its own.
func TestAttach(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("javac"))
	f := newFront(t)
	put(t, f.Repo+"/Wait.java", `public class Wait {
		public static void main(String[] a) throws Exception { System.out.println("up"); Thread.sleep(600000); }
	}`, 0o644, owner)
	for way, d := range f.everyday(`java -Xint Wait.java >out & while ! grep -q up out; do kill -0 $! || exit; sleep 0.1; done; jcmd $! VM.version`) {
		if d.ExitCode != 0 || !strings.Contains(d.Out, "Server VM version") {
			t.Errorf("%s: %+v %q %s", way, d.Result, d.Out, d.Err)
		}
	}
}
