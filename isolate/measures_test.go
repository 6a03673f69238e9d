package isolate

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/inside"
	"corral/job"
)

// A trial shows what measures prevent, see inside.Measures. try makes a job attempt it and returns what came of it. With open, all of
// the measures are left out: then the job that nothing ends should end by itself soon.
//
// measures lists the steps and measures each of which alone prevents it, as in attempt. seen is the result without all of them.
type trial struct {
	name       string
	measures   string
	want, seen string
	try        func(f *front, open bool) string
}

// trials do not harm a host that does not contain them: their numbers are bounded, and they affect only jobs of their own jail.
var trials = []trial{
	// One job sees what another one of the same jail does.
	{"mounts", inside.MountNamespace, "same", "changed", between(`sub mounts { open(my $f, "<", "/proc/self/mountinfo") or return "none"; join "", <$f> }
		my $before = mounts();`, `mounts() eq $before ? "same" : "changed"`, ``)},
	{"processes", inside.PIDNamespace, "hidden", "seen", between(``,
		`(grep { $_ != $$ && (kill(0, $_) || $! == 1) } 2..1000) ? "seen" : "hidden"`, ``)}, // error 1 is EPERM: there is such a process
	{"port", inside.NetworkNamespace, "refused", "canary", between(``,
		`socket(my $c, PF_INET, SOCK_STREAM, 0); connect($c, sockaddr_in(7007, INADDR_LOOPBACK)) ? <$c> : "refused"`,
		`socket(my $s, PF_INET, SOCK_STREAM, 0); bind($s, sockaddr_in(7007, INADDR_LOOPBACK)) && listen($s, 1) or die "bind: $!";
		if (!fork) { accept(my $c, $s); syswrite($c, "canary"); exit }`)},
	{"shared memory", inside.IPCNamespace, "none", "found", between(``,
		`defined shmget(7007, 4096, 0) ? "found" : "none"`, `defined shmget(7007, 4096, 01666) or die "shmget: $!";`)},
	{"host name", inside.UTSNamespace + " seccomp " + powerless, "jail", "canary", between(``,
		`my $u = "\0" x 390; `+fmt.Sprintf("syscall(%d, $u)", unix.SYS_UNAME)+`; unpack("Z65", substr($u, 65))`,
		fmt.Sprintf(`my $name = "canary"; syscall(%d, $name, 6);`, unix.SYS_SETHOSTNAME))},

	// A job uses more than its limit.
	{"memory", inside.MemoryLimit, "memory", "survived", oneJob(job.Limits{Memory: 32 << 20}, `my $x = "x" x (128 << 20);`)},
	{"processes of a job", inside.PIDsLimit + " rlimits", "died", "survived", oneJob(job.Limits{PIDs: 20},
		`for (1..40) { my $p = fork // die "fork: $!"; if (!$p) { sleep 1000 } }`)},
	{"CPU time", inside.CPULimit, "timeout", "survived", compute},
	{"disk space", inside.DiskWatch, "disk", "survived", lingering(job.Limits{Disk: 2 << 20},
		`open(my $f, ">", "big"); syswrite($f, "x" x (1 << 20)) for 1..8; close $f; system("sync", "big");`)},
	{"locks", inside.LockWatch, "locks", "survived", lingering(job.Limits{}, takeLocks+`take(400_000);`)},
	{"time", inside.Deadline + " " + inside.StubDeadline, "timeout", "survived", lingering(job.Limits{Wall: 300 * time.Millisecond}, ``)},
	{
		"the kill", strings.Join([]string{inside.Kill, inside.StubEnd, inside.StubDeadline}, " "), "timeout", "not ended",
		// At its deadline, the job must ignore the signal.
		lingering(job.Limits{Wall: 1500 * time.Millisecond, KillAfter: 300 * time.Millisecond}, `$SIG{TERM} = "IGNORE";`),
	},
}

// TestMeasures leaves out each measure, and those that prevent a trial together, and checks that exactly the latter change its result.
func TestMeasures(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	tried := map[string]bool{}
	for _, x := range trials {
		all := strings.Fields(x.measures)
		sets := [][]string{nil, all}
		for _, m := range all {
			tried[m] = true
			if len(all) > 1 {
				sets = append(sets, []string{m})
			}
		}
		for _, skipped := range sets {
			t.Run(x.name+"/"+cmp.Or(strings.Join(skipped, " "), "complete"), func(t *testing.T) {
				t.Parallel()
				x.check(t, skipped, len(skipped) == len(all))
			})
		}
	}
	for _, a := range attempts {
		for _, m := range a.steps() {
			tried[m] = true
		}
	}
	for _, m := range inside.Measures {
		if !tried[m] {
			t.Errorf("no trial leaves out %s", m)
		}
	}
}

// check makes the trial in a jail without some measures. open: it has none of the trial's.
func (x trial) check(t *testing.T, skipped []string, open bool) {
	if slices.Contains(strings.Fields(x.measures), inside.LockWatch) {
		if _, err := hostLocks(); err != nil {
			t.Skip(err)
		}
	}
	for _, m := range skipped {
		skipped = slices.Concat(skipped, companions[m])
	}
	f := newFront(t, skip(t, skipped), func(c *Config) {
		c.Slots = -1 // the trials are about two jobs, and a waiting slot would be a third
		if open {
			c.switches.Ending = 2 * time.Second // for a job that nothing ends
		}
	})
	f.leaveTmp(skipped)
	want := x.want
	if open {
		want = x.seen
	}
	if got := x.try(f, open); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// between returns a trial of two jobs: the first one runs begin, then the second one runs act, then the first one writes the value of
// look.
func between(begin, look, act string) func(*front, bool) string {
	return func(f *front, _ bool) string {
		f.T.Helper()
		const prelude = `use Socket; $| = 1; `
		first := f.Launch(f.Spec("perl", "-e", prelude+begin+` print "ready\n"; <STDIN>; my $seen = do { `+look+` }; print $seen`))
		second := f.Launch(f.Spec("perl", "-e", prelude+act+` print "ready\n"; <STDIN>`))
		d, err := first.End()
		if err != nil || d.Status != job.Success {
			f.T.Errorf("the first job: %+v %s %v", d.Result, d.Err, err)
		}
		if d, err := second.End(); err != nil || d.Status != job.Success {
			f.T.Logf("the second job: %+v %s %v", d.Result, d.Err, err) // without its namespace, the end of the first one can end it
		}
		return strings.TrimPrefix(d.Out, "ready\n")
	}
}

// oneJob returns a trial of one job, which writes that it survived unless it was ended.
func oneJob(limits job.Limits, script string) func(*front, bool) string {
	return func(f *front, _ bool) string {
		f.T.Helper()
		spec := f.Spec("perl", "-e", script+` print "survived"`)
		spec.Limits = limits
		d, err := f.Try(spec)
		switch {
		case err != nil && strings.Contains(err.Error(), os.ErrDeadlineExceeded.Error()):
			return "not ended"
		case err != nil:
			f.T.Fatal(err)
		case d.Status == job.Timeout && d.Out != "":
			return "not ended"
		case d.Status == job.Timeout:
			return "timeout"
		case d.Status == job.Failure && d.Signal == 0:
			return "died"
		case d.Limit != "" && d.Out == "":
			return d.Limit
		}
		return d.Out
	}
}

// compute is a trial of a job that needs 0.3 s of CPU time. With its limit that takes half a minute, and its deadline comes first.
func compute(f *front, open bool) string {
	f.T.Helper()
	limits := job.Limits{MilliCPUs: 10, Wall: 2 * time.Second}
	if open {
		limits.Wall = sandboxtest.Slow(time.Minute)
	}
	script := `my ($n, $user, $system); do { $n++ for 1..10_000; ($user, $system) = times } while $user + $system < 0.3;`
	return oneJob(limits, script)(f, open)
}

// lingering is oneJob for a job that the supervisor ends a while after the script. If nothing ends it, it writes that it survived after
// some intervals of the supervisor's watches.
func lingering(limits job.Limits, script string) func(*front, bool) string {
	return func(f *front, open bool) string {
		f.T.Helper()
		rest := sandboxtest.Slow(time.Minute)
		if open {
			rest = 3 * time.Second
		}
		if limits.Wall == 0 {
			limits.Wall = 2 * sandboxtest.Slow(time.Minute)
		}
		return oneJob(limits, script+" sleep "+strconv.Itoa(int(rest.Seconds()))+";")(f, open)
	}
}
