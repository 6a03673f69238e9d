package isolate

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/job"
)

// A writable is a configuration that a test changes while its supervisor runs.
type writable struct {
	mu    sync.Mutex
	c     Config // guarded by mu: what the next reload reads
	err   error  // guarded by mu: why it cannot be read
	reads atomic.Int64
}

// reloadable starts a supervisor that serves only listed repositories, and connects to it as the owner of a new one of those.
func reloadable(t testing.TB, change ...func(*Config)) (*front, *writable) {
	t.Helper()
	w := &writable{}
	repo := newRepo(t)
	s := supervise(t, func(c *Config) {
		c.Own, c.Repos = false, []admit.Entry{{Path: repo}}
		for _, f := range change {
			f(c)
		}
		w.c = *c
		c.Again = func() (Config, error) {
			w.reads.Add(1)
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.c, w.err
		}
	})
	return frontOf(t, s, connect(t, s, host.Peer{UID: owner}), repo), w
}

func (w *writable) write(f func(c *Config)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.c)
}

// reload asks for a reload as root, over a connection.
func (f *front) reload() []string {
	f.T.Helper()
	notes, err := connect(f.T, f.s, host.Peer{}).Reload()
	if err != nil {
		f.T.Fatal(err)
	}
	return notes
}

func refusedFor(err error, part string) bool {
	var refusal *job.Refusal
	return errors.As(err, &refusal) && strings.Contains(refusal.Message, part)
}

// TestReload: new values apply to jobs that come after a reload; a job that runs keeps its own, and its jail until it ends.
func TestReload(t *testing.T) {
	f, w := reloadable(t)
	added := frontOf(t, f.s, f.C, newRepo(t))
	if _, err := added.Try(added.Spec("true")); !refusedFor(err, "does not serve") {
		t.Fatalf("a repository that is not configured: %v", err)
	}
	f.Sh("true")
	running, err := f.Start(f.Spec("sh", "-c", "echo up; read x; ulimit -f; echo $x"))
	if err != nil {
		t.Fatal(err)
	}
	running.Until("up")
	w.write(func(c *Config) {
		c.Repos = []admit.Entry{{Path: added.Repo}}
		c.Ceilings = job.Limits{FileSize: 1 << 20}
	})
	if notes := f.reload(); len(notes) > 0 {
		t.Errorf("notes %q", notes)
	}
	if got := added.Sh("ulimit -f"); got != "2048" && got != "1024" {
		t.Errorf("file size %s blocks after a reload with a ceiling of 1 MiB", got)
	}
	if _, err := f.Try(f.Spec("true")); !refusedFor(err, "does not serve") {
		t.Errorf("a repository that was removed: %v", err)
	}
	if _, err := running.In.WriteString("well\n"); err != nil {
		t.Error(err)
	}
	if d, err := running.End(); err != nil || d.Out != "up\nunlimited\nwell\n" {
		t.Errorf("the job that ran: %q, %v", d.Out, err)
	}
	eventually(t, func() string { // the jail of the removed repository does not wait until it has been idle
		for _, j := range f.s.standing() {
			if j.Repo == f.Repo {
				return "the jail of the removed repository stands"
			}
		}
		return ""
	})
	w.write(func(c *Config) { c.Repos = append(c.Repos, admit.Entry{Path: f.Repo}) })
	f.reload()
	f.Sh("true")
}

// TestReloadDropsIdleJail: a jail that no job uses ends with the reload that removes its repository.
func TestReloadDropsIdleJail(t *testing.T) {
	f, w := reloadable(t)
	f.Sh("true")
	w.write(func(c *Config) { c.Repos = nil })
	f.reload()
	eventually(t, func() string {
		if n := len(f.s.standing()); n > 0 {
			return fmt.Sprintf("%d jails", n)
		}
		return ""
	})
}

// TestReloadSession: a session stays open when its repository is removed, and its next job is refused.
func TestReloadSession(t *testing.T) {
	f, w := reloadable(t)
	ss := f.Session(job.SessionSpec{})
	f.Must(ss, "true")
	w.write(func(c *Config) { c.Repos = nil })
	f.reload()
	spec := f.Spec("true")
	spec.Session, spec.Workspace = ss.ID, ss.Workspace
	if _, err := f.Try(spec); !refusedFor(err, "does not serve") {
		t.Errorf("a job in the session: %v", err)
	}
	w.write(func(c *Config) { c.Repos = []admit.Entry{{Path: f.Repo}} })
	f.reload()
	f.Must(ss, "true")
}

// TestReloadFaulty: a configuration that cannot be read changes nothing, and both the caller and the log get the reason.
func TestReloadFaulty(t *testing.T) {
	var log sandboxtest.Output
	f, w := reloadable(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for _, tt := range []struct {
		want   string
		change func()
	}{
		{"config.yaml:3: max_jobs must be", func() { w.err = errors.New("config.yaml:3: max_jobs must be a number") }},
		{"layer sizes", func() { w.err, w.c.Layers.Disk = nil, 1 }},
	} {
		w.write(func(c *Config) {
			c.Repos = nil
			tt.change()
		})
		_, err := connect(t, f.s, host.Peer{}).Reload()
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(log.String(), tt.want) {
			t.Errorf("%s: %v, and in the log %q", tt.want, err, log.String())
		}
		f.Sh("true")
	}
}

// TestReloadNotes: the answer names what needs a restart and the repositories that are not served.
func TestReloadNotes(t *testing.T) {
	f, w := reloadable(t)
	w.write(func(c *Config) {
		c.Connections.Job = 7
		c.Slots, c.Audit.Each, c.UIDSize = 3, true, host.DefaultUIDSize-0x1000
		c.Repos = append(c.Repos, admit.Entry{Path: "/nonexistent/repo"})
	})
	notes := strings.Join(f.reload(), "\n")
	for _, want := range []string{"uids was changed: needs a restart", "warm_slots was", "network_connections was", "audit was", `/nonexistent/repo is not served: no directory`} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in\n%s", want, notes)
		}
	}
	if strings.Contains(notes, "toolchains") || strings.Contains(notes, "max_warm_slots") {
		t.Errorf("keys that did not change in\n%s", notes)
	}
	f.Sh("true")
}

// TestReloadRootOnly: nobody but root at a daemon's socket makes the supervisor read its configuration.
func TestReloadRootOnly(t *testing.T) {
	f, w := reloadable(t)
	w.write(func(c *Config) { c.Repos = nil })
	for _, peer := range []host.Peer{{UID: owner}, {UID: 100_000, Holder: owner}, {UID: 0, Embedded: true}, {UID: 0, Embedded: true, Images: true}} {
		if _, err := connect(t, f.s, peer).Reload(); err == nil || !strings.Contains(err.Error(), "only root may") {
			t.Errorf("%+v: %v", peer, err)
		}
	}
	if n := w.reads.Load(); n != 0 {
		t.Errorf("the configuration was read %d times", n)
	}
	f.Sh("true")
}

// TestReloadsWhileJobsRun: no job is lost or refused while the configuration is read a thousand times, with other values
// each time, and five thousand jobs start and end.
func TestReloadsWhileJobsRun(t *testing.T) {
	other := newRepo(t)
	f, w := reloadable(t, func(c *Config) { c.Repos = append(c.Repos, admit.Entry{Path: other}) })
	long, err := f.Start(f.Spec("sh", "-c", "echo up; read x; echo $x"))
	if err != nil {
		t.Fatal(err)
	}
	long.Until("up")
	part := 20 // nearly each job is the first of its jail, which takes ten times as long as the next
	if sandboxtest.Soak() {
		part = 1
	}
	reloads, least := sandboxtest.Scale(1000/part), int64(sandboxtest.Scale(5000/part))
	var reloaded atomic.Bool
	var jobs sync.WaitGroup
	var ran atomic.Int64
	one := func() bool {
		d, err := f.Try(f.Spec("echo", "ran"))
		if err != nil || d.Out != "ran\n" {
			t.Errorf("%q, %v", d.Out, err)
			return false
		}
		ran.Add(1)
		return true
	}
	for range 3 {
		jobs.Go(func() {
			for (ran.Load() < least || !reloaded.Load()) && one() {
			}
		})
	}
	const callers = 4
	// Each reload comes after its share of the jobs, so that jobs start and end between any two.
	share := func(n int64) bool { return ran.Load()*int64(reloads) >= (n-1)*least }
	var asked atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			root := connect(t, f.s, host.Peer{})
			for n := asked.Add(1); n <= int64(reloads); n = asked.Add(1) {
				for !share(n) && one() {
				}
				w.write(func(c *Config) {
					c.Repos = []admit.Entry{{Path: f.Repo}}
					if n%2 == 0 {
						c.Repos = append(c.Repos, admit.Entry{Path: other})
					}
					c.MaxJobs, c.MaxJails, c.JailIdle = 100+int(n), 100+int(n), time.Duration(1+n%3)*time.Millisecond
					c.Ceilings.Memory = 4<<30 + n
				})
				if _, err := root.Reload(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	reloaded.Store(true)
	jobs.Wait()
	if _, err := long.In.WriteString("well\n"); err != nil {
		t.Error(err)
	}
	if d, err := long.End(); err != nil || d.Out != "up\nwell\n" {
		t.Errorf("the job that ran all the time: %q, %v", d.Out, err)
	}
	if ran.Load() < least || w.reads.Load() == 0 || w.reads.Load() > int64(reloads) {
		t.Errorf("%d jobs, %d readings for %d reloads", ran.Load(), w.reads.Load(), reloads)
	}
	t.Logf("%d reloads in %d readings, %d jobs", reloads, w.reads.Load(), ran.Load())
}
