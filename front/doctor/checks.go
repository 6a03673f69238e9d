package doctor

import (
	"time"

	"corral/job"
)

const endless = "while :; do :; done"

// Probes that several rows use, or that the examination treats specially.
var (
	simple = &probe{script: "echo ready"}

	// computing measures the share of a CPU. While a virtual machine does not run, its kernel takes the time for the job's, and
	// deducts it later from the job's share: that of a job which lives longer is right.
	computing = &probe{script: endless, limits: job.Limits{MilliCPUs: cpuLimit, Wall: 600 * time.Millisecond}, again: &probe{
		script: endless, limits: job.Limits{MilliCPUs: cpuLimit, Wall: 5 * time.Second},
	}}

	// self prints what the kernel reports about the job. Files of /proc/self belong to cat, which is confined like its
	// parent.
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

// Sizes and counts of the probes below. Programs try far more than their limit.
const (
	memoryLimit = 32 << 20
	pidsLimit   = 16
	cpuLimit    = 200 // thousandths
	sizeLimit   = 1 << 20
	layerSize   = 32 << 20
)

// checks are all checks, in the order of the report. The job of the first one does nothing but run.
var checks = []check{
	// The identity of a job.
	{
		"jobs run", "a program runs in a jail of its own",
		"start corrald as a service, or run with sudo", simple, judgeSimple,
	},
	{
		"identity", "a job has an unprivileged user id of its own on the host, and never root's",
		"set uids in the configuration to a range that nothing else uses", self, judgeIdentity,
	},
	{
		"user ids", "ids of jobs are outside the ranges that users of the host have for containers",
		"set uids.base in the configuration outside the ranges in /etc/subuid", self, judgeRange,
	},
	{
		"files", "files that a job creates belong to the repository's owner, whose files it can use",
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
		"processes", "a job sees only its own processes",
		"report this: each job should have a new procfs", self, judgeProcesses,
	},
	{
		"privileges", "a job has no capability, and no program that it executes gains one",
		"report this: every kernel has capabilities and no_new_privs", self, judgePrivileges,
	},
	{
		"system calls", "a filter allows only the system calls that programs need",
		"use a kernel with CONFIG_SECCOMP_FILTER", self, judgeFilter,
	},
	{
		"landlock", "a second layer of access control to files, in case a mount is wrong",
		"use Linux 5.13 or later with landlock among the security modules (lsm= on the kernel's command line)", nil, judgeLandlock,
	},

	// What a job can reach.
	{
		"network", "a job has no network except a loopback of its own",
		"use a kernel with CONFIG_NET_NS", self, judgeNetwork,
	},
	{
		"host's services", "services on the host's loopback cannot be reached",
		"report this: a network namespace should separate them",
		&probe{script: `
				if command -v bash; then bash -c ": <>/dev/tcp/127.0.0.1/$` + baitPort + `" && echo reached
				elif command -v perl; then perl -MIO::Socket::INET -e 'exit !IO::Socket::INET->new(
					PeerAddr => "127.0.0.1", PeerPort => $ENV{` + baitPort + `}, Timeout => 2)' && echo reached
				else echo untried; fi; true`}, judgeServices,
	},
	{
		"host's files", "files outside the repository cannot be seen",
		"report this: a jail should contain only system directories and toolchains",
		&probe{script: `for f in "$` + baitFile + `" /etc/shadow /etc/machine-id /etc/ssh /root /boot /var/log \
				/var/lib/corral /var/lib/dpkg /var/lib/systemd; do
				[ -e "$f" ] && echo "sees $f"; done; true`}, judgeNothing,
	},
	{
		"kernel's files", "memory, log and addresses of the kernel cannot be read",
		"report this: these files of /proc should be masked",
		&probe{script: `for f in /proc/kcore /proc/kmsg /proc/kallsyms /proc/keys /proc/timer_list /proc/cmdline /dev/mem /dev/kmsg; do
				[ -r $f ] && [ "$(head -c 16 $f 2>/dev/null | wc -c)" -gt 0 ] && echo "reads $f"; done; true`}, judgeNothing,
	},
	{
		"kernel's settings", "the kernel's settings cannot be changed",
		"report this: /proc/sys should be read-only and /proc/sysrq-trigger masked",
		&probe{script: `grep ' /proc/sys ' /proc/self/mountinfo | grep -q ' ro,' || echo "/proc/sys is not a read-only mount"
				for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/vm/drop_caches /proc/sysrq-trigger; do
				[ -w $f ] && echo "writes $f"; done; true`}, judgeNothing,
	},
	{
		"environment", "the caller's environment variables, which may hold secrets, are not passed to a job",
		"report this: a job should have only the variables of its request",
		&probe{args: []string{"env"}}, judgeEnvironment,
	},
	{
		"sensitive paths", "a job that writes a file which tools of the host execute is reported",
		"report this: git's hooks are sensitive paths",
		&probe{script: `mkdir -p .git/hooks && echo 'exit 0' >.git/hooks/post-checkout`}, judgeSensitive,
	},
	{
		"sessions", "files that a session's jobs write stay on a layer of their own, which has a maximum size",
		"install e2fsprogs, load the loop driver, and keep the state directory on ext4, xfs or btrfs",
		&probe{script: `echo here >layered && cat layered && head -c 100000000 /dev/zero >big`, layer: layerSize}, judgeSession,
	},
	{
		"authority", "where rules are about requests, jobs trust an authority of this installation for their user",
		"replace it: sudo corral network authority rotate", nil, judgeAuthority,
	},

	// What a job can use.
	{
		"memory limit", "a job that uses too much memory is killed, and the host is not affected",
		"enable the memory controller (cgroup_enable=memory on the kernel's command line)",
		&probe{script: "head -c 100000000 /dev/zero | tail", limits: job.Limits{Memory: memoryLimit}}, judgeMemory,
	},
	{
		"process limit", "a job that forks endlessly is stopped at its limit",
		"enable the pids controller (CONFIG_CGROUP_PIDS)",
		&probe{
			script: "i=0; while [ $i -lt 40 ]; do sleep 9 >/dev/null 2>&1 & i=$((i+1)); echo $i; done",
			limits: job.Limits{PIDs: pidsLimit, Wall: 3 * time.Second},
		}, judgePIDs,
	},
	{
		"CPU limit", "a job that computes endlessly gets no more than its share",
		"use a kernel with CONFIG_CFS_BANDWIDTH",
		computing, judgeCPU,
	},
	{
		"deadline", "at its deadline all processes of a job are killed, even in another session or ignoring signals",
		"report this: the kernel should kill a job's whole cgroup",
		&probe{
			script: `trap '' TERM HUP INT; setsid sh -c 'trap "" TERM HUP INT; while :; do sleep 60; done' & while :; do sleep 60; done`,
			limits: job.Limits{Wall: 300 * time.Millisecond},
		}, judgeDeadline,
	},
	{
		"temporary files", "a job's files in /tmp are bounded and private to the job",
		"report this: each job should have a tmpfs of its own",
		&probe{
			script: "head -c 8000000 /dev/zero >/tmp/fill; stat -c %s /tmp/fill",
			limits: job.Limits{Tmp: sizeLimit},
		}, judgeTmp,
	},
	{
		"disk limit", "a job that fills the repository is killed",
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

	// What the host lacks.
	{
		"cgroup", "the kernel enforces limits and kills all processes of a job at once",
		"use one hierarchy (systemd.unified_cgroup_hierarchy=1) and Linux 5.14 or later", simple, judgeCgroup,
	},
	{
		"swap", "a job cannot exceed its memory limit by using swap",
		"swapoff -a, or boot with swapaccount=1", simple, judgeSwap,
	},
	{
		"open files", "all connections, jails and jobs that the configuration allows can open files, however many one job opens",
		"set fs.file-max to that number with sysctl, permanently in /etc/sysctl.d; or lower max_jobs, max_jails, max_warm_slots, or the defaults of pids and open_files",
		simple, judgeOpenFiles,
	},
	{
		"audit log", "records are not removed unnoticed",
		"use the corrald of the same version as this program", simple, judgeAudit,
	},
	{
		"exposed", "jobs reach no program of the host but by rules that name it",
		"remove the entry of network.private, or keep the socket elsewhere: sudo corral reload; if you mean it, nothing is wrong", simple, judgeExposed,
	},
	{
		"internal errors", "no mistake of the supervisor has ended a job",
		"report them with the stacks in the supervisor's log: journalctl -u corrald -g 'internal error'", simple, judgeErrors,
	},
	{
		"kernel", "the kernel belongs to a maintained series",
		"use Linux 6.1 or later, with its distribution's updates", nil, judgeKernel,
	},
	{
		"CPU flaws", "the kernel mitigates flaws of the CPU that leak data between programs",
		"update microcode and kernel, remove mitigations=off; use a virtual machine if there are secrets on the same machine", nil, judgeFlaws,
	},
	{
		"crashes", "the host runs no program when a job crashes",
		"sysctl -w kernel.core_pattern=core", self, judgeCrashes,
	},
	{
		"hardening", "kernel settings are those of a hardened host; the confinement of jobs does not depend on them",
		"set them with sysctl", nil, judgeHardening,
	},
}
