package isolate

import (
	"fmt"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/isolate/cell"
	"corral/job"
)

// jail returns the state of the jail of the front's repository.
func (f *front) jail() cell.JailState {
	f.T.Helper()
	for _, j := range f.s.standing() {
		if j.Repo == f.Repo {
			return j
		}
	}
	f.T.Fatal("no jail stands")
	return cell.JailState{}
}

// full waits until the jail has as many waiting slots as it wants, at least n, and no used ones. After several jobs in
// a row a jail wants more for a while.
func (f *front) full(n int) {
	f.T.Helper()
	eventually(f.T, func() string {
		if j := f.jail(); len(j.Waiting) != j.Want || j.Want < n || j.Used != 0 {
			return fmt.Sprintf("%d slots wait of %d, %d are used", len(j.Waiting), j.Want, j.Used)
		}
		return ""
	})
}

// TestSlotsAreUsedOnce: no job finds anything that another left, though each takes a slot that waited. (The kernel
// reuses namespace numbers, so they prove nothing.)
func TestSlotsAreUsedOnce(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	f := sharedFront(t)
	for range 12 {
		found := f.Sh("ls /tmp/mine /dev/shm/mine 2>/dev/null; tail -n +2 /proc/sysvipc/shm; grep mine /proc/net/unix; touch /tmp/mine /dev/shm/mine; " +
			`perl -e 'shmget(7, 4096, 01600) // die; use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un("\0mine")) or die'`)
		if found != "" {
			t.Errorf("a job found %q", found)
		}
	}
}

// TestFirstOutcomeWins: the first request to end a job determines the outcome, however many there are.
func TestFirstOutcomeWins(t *testing.T) {
	f := sharedFront(t)
	for range 20 {
		spec := f.Spec("sleep", "5")
		spec.Limits.Wall = 30 * time.Millisecond
		l, err := f.Start(spec)
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{})
		time.AfterFunc(28*time.Millisecond, func() {
			defer close(asked)
			for range 4 {
				_ = l.Kill()
			}
		})
		d, err := l.End()
		<-asked
		if err != nil || d.Status != job.Timeout && d.Status != job.Cancelled {
			t.Errorf("%+v %v", d.Result, err)
		}
	}
}

// TestDiskLimitAtExit: a job that exceeds its limit with its last action is not left frozen, and nothing that waits
// for it hangs.
func TestDiskLimitAtExit(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("fallocate"))
	f := newFront(t)
	spec := f.Spec("sh", "-c", "mkdir -p $(seq -f d%g 2000); echo >>.envrc; exec fallocate -l 24M f$$")
	spec.Limits.Disk = 4 << 20
	for range sandboxtest.Scale(20) {
		if _, err := f.Try(spec); err != nil {
			t.Error(err)
		}
		f.Sh("rm -rf d* f* .envrc")
	}
	eventually(t, func() string {
		if used := f.jail().Used; used != 0 {
			return fmt.Sprintf("%d slots are not torn down", used)
		}
		return ""
	})
}
