package layer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"corral/workspace/changes/stream"
)

// maxPending is the maximum number of written files that are then synced together.
const maxPending = 64

// errPending is returned for a file that is written, but not yet renamed to its name.
var errPending = errors.New("pending")

// A pendingFile is a file to sync and rename.
type pendingFile struct {
	c     *change
	tmp   *temp
	entry *stream.Entry
}

// journaled lists the file systems whose journal has a single order, so that an fsync of the file that changed last
// also writes the metadata of those changed before. On others each file is synced.
var journaled = map[int64]string{unix.EXT4_SUPER_MAGIC: "ext2, ext3, ext4", unix.XFS_SUPER_MAGIC: "xfs"}

// flush syncs the written files to the disk and renames them to their names.
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
			err = a.emit(p.entry)
		case !errors.Is(err, errConflict):
			err = fmt.Errorf("%q: %w", p.c.path, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// syncAll syncs the files. An fsync for each would cost a flush of the disk each, a few milliseconds.
func syncAll(pending []pendingFile) error {
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

// together writes the contents of the files, and reports whether an fsync of the last one then suffices for all.
func together(pending []pendingFile) bool {
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
	// Writing allocated the blocks of the other files. This change of the last one follows that in the journal.
	st, err := fstat(last.fd)
	return err == nil && unix.Fchmod(last.fd, st.Mode&permissions) == nil
}
