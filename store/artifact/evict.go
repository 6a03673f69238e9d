package artifact

import (
	"errors"

	"golang.org/x/sys/unix"

	"corral/store/at"
)

// makeRoom evicts artifacts until principal can store more, see evictions; their files are removed in the background.
// The caller holds the quota's lock. It returns the remaining usage. If there is no room, it returns errShare and
// evicts nothing.
func (d *diskDir) makeRoom(principal string, more usage) (usage, error) {
	list, err := d.List()
	if err != nil {
		return usage{}, nil // the commit will report the error
	}
	u := totalUsage(list)
	if u.count+more.count <= d.limit.count && u.bytes+more.bytes <= d.limit.bytes {
		return u, nil
	}
	victims, err := evictions(d.limit, list, principal, more)
	if err != nil {
		return u, err
	}
	for _, a := range victims {
		if _, err := d.unlink(a.Handle); err == nil {
			u.count--
			u.bytes -= a.Bytes
		}
	}
	d.wakeSweeper()
	return u, nil
}

// wakeSweeper makes the background goroutine remove the files of evicted artifacts.
func (d *diskDir) wakeSweeper() {
	select {
	case d.taken <- struct{}{}:
	default:
	}
}

func totalUsage(list []entry) usage {
	u := usage{count: int64(len(list))}
	for _, a := range list {
		u.bytes += a.Bytes
	}
	return u
}

// unlink renames an artifact out of readers' sight; its files must still be removed. If several processes race,
// exactly one gets mine = true.
func (d *diskDir) unlink(handle string) (mine bool, err error) {
	gone := gonePrefix + handle
	err = unix.Renameat(d.fd, handle, d.fd, gone)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		_ = removeDir(d.fd, gone)
		err = unix.Renameat(d.fd, handle, d.fd, gone)
	}
	if errors.Is(err, unix.ENOENT) {
		return false, nil // another process did it
	}
	return err == nil, at.Err("rename", handle, err)
}

// remove removes an artifact and its files.
func (d *diskDir) remove(handle string) error {
	if _, err := d.unlink(handle); err != nil {
		return err
	}
	return removeDir(d.fd, gonePrefix+handle)
}
