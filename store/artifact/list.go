package artifact

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"corral/store/at"
)

// An entry describes an artifact for the quotas.
type entry struct {
	Handle string
	Since  time.Time // when it was committed
	Bytes  int64     // on disk
	Owner  string    // principal; "" if the manifest is unreadable
}

// byAge compares by age, the oldest first.
func byAge(a, b entry) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Handle, b.Handle)) }

// List returns the artifacts, oldest first, by the time of their commit. The time in a handle is not
// used: it is when the job began, and the output of a long job must not be old when it is stored.
func (d *diskDir) List() ([]entry, error) {
	if d.fd < 0 {
		return nil, nil
	}
	all, err := at.Names(d.fd, -1)
	if err != nil {
		return nil, err
	}
	var list []entry
	for _, name := range all {
		if at, ok := parseHandle(name); ok {
			a := d.look(name, at)
			a.Owner = d.owner(name)
			list = append(list, a)
		}
	}
	slices.SortFunc(list, byAge)
	d.owners.only(list)
	return list, nil
}

// look returns the commit time and size of an artifact whose job began at begun.
func (d *diskDir) look(handle string, begun time.Time) entry {
	a := entry{Handle: handle, Since: begun, Bytes: blockSize}
	fd, err := at.Open(d.fd, handle, at.Dir)
	if err != nil {
		return a
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		a.Since = time.Unix(st.Mtim.Unix())
	}
	for _, name := range artifactFiles {
		if n, err := fileSize(fd, name); err == nil {
			a.Bytes += onDisk(n)
		}
	}
	return a
}

// date records the time of a commit as the modification time of the artifact's directory, in which no file is created
// or removed any more. If it fails, the time is that of the last change in the directory.
func (d *diskDir) date(name string) {
	now, err := unix.TimeToTimespec(d.now())
	if err == nil {
		_ = unix.UtimesNanoAt(d.fd, name, []unix.Timespec{now, now}, unix.AT_SYMLINK_NOFOLLOW)
	}
}
