package rootfs

import (
	"crypto/rand"
	"fmt"
)

// The masks of paths that a job must not see; both lie in each jail's read-only root. The file has no permissions and
// no content. A device such as /dev/null, which others use, could still be opened for writing.
const (
	MaskDir  = "/var/empty"
	MaskFile = "/var/masked"
)

// BootIDFile is mounted over /proc/sys/kernel/random/boot_id in each job's /proc. It is in each jail's read-only root.
const BootIDFile = "/var/boot-id"

// WriteBootID writes [BootIDFile] below the directory dirfd, a jail's root that [Tree.Write] has written: a random UUID (RFC 9562,
// version 4) in the kernel's form, random(4). The kernel's own is the same in all jails, so jobs of two users could tell that they
// share a machine, and name it to others. It returns an error if the file exists. The caller closes dirfd.
func WriteBootID(dirfd int) error {
	var id [16]byte
	rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0xf|0x40, id[8]&0x3f|0x80
	text := fmt.Sprintf("%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	return Tree{Entries: []Entry{{Path: BootIDFile, Mode: 0o444, Data: []byte(text)}}}.Write(dirfd)
}

// DoorDir has the resolver's settings for jobs that may reach hosts, in each jail's read-only root: files named like those of
// /etc that they replace.
const DoorDir = "/var/door"

// Mask is a path below /proc that a job must not see. It is covered by a bind of MaskFile or, if it is a directory,
// of MaskDir. Paths that the kernel lacks are skipped.
type Mask struct {
	Path   string
	Dir    bool
	Reason string
}

// MaskedProc lists the paths to cover in each job's own /proc. They are not covered in the jail's: the kernel refuses
// a new procfs if no fully visible one is mounted, mount_too_revealing in fs/namespace.c.
//
// Deliberately readable: cpuinfo, meminfo, stat, loadavg, uptime, version (runtimes choose sizes from them),
// filesystems, mounts, self, net, swaps, vmstat (free, vmstat), cgroups (the JVM's container detection), devices,
// crypto, tty (ps reads tty/drivers), sysvipc (of the job's IPC namespace).
var MaskedProc = []Mask{
	{"/proc/acpi", true, "firmware interface: wakeup sources, power controls of older kernels"},
	{"/proc/allocinfo", false, "kernel allocations by line of source"},
	{"/proc/asound", true, "the host's sound devices"},
	{"/proc/bootconfig", false, "boot parameters, as in cmdline"},
	{"/proc/buddyinfo", false, "free physical memory by order: helps page spraying and Rowhammer"},
	{"/proc/bus", true, "PCI configuration space, input devices"},
	{"/proc/cmdline", false, "boot parameters: file systems, sometimes secrets"},
	{"/proc/config.gz", false, "missing hardening options of the kernel"},
	{"/proc/diskstats", false, "I/O of the whole host: a side channel between jobs"},
	{"/proc/driver", true, "driver state: clock, graphics cards"},
	{"/proc/dynamic_debug", true, "the kernel's debug messages and their switch"},
	{"/proc/fs", true, "internals of mounted file systems: ext4 options, jbd2, nfsd"},
	{"/proc/interrupts", false, "timing of the host's keystrokes and network packets"},
	{"/proc/iomem", false, "physical memory map"},
	{"/proc/ioports", false, "I/O port map"},
	{"/proc/irq", true, "interrupt affinity of the host"},
	{"/proc/kallsyms", false, "kernel addresses: defeats address randomization"},
	{"/proc/kcore", false, "the host's memory"},
	{"/proc/key-users", false, "the keyring quotas of every user"},
	{"/proc/keys", false, "keys of the kernel's keyrings"},
	{"/proc/kmsg", false, "the kernel log"},
	{"/proc/kpagecgroup", false, "physical pages by control group"},
	{"/proc/kpagecount", false, "physical pages by use: helps Rowhammer"},
	{"/proc/kpageflags", false, "physical pages by flags"},
	{"/proc/latency_stats", false, "kernel stacks of waits on the whole host"},
	{"/proc/locks", false, "devices and inodes of files locked outside the jail"},
	{"/proc/mdstat", false, "the host's disks"},
	{"/proc/modules", false, "loaded modules, which may have known weaknesses"},
	{"/proc/mtrr", false, "memory types by physical address, writable"},
	{"/proc/pagetypeinfo", false, "free physical memory by type"},
	{"/proc/partitions", false, "the host's disks"},
	{"/proc/pressure", true, "stalls of the whole host: a side channel between jobs; any user may set triggers"},
	{"/proc/sched_debug", false, "names of all processes of the host"},
	{"/proc/schedstat", false, "scheduling of the whole host: a side channel between jobs"},
	{"/proc/scsi", true, "can attach and remove disks, moby CVE-2017-16539"},
	{"/proc/slabinfo", false, "kernel heap layout: helps exploits"},
	{"/proc/softirqs", false, "timing, as in interrupts"},
	{"/proc/sysrq-trigger", false, "one byte written to it reboots the host"},
	{"/proc/timer_list", false, "kernel addresses, processes of the host"},
	{"/proc/timer_stats", false, "processes of the host, CVE-2017-5967"},
	{"/proc/vmallocinfo", false, "kernel addresses"},
	{"/proc/vmcore", false, "memory of a crashed kernel"},
	{"/proc/zoneinfo", false, "physical memory by zone and CPU: layout, and a side channel between jobs"},
}

// ReadOnlyProc lists the paths to bind onto themselves read-only. Other writable paths that such lists usually
// contain (bus, fs, irq, sysrq-trigger) are masked.
var ReadOnlyProc = []string{
	"/proc/sys", // sysctls: core_pattern runs a program as root of the host, CVE-2022-0811
}
