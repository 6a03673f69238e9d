package doctor

import (
	"time"

	"corral/job"
)

// Probes that more than one row looks at, or that the examination knows.
var (
	simple = &probe{script: "echo ready"}

	// self prints what the kernel says of the job. Files of /proc/self are cat's, which is confined as its parent is.
	self = &probe{script: `
		for f in status uid_map mountinfo limits; do echo "@$f"; cat /proc/self/$f; done
		echo @ns; for n in cgroup ipc mnt net pid user uts; do echo "$n: $(readlink /proc/self/ns/$n)"; done
		echo @devices; cat /proc/net/dev
		echo @sockets; cat /proc/net/unix
		echo @id; id -u
		echo @owner; stat -c %u owned
		echo @owned; cat owned
		echo @processes; ls -d /proc/[0-9]*
		echo @unshare; command -v unshare >/dev/null && unshare --user true 2>&1 && echo made
		touch made`}
)

// checks are all of them, in the order of the report. The first has the job that does nothing but run.
func checks() []check {
	return append(append(append(identityChecks(), accessChecks()...), limitChecks()...), hostChecks()...)
}

func identityChecks() []check {
	return []check{
		{
			"jobs run", "a program runs in a jail of its own",
			"start corrald as a service, or run with sudo", simple, judgeSimple,
		},
		{
			"identity", "a job is nobody on the host, and never root",
			"give uids of the configuration a range that nobody else has", self, judgeIdentity,
		},
		{
			"user ids", "ids of jobs are in no range that users of the host make containers of",
			"set uids.base in the configuration outside of the ranges in /etc/subuid", self, judgeRange,
		},
		{
			"files", "what a job makes belongs to the repository's owner, whose files it can use",
			"keep repositories on ext4, xfs or btrfs", self, judgeFiles,
		},
		{
			"id-mapped mounts", "the repository's file system maps owners to the job's user",
			"keep repositories on ext4, xfs, btrfs or, from Linux 6.3, tmpfs", self, judgeIDMap,
		},
		{
			"namespaces", "a job has mounts, processes, network, IPC, host name and users of its own",
			"use a kernel with all namespaces (CONFIG_NAMESPACES, CONFIG_USER_NS, CONFIG_CGROUPS)", self, judgeNamespaces,
		},
		{
			"processes", "a job sees no process but its own",
			"report it: a new procfs should be in each job", self, judgeProcesses,
		},
		{
			"privileges", "a job has no capability, and nothing it executes gains any",
			"report it: capabilities and no_new_privs are the kernel's everywhere", self, judgePrivileges,
		},
		{
			"system calls", "a filter leaves a job the calls that programs need",
			"use a kernel with CONFIG_SECCOMP_FILTER", self, judgeFilter,
		},
		{
			"landlock", "a second lock on files, should a mount be wrong",
			"use Linux 5.13 or later with landlock among the security modules (lsm= on the kernel's command line)", nil, judgeLandlock,
		},
	}
}

func accessChecks() []check {
	return []check{
		{
			"network", "a job has no network but a loopback of its own",
			"use a kernel with CONFIG_NET_NS", self, judgeNetwork,
		},
		{
			"host's services", "what listens on the host's loopback cannot be reached",
			"report it: a network namespace should keep them apart",
			&probe{script: `
				if command -v bash; then bash -c ": <>/dev/tcp/127.0.0.1/$` + baitPort + `" && echo reached
				elif command -v perl; then perl -MIO::Socket::INET -e 'exit !IO::Socket::INET->new(
					PeerAddr => "127.0.0.1", PeerPort => $ENV{` + baitPort + `}, Timeout => 2)' && echo reached
				else echo untried; fi; true`}, judgeServices,
		},
		{
			"host's files", "files outside of the repository cannot be seen",
			"report it: only system directories and toolchains should be in a jail",
			&probe{script: `for f in "$` + baitFile + `" /etc/shadow /etc/machine-id /etc/ssh /root /boot /var/log /var/lib; do
				[ -e "$f" ] && echo "sees $f"; done; true`}, judgeNothing,
		},
		{
			"kernel's files", "memory, log and addresses of the kernel cannot be read",
			"report it: these files of /proc should be masked",
			&probe{script: `for f in /proc/kcore /proc/kmsg /proc/kallsyms /proc/keys /proc/timer_list /proc/cmdline /dev/mem /dev/kmsg; do
				[ -r $f ] && [ "$(head -c 16 $f 2>/dev/null | wc -c)" -gt 0 ] && echo "reads $f"; done; true`}, judgeNothing,
		},
		{
			"kernel's settings", "the kernel's settings cannot be changed",
			"report it: /proc/sys should be read-only and /proc/sysrq-trigger masked",
			&probe{script: `grep ' /proc/sys ' /proc/self/mountinfo | grep -q ' ro,' || echo "/proc/sys is no read-only mount"
				for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/vm/drop_caches /proc/sysrq-trigger; do
				[ -w $f ] && echo "writes $f"; done; true`}, judgeNothing,
		},
		{
			"environment", "variables of who asks for a job, and their secrets, do not come with it",
			"report it: a job should have the variables it was given",
			&probe{args: []string{"env"}}, judgeEnvironment,
		},
		{
			"sensitive paths", "a job that plants a program for the host's tools is reported",
			"report it: git's hooks are among the sensitive paths",
			&probe{script: `mkdir -p .git/hooks && echo 'exit 0' >.git/hooks/post-checkout`}, judgeSensitive,
		},
		{
			"sessions", "what a session's jobs write is theirs alone, on a layer that has an end",
			"install e2fsprogs, load the loop driver, and keep the state directory on ext4, xfs or btrfs",
			&probe{script: `echo here >layered && cat layered && head -c 100000000 /dev/zero >big`, layer: layerSize}, judgeSession,
		},
	}
}

// Sizes and counts of the probes below. What a program tries is far above its limit.
const (
	memoryLimit = 32 << 20
	pidsLimit   = 16
	cpuLimit    = 200 // thousandths
	sizeLimit   = 1 << 20
	layerSize   = 32 << 20
)

func limitChecks() []check {
	return []check{
		{
			"memory limit", "a job that takes too much memory is ended, not the host",
			"enable the memory controller (cgroup_enable=memory on the kernel's command line)",
			&probe{script: "head -c 100000000 /dev/zero | tail", limits: job.Limits{Memory: memoryLimit}}, judgeMemory,
		},
		{
			"process limit", "a job that forks without end stops at its limit",
			"enable the pids controller (CONFIG_CGROUP_PIDS)",
			&probe{
				script: "i=0; while [ $i -lt 40 ]; do sleep 9 >/dev/null 2>&1 & i=$((i+1)); echo $i; done",
				limits: job.Limits{PIDs: pidsLimit, Wall: 3 * time.Second},
			}, judgePIDs,
		},
		{
			"CPU limit", "a job that computes without end has its share and no more",
			"use a kernel with CONFIG_CFS_BANDWIDTH",
			&probe{script: "while :; do :; done", limits: job.Limits{MilliCPUs: cpuLimit, Wall: 600 * time.Millisecond}}, judgeCPU,
		},
		{
			"deadline", "at its deadline all of a job is killed, also what hides in another session and ignores signals",
			"report it: the kernel should kill a job's whole cgroup",
			&probe{
				script: `trap '' TERM HUP INT; setsid sh -c 'trap "" TERM HUP INT; while :; do sleep 60; done' & while :; do sleep 60; done`,
				limits: job.Limits{Wall: 300 * time.Millisecond},
			}, judgeDeadline,
		},
		{
			"temporary files", "what a job writes to /tmp is bounded, and only the job's",
			"report it: each job should have a tmpfs of its own",
			&probe{
				script: "head -c 8000000 /dev/zero >/tmp/fill; stat -c %s /tmp/fill",
				limits: job.Limits{Tmp: sizeLimit},
			}, judgeTmp,
		},
		{
			"disk limit", "a job that fills the repository is ended",
			"keep repositories on a local file system",
			&probe{
				script: "head -c 16000000 /dev/zero >fill; sleep 5; stat -c %s fill",
				limits: job.Limits{Disk: sizeLimit, Wall: 10 * time.Second},
			}, judgeDisk,
		},
		{
			"start", "a job starts in milliseconds",
			"use a quieter machine", &probe{args: []string{"true"}, repeat: 10}, judgeStart,
		},
	}
}

func hostChecks() []check {
	return []check{
		{
			"cgroup", "limits are the kernel's, and a job is killed as one",
			"use one hierarchy (systemd.unified_cgroup_hierarchy=1) and Linux 5.14 or later", simple, judgeCgroup,
		},
		{
			"swap", "a limit of memory is not got round by swap",
			"swapoff -a, or boot with swapaccount=1", simple, judgeSwap,
		},
		{
			"open files", "all connections, jails and jobs that the configuration allows find files left to open, whatever one job takes",
			"sysctl -w fs.file-max= that number, in /etc/sysctl.d to stay; or lower max_jobs, max_jails, max_warm_slots, or pids and open_files of the defaults",
			simple, judgeOpenFiles,
		},
		{
			"kernel", "the kernel is of a series that is kept",
			"use Linux 6.1 or later, with its distribution's updates", nil, judgeKernel,
		},
		{
			"CPU flaws", "what a CPU leaks between programs is closed by the kernel",
			"update microcode and kernel, take mitigations=off away; for secrets on the same machine use a virtual machine", nil, judgeFlaws,
		},
		{
			"crashes", "the host runs no program of its own on a job's crash",
			"sysctl -w kernel.core_pattern=core", self, judgeCrashes,
		},
		{
			"hardening", "settings of the kernel are those of a hardened host; a job's confinement does not rest on them",
			"set them with sysctl", nil, judgeHardening,
		},
	}
}
