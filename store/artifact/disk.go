package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/store/at"
)

// A diskDir is a directory of artifacts that several processes share without a daemon. Its methods may be called by several
// goroutines at once.
//
// An artifact appears by one rename, complete or not at all. What a killed process left is recognized by a lock that no
// process holds, and removed. Each commit enforces the quotas by count and bytes, by evicting the oldest artifacts of
// whoever has most beyond an equal share; the sweep frees the disk space, also of what has expired. A diskDir knows
// manifests, but neither what is in streams nor who may read them.
type diskDir struct {
	ttl       time.Duration
	limit     usage
	fsyncEach bool
	now       func() time.Time

	fd     int // -1 if there is none, when it is only read, and after Close
	quota  quota
	owners owners
	syncer *syncer            // nil with fsyncEach
	taken  chan struct{}      // wakes the sweeper: artifacts were evicted
	stop   context.CancelFunc // nil if it is only read
	swept  sync.WaitGroup
}

// dirName is the name of the directory within a user's state directory.
const dirName = "artifacts"

// openDir opens the directory of artifacts in a state directory, and creates it if missing. The caller keeps ownership of
// state. Unless it is only read, what has expired, and what killed processes left, is removed in the background, now and
// at intervals. All options must be set. The caller must close the diskDir.
func openDir(state *os.File, o Options) (*diskDir, error) {
	d := &diskDir{
		ttl: o.TTL, limit: usage{int64(o.MaxCount), o.MaxBytes}, fsyncEach: o.FsyncEach, now: o.Now, fd: -1, taken: make(chan struct{}, 1),
	}
	if err := d.open(state, o.ReadOnly); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return d, nil
	}
	if !d.fsyncEach {
		d.syncer = newSyncer(d.fd)
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.swept.Go(func() { d.sweepAtIntervals(ctx) })
	return d, nil
}

func (d *diskDir) open(dir *os.File, readOnly bool) error {
	state, err := at.Reopen(dir)
	if err != nil {
		return err
	}
	defer unix.Close(state)
	if !readOnly {
		if err := unix.Mkdirat(state, dirName, at.DirMode); err != nil && !errors.Is(err, unix.EEXIST) {
			return at.Err("mkdir", dirName, err)
		}
	}
	if d.fd, err = at.Open(state, dirName, at.Dir); err != nil {
		if readOnly && errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
	if readOnly {
		return nil
	}
	if err = d.quota.open(d.fd); err != nil {
		unix.Close(d.fd)
	}
	return err
}

// Close waits for the background work. Every temp must have been committed or dropped.
func (d *diskDir) Close() {
	if d.fd < 0 {
		return
	}
	if d.stop != nil {
		d.stop()
		d.swept.Wait()
		if d.syncer != nil {
			d.syncer.close()
		}
		d.quota.close()
	}
	unix.Close(d.fd)
	d.fd = -1
}

// Used returns the size on disk of all artifacts in bytes, as recorded by the last commit or sweep of any process, and false if
// there is no record, or the directory is only read. It does not wait for a commit.
func (d *diskDir) Used() (bytes int64, ok bool) {
	if d.stop == nil {
		return 0, false
	}
	u := d.quota.read()
	return u.bytes, u.bytes < unknown
}

// Commit makes t an artifact that m describes. sizes are those of the files of its streams in bytes, -1 for one that is not
// known. The error is ErrShare if there is no room. After an error, t must still be dropped.
func (d *diskDir) Commit(t *temp, m *Manifest, sizes [2]int64) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := t.Writer(len(sizes)).Write(text); err != nil {
		return err
	}
	total := blockSize + onDisk(int64(len(text)))
	for i, size := range sizes {
		if size < 0 {
			if size, err = fileSize(t.dir, artifactFiles[i]); err != nil {
				return err
			}
		}
		total += onDisk(size)
	}
	return d.rename(t, m.ArtifactID, m.Principal, total)
}

// rename makes t the artifact with that handle and principal; size is its size on disk in bytes.
func (d *diskDir) rename(t *temp, handle, principal string, size int64) error {
	if size > d.limit.bytes {
		return errors.New("it is larger than the quota of the store")
	}
	if d.fsyncEach {
		for _, fd := range t.fds() {
			if err := unix.Fsync(fd); err != nil {
				return at.Err("fsync", t.name, err)
			}
		}
	}
	err := d.quota.update(func(u usage) (usage, error) {
		if u.count+1 > d.limit.count || u.bytes+size > d.limit.bytes {
			var err error
			if u, err = d.makeRoom(principal, usage{1, size}); err != nil {
				return u, err
			}
		}
		u.count++
		u.bytes += size
		d.date(t.name)
		return u, unix.Renameat2(d.fd, t.name, d.fd, handle, unix.RENAME_NOREPLACE)
	})
	if errors.Is(err, ErrShare) {
		return err
	}
	if err != nil {
		return at.Err("rename", t.name, err)
	}
	t.name = ""
	d.owners.set(handle, principal)
	if d.fsyncEach {
		return at.Err("fsync", dirName, unix.Fsync(d.fd))
	}
	d.syncer.add(t.hand())
	return nil
}
