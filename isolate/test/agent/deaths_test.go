package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// TestRealDeaths: whichever process is killed while a real agent works, nothing is left of the job: no process, also none that is in one of
// its namespaces, which end with it, no cgroup, no mount and no instance. The repository is as it was, and the agent has the
// conversations that it kept: it goes on with the last one. Its changes are kept, unless the supervisor was killed.
func TestRealDeaths(t *testing.T) {
	for _, a := range reals[:2] {
		t.Run(a.name, func(t *testing.T) {
			p := newPlace(t)
			program := a.installed(t)
			agent := []string{"--program", program, a.name}
			p.steps = []string{"echo what was $((1000 + 1))"}
			if c := p.run(append(agent, a.words...)...); c.Code() != 0 {
				t.Fatalf("%d %.3000q %q", c.Code(), c.Out.String(), c.Err.String())
			}
			for _, victim := range []string{"corral", "corrald", filepath.Base(program), "corral-egress"} {
				p.dies(victim, append(agent, a.words...)...)
			}
			p.take()
			c := p.run(append(agent, a.next...)...)
			said, state := bodies(p.take()), p.archive(a.name)
			if c.Code() != 0 || !strings.Contains(said, "setsid sleep") || !strings.Contains(state, "what was 1001") {
				t.Errorf("the next time: %d %.2000q %q, and requests %.3000q; the archive has %d bytes", c.Code(), c.Out.String(), c.Err.String(),
					said, len(state))
			}
		})
	}
}

// dies kills a process of a run, whose agent has a command that goes on, and checks that nothing is left.
func (p *place) dies(victim string, args ...string) {
	p.t.Helper()
	mark := fmt.Sprintf("4323.%d", os.Getpid())
	p.mu.Lock()
	p.steps = []string{"echo three >>file; setsid sleep " + mark + " & sleep " + mark}
	p.mu.Unlock()
	state, mounts, layers := p.archive(args[2]), mountinfo(p.t), p.layers()
	c := sandboxtest.Start(p.t, p.command(append([]string{"agent"}, args...)...))
	sandboxtest.Eventually(p.t, time.Minute, "the command runs", func() bool { return len(sleeping(mark)) == 2 })
	instance := fmt.Sprintf("embedded-%d", sandboxtest.Children(p.t, c.Process.Pid)[0])
	all := append(below(c.Process.Pid), c.Process.Pid)
	spaces := namespaces(all)
	if len(sandboxtest.Leftovers(instance)) == 0 || len(spaces) == 0 {
		p.t.Fatalf("%s has nothing, or its processes %d have no namespaces", instance, all)
	}
	victims := slices.DeleteFunc(all, func(pid int) bool { return comm(pid) != victim })
	if len(victims) == 0 {
		p.t.Fatalf("there is no %s", victim)
	}
	for _, pid := range victims {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if victim == "corral-egress" { // another one takes its place, and the agent goes on when its command has ended
		for _, pid := range sleeping(mark) {
			n, _ := strconv.Atoi(pid)
			_ = unix.Kill(n, unix.SIGKILL)
		}
	}
	if !c.EndsWithin(time.Minute) || (c.Code() == 0) != (victim == "corral-egress") {
		p.t.Errorf("%s: %d %.3000q %q", victim, c.Code(), c.Out.String(), c.Err.String())
	}
	sandboxtest.Eventually(p.t, time.Minute, "no process is left", func() bool { return len(sleeping(mark)) == 0 && len(in(spaces)) == 0 })
	if victim == "corrald" { // the next one removes what it has left
		next := p.run("--ephemeral", "--direct", "--", "true")
		if next.Code() != 0 {
			p.t.Errorf("afterwards: %d %q", next.Code(), next.Err.String())
		}
	}
	sandboxtest.Eventually(p.t, 10*time.Second, "the instance is gone", func() bool { return len(sandboxtest.Leftovers(instance)) == 0 })
	if after := mountinfo(p.t); after != mounts {
		p.t.Errorf("%s: the mounts were %q, and are %q", victim, mounts, after)
	}
	p.intact(victim, args[2], state)
	if victim != "corrald" { // whose layers have no name until they are kept
		layers++
	}
	if got := p.layers(); got != layers {
		p.t.Errorf("%s: the changes of %d runs are kept, want %d", victim, got, layers)
	}
}

// layers returns the number of runs whose changes are kept.
func (p *place) layers() int {
	p.t.Helper()
	c := sandboxtest.Start(p.t, p.command("session", "list"))
	if !c.EndsWithin(time.Minute) || c.Code() != 0 {
		p.t.Fatalf("%d %q", c.Code(), c.Err.String())
	}
	return strings.Count(c.Out.String(), "  "+p.repo+"\n")
}

// intact checks the repository and the archive, which is the one that was there if nobody is left who writes another one.
func (p *place) intact(victim, agent, state string) {
	p.t.Helper()
	entries, err := os.ReadDir(p.repo)
	if b, _ := os.ReadFile(filepath.Join(p.repo, "file")); err != nil || len(entries) != 1 || string(b) != "one\ntwo\n" {
		p.t.Errorf("%s: the repository has %v, %v, and the file %q", victim, entries, err, b)
	}
	dir := filepath.Join(p.home, ".local/state/corral/agents")
	kept := p.archive(agent)
	if strings.HasPrefix(victim, "corral") && victim != "corral-egress" && kept != state {
		p.t.Errorf("%s: the archive is another one", victim)
	}
	if out, err := exec.Command("tar", "-tf", filepath.Join(dir, agent+".tar")).CombinedOutput(); err != nil {
		p.t.Errorf("%s: the archive: %v %.2000q", victim, err, out)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		p.t.Errorf("%s: beside the archive are %v", victim, entries)
	}
}

// comm returns the name of a process.
func comm(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(b))
}

// namespaces returns those of mounts and processes that processes have, without the test's own.
func namespaces(pids []int) map[string]bool {
	found := map[string]bool{}
	for _, kind := range []string{"mnt", "pid"} {
		own, _ := os.Readlink("/proc/self/ns/" + kind)
		for _, pid := range pids {
			if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind)); err == nil && ns != own {
				found[ns] = true
			}
		}
	}
	return found
}

// in returns the namespaces among spaces that some process of the machine has.
func in(spaces map[string]bool) (left []string) {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	for ns := range namespaces(pids) {
		if spaces[ns] {
			left = append(left, ns)
		}
	}
	return left
}

// mountinfo returns the mounts of the test.
func mountinfo(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
