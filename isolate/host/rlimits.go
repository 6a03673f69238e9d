package host

import (
	"fmt"

	"golang.org/x/sys/unix"

	"corral/isolate/inside"
	"corral/job"
)

// Rlimits returns the limits of setrlimit(2) for a job with limits l. others is the number of processes that the
// job's user may have besides the job's: the kernel counts processes by user, and in a session the stubs of waiting
// slots have the same user. The values follow security practice for containers; resources that a cgroup bounds better
// are not limited here (RLIMIT_AS would break runtimes that reserve address space).
func Rlimits(l job.Limits, others int) []inside.Rlimit {
	both := func(resource int, v int64) inside.Rlimit {
		return inside.Rlimit{Resource: resource, Soft: uint64(v), Hard: uint64(v)}
	}
	list := []inside.Rlimit{
		both(unix.RLIMIT_CORE, 0),
		both(unix.RLIMIT_NOFILE, l.OpenFiles),
		both(unix.RLIMIT_NPROC, l.PIDs+int64(others)),
		both(unix.RLIMIT_MEMLOCK, 8<<20),
		both(unix.RLIMIT_MSGQUEUE, 819200),
		both(unix.RLIMIT_SIGPENDING, 4096),
		both(unix.RLIMIT_RTPRIO, 0),
		both(unix.RLIMIT_NICE, 0),
		{Resource: unix.RLIMIT_STACK, Soft: 8 << 20, Hard: unix.RLIM_INFINITY},
	}
	if l.FileSize != job.Unlimited {
		list = append(list, both(unix.RLIMIT_FSIZE, l.FileSize))
	}
	return list
}

// CheckRlimits returns a *job.Refusal if l has more than the hard limits of this process, which its children have, too: a job cannot raise
// them.
func CheckRlimits(l job.Limits) error {
	resources := map[*int64]int{&l.OpenFiles: unix.RLIMIT_NOFILE, &l.PIDs: unix.RLIMIT_NPROC, &l.FileSize: unix.RLIMIT_FSIZE}
	for _, f := range l.Fields() {
		resource, ok := resources[f.Value]
		if !ok || *f.Value == job.Unlimited {
			continue
		}
		var own unix.Rlimit
		if err := unix.Getrlimit(resource, &own); err != nil {
			return fmt.Errorf("getrlimit: %w", err)
		}
		if uint64(*f.Value) <= own.Max {
			continue
		}
		return &job.Refusal{
			Step: "limits",
			Message: fmt.Sprintf("%s: %s is more than the supervisor itself may have on this host, which is %s",
				f.Name, f.Format(*f.Value), f.Format(int64(own.Max))),
			Hint: fmt.Sprintf("ask for less with --%s, or raise the hard limit of the supervisor (ulimit -H, Limit… of corrald.service)", f.Option),
		}
	}
	return nil
}
