package probe

import (
	"os"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
	"corral/isolate/inside"
)

// Every request passes a directory, and its mount can be read-only. Asking a helper for that would take two switches of processes for
// each job. The kernel answers statfs(2) itself for a file system on a disk, but which of these a device has is known only from
// statfs(2): a FUSE file system can be on a block device, too. So a helper finds that out once, and the answer is used as long as a
// directory of that file system is held open: meanwhile no other file system can be mounted from the device.

// diskTypes are file systems, by statfs(2)'s magic number, that are mounted from one block device and that no program serves.
var diskTypes = map[int64]bool{unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true}

// disks counts the directories that are held open on each device with a file system of diskTypes.
type disks struct {
	mu   fault.Mutex
	open map[uint64]int // guarded by mu: by device number
}

// Hold records the file system of a directory, as [Prober.FileSystem] returned it. The directory must stay open until forget was
// called, which must be called once.
func (p *Prober) Hold(found inside.Probed) (forget func()) {
	if !diskTypes[found.FSType] || !onDevice(found.Mode, found.Dev) {
		return func() {}
	}
	d := &p.disks
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[uint64]int{}
	}
	d.open[found.Dev]++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.open[found.Dev]--; d.open[found.Dev] == 0 {
			delete(d.open, found.Dev)
		}
	}
}

// held reports whether a directory on the device is held open.
func (d *disks) held(dev uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[dev] > 0
}

// onDevice reports whether what statx(2) returned is a directory of a file system that is mounted from a block device. The device of
// a directory is that of its own file system, also on an overlay.
func onDevice(mode uint32, dev uint64) bool {
	return mode&unix.S_IFMT == unix.S_IFDIR && unix.Major(dev) != 0
}

// fromDisk is FileSystem without a helper. It returns false for a file that is not a directory of a file system that is held: f is open,
// so its file system and the held one exist at the same time, and with the same device they are the same.
func (p *Prober) fromDisk(f *os.File) (found inside.Probed, ok bool) {
	fd := int(f.Fd())
	id, err := IdentifyCached(fd)
	if err != nil || !onDevice(id.Mode, id.Dev) || !p.disks.held(id.Dev) {
		return found, false
	}
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil || !diskTypes[st.Type] {
		return found, false
	}
	return inside.Probed{
		Mode: id.Mode, UID: id.UID, GID: id.GID, Dev: id.Dev, Ino: id.Ino,
		FSType: st.Type, FSFlags: uint64(st.Flags), FreeBytes: int64(st.Bfree) * st.Bsize, FreeFiles: int64(st.Ffree),
	}, true
}
