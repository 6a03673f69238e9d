package rootfs

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Device is a character device of a job's /dev.
type Device struct {
	Name         string // below /dev
	Major, Minor uint32 // Documentation/admin-guide/devices.txt of Linux
	Mode         fs.FileMode
}

// Devices lists all devices of a job: those that reveal nothing of the host. No console, kmsg, fuse, kvm, tun or disks.
var Devices = []Device{
	{"null", 1, 3, 0o666},
	{"zero", 1, 5, 0o666},
	{"full", 1, 7, 0o666},
	{"random", 1, 8, 0o666},
	{"urandom", 1, 9, 0o666},
	{"tty", 5, 0, 0o666}, // ENXIO without a controlling terminal
}

// DevLink is a link of a job's /dev.
type DevLink struct {
	Name   string // below /dev
	Target string
}

// DevLinks are the links that shells and libc expect, without /dev/core, a link to /proc/kcore.
var DevLinks = []DevLink{
	{"fd", "/proc/self/fd"},
	{"stdin", "/proc/self/fd/0"},
	{"stdout", "/proc/self/fd/1"},
	{"stderr", "/proc/self/fd/2"},
	{"ptmx", "pts/ptmx"}, // in the job's own devpts
}

// DevDirs are the mount points of a job's /dev, by absolute path: pts for its own devpts, shm for that of [Private].
var DevDirs = []Dir{
	{"/dev/pts", 0o755, "mount point of a devpts with newinstance: terminals"},
	{"/dev/mqueue", 0o755, "mount point of the job's message queues, mq_overview(7)"},
	{"/dev/shm", fs.ModeSticky | 0o777, "mount point of the private tmpfs"},
}

// WriteDev creates [Devices], [DevLinks] and [DevDirs] in the directory dirfd, a tmpfs mounted without nodev that is
// to be bound at a jail's /dev. It needs CAP_MKNOD in the host's user namespace. It returns an error at the first
// node that exists already. The caller closes dirfd.
func WriteDev(dirfd int) error {
	for _, d := range Devices {
		perm := uint32(d.Mode.Perm())
		dev := unix.Mkdev(d.Major, d.Minor)
		if err := unix.Mknodat(dirfd, d.Name, unix.S_IFCHR|perm, int(dev)); err != nil {
			return fmt.Errorf("mknod /dev/%s: %w", d.Name, err)
		}
		// The umask belongs to all threads of the process (077 in a supervisor), so the mode of the new node is set
		// afterwards.
		if err := unix.Fchmodat(dirfd, d.Name, perm, 0); err != nil {
			return fmt.Errorf("chmod /dev/%s: %w", d.Name, err)
		}
	}
	dev := Tree{}
	for _, l := range DevLinks {
		dev.Entries = append(dev.Entries, Entry{Path: "/" + l.Name, Mode: fs.ModeSymlink | 0o777, Link: l.Target})
	}
	for _, d := range DevDirs {
		dev.Entries = append(dev.Entries, Entry{Path: d.Path[len("/dev"):], Mode: fs.ModeDir | d.Mode})
	}
	if err := dev.Write(dirfd); err != nil {
		return fmt.Errorf("/dev: %w", err)
	}
	return nil
}
