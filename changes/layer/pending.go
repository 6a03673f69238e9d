package layer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"corral/changes/stream"
)

// maxPending is how many files are written before they are waited for, all at once.
const maxPending = 64

// errPending is a file that is written and has not yet its name.
var errPending = errors.New("pending")

// A placing is such a file.
type placing struct {
	c     *change
	tmp   *temp
	entry *stream.Entry
}

// journaled are the file systems in which an fsync of the file that was changed last brings the metadata of those that were
// changed before with it: their journal has one order. On the others each file is synced.
var journaled = map[int64]string{unix.EXT4_SUPER_MAGIC: "ext2, ext3, ext4", unix.XFS_SUPER_MAGIC: "xfs"}

// flush gives the files that are written their names, when they are on the disk.
func (a *applier) flush() error {
	pending := a.pending
	a.pending = nil
	for _, p := range pending {
		defer p.tmp.discard()
	}
	if err := syncAll(pending); err != nil {
		return err
	}
	for _, p := range pending {
		err := a.place(p.c, p.tmp)
		switch {
		case err == nil:
			a.total.Applied++
			err = a.tell(p.entry)
		case !errors.Is(err, errConflict):
			err = fmt.Errorf("%q: %w", p.c.path, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// syncAll waits until the files are on the disk. One fsync for each takes as many flushes of the disk, a few milliseconds
// each.
func syncAll(pending []placing) error {
	if len(pending) > 1 && together(pending) {
		pending = pending[len(pending)-1:]
	}
	for _, p := range pending {
		if err := unix.Fsync(p.tmp.fd); err != nil {
			return fmt.Errorf("%q: fsync: %w", p.c.path, err)
		}
	}
	return nil
}

// together has the contents of the files written, and says whether an fsync of the last one does for all of them.
func together(pending []placing) bool {
	last := pending[len(pending)-1].tmp
	var fs unix.Statfs_t
	if unix.Fstatfs(last.fd, &fs) != nil || journaled[fs.Type] == "" {
		return false
	}
	for _, p := range pending {
		const write = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		if unix.SyncFileRange(p.tmp.fd, 0, 0, write) != nil {
			return false
		}
	}
	// Writing gave the others blocks. What is done to the last one now is in the journal behind that.
	st, err := fstat(last.fd)
	return err == nil && unix.Fchmod(last.fd, st.Mode&permissions) == nil
}
