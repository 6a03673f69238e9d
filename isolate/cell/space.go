package cell

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/meter"
	"corral/isolate/scan"
	"corral/isolate/wire"
	"corral/job"
)

// WatchDisk ends the slot's job when it exceeds its limits of disk space and files. user is charged for probes of the
// file system. After stop returns, no further check is made.
func (sl *Slot) WatchDisk(user uint32, limits job.Limits, end func(wire.Outcome)) (stop func()) {
	j := sl.jail
	if j.session != nil && j.session.Import { // its layer has a fixed size
		return func() {}
	}
	return meter.WatchDisk(meter.Disk{
		Group: sl.group, Limits: limits, Device: j.repo.Dev, Usage: j.usage, End: end,
		Log:  j.s.Log,
		Free: func() (bytes, inodes int64, err error) { return j.free(user) },
	})
}

// free returns the space that is left where the jail's jobs write, on behalf of a user who has a job in it.
func (j *Jail) free(user uint32) (bytes, inodes int64, err error) {
	var st unix.Statfs_t
	switch {
	case j.session != nil && j.view.merged != "":
		err = unix.Statfs(j.view.layer.Path(), &st)
	case localFileSystems[j.repo.FSType]:
		err = unix.Fstatfs(int(j.repo.Dir.Fd()), &st)
	default: // the file system may not answer
		found, err := j.s.Probes.FileSystem(user, j.repo.Dir)
		return found.FreeBytes, found.FreeFiles, err
	}
	return int64(st.Bfree) * st.Bsize, int64(st.Ffree), err
}

// usage returns what changed in the repository since a time, as far as it is still there.
func (j *Jail) usage(since time.Time) (bytes, inodes int64, err error) {
	a, err := j.watcher().ask(scan.OpUsage, since)
	if err == nil && a.Incomplete {
		err = errIncomplete
	}
	return a.Bytes, a.Inodes, err
}

var errIncomplete = errors.New("the repository was not scanned in full")

// localFileSystems are file systems, by statfs(2)'s magic number, that answer from a disk or from memory.
var localFileSystems = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true,
}
