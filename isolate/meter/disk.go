package meter

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// Intervals at which a job with a disk limit is checked: far from the limit, and near it. A job can exceed the limit
// by what it can write in the shorter interval.
const (
	diskInterval     = 10 * time.Millisecond
	diskIntervalNear = 500 * time.Microsecond
)

// A Disk is a job whose use of disk space is watched.
type Disk struct {
	Group interface {
		Group
		// Freeze freezes all processes until thaw is called.
		Freeze() (thaw func())
	}
	Limits job.Limits
	Device uint64 // of the file system that the job writes to
	// Free returns what that file system has left. It must not wait for long.
	Free func() (bytes, inodes int64, err error)
	// Usage returns what changed in the repository since a time, or an error if that is not known in full.
	Usage func(since time.Time) (bytes, inodes int64, err error)
	// End ends the job. It may be called several times.
	End func(wire.Outcome)
	Log *slog.Logger
}

// WatchDisk ends the job when it has added more to the repository than its limits allow. A host directory that the
// job writes to directly has no quota of its own, so this is polling and can be overrun: a cheap check of the whole
// file system (statfs) shows when the limit may have been exceeded; then, because other processes write there too,
// the scanner sums what changed in the repository since the job began. Jobs without a disk limit are not watched.
// After stop returns, no further check is made.
func WatchDisk(d Disk) (stop func()) {
	if d.Limits.Disk == job.Unlimited && d.Limits.Inodes == job.Unlimited {
		return func() {}
	}
	w := &diskWatch{Disk: d, since: host.FileTime().Add(-host.ClockStep)}
	if w.free() != nil {
		w.fail()
		return func() {}
	}
	w.baseBytes, w.baseInodes = w.bytes, w.inodes
	over := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() {
		if fault.Do(d.Log, "watching disk space", func() { w.loop(over) }) {
			w.fail()
		}
	})
	return func() {
		close(over)
		loop.Wait()
	}
}

type diskWatch struct {
	Disk
	since time.Time

	baseBytes, baseInodes int64 // free when the job began
	bytes, inodes         int64 // free now

	near bool // the job itself has used half of its limit, see look
}

func (w *diskWatch) loop(stop <-chan struct{}) {
	timer := time.NewTimer(diskInterval)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		if w.free() != nil {
			w.fail()
			return
		}
		bytes, inodes := w.consumed()
		switch {
		case !w.near && w.exceeded(2*bytes, 2*inodes) != 0:
			w.look()
		case w.near && w.exceeded(bytes, inodes) != 0:
			if w.judge() {
				return
			}
		}
		next := diskInterval
		if w.exceeded(2*bytes, 2*inodes) != 0 {
			next = diskIntervalNear
		}
		timer.Reset(next)
	}
}

// consumed returns by how much the free space has fallen.
func (w *diskWatch) consumed() (bytes, inodes int64) {
	return w.baseBytes - w.bytes, w.baseInodes - w.inodes
}

// fail ends the job, because its usage cannot be determined.
func (w *diskWatch) fail() {
	if w.Limits.Disk != job.Unlimited {
		w.End(wire.OverDisk)
		return
	}
	w.End(wire.OverFiles)
}

func (w *diskWatch) free() (err error) {
	w.bytes, w.inodes, err = w.Free()
	return err
}

// exceeded returns the outcome for the limit that this usage exceeds, or 0.
func (w *diskWatch) exceeded(bytes, inodes int64) wire.Outcome {
	switch l := w.Limits; {
	case l.Disk != job.Unlimited && bytes > l.Disk:
		return wire.OverDisk
	case l.Inodes != job.Unlimited && inodes > l.Inodes:
		return wire.OverFiles
	}
	return 0
}

// look finds out whether the job itself has used half of its limit. It runs meanwhile: a file that it moves, names or removes while files
// are summed may count twice, or not at all. Only a job that is near its limit is frozen to be judged, because that interrupts its
// system calls. Otherwise space taken by other processes is excluded from then on.
func (w *diskWatch) look() {
	written, err := w.written()
	if w.near = err != nil || w.exceeded(2*written, 0) != 0; w.near {
		return
	}
	bytes, inodes, err := w.added()
	if w.near = err != nil || w.exceeded(2*bytes, 2*inodes) != 0; !w.near {
		w.baseBytes, w.baseInodes = w.bytes+bytes, w.inodes+inodes
	}
}

// frozenPatience is how long a job is frozen at most. kcmp(2) and /proc/PID/io wait for a process that is in execve(2), which can wait for
// another one that is frozen.
const frozenPatience = 2 * time.Second

// judge freezes the job, and ends it if it has exceeded a limit.
func (w *diskWatch) judge() (ended bool) {
	thaw := sync.OnceFunc(w.Group.Freeze())
	late := time.AfterFunc(frozenPatience, thaw)
	defer late.Stop()
	met := w.confirm()
	if met != 0 {
		w.End(met)
	}
	thaw() // thawed in any case: the stub must see the end, whoever requests it
	return met != 0
}

// confirm reports which limit the job itself has exceeded, or 0. Bytes written are taken from the kernel's accounting of its processes,
// which includes files that were deleted while open; files created are counted in the tree. Space taken by other processes is
// excluded from then on.
func (w *diskWatch) confirm() (met wire.Outcome) {
	written, err := w.written()
	if met := w.exceeded(written, 0); err == nil && met != 0 {
		return met
	}
	bytes, inodes, err := w.added()
	if err != nil { // what cannot be determined is charged to the job
		return w.exceeded(w.consumed())
	}
	if met := w.exceeded(bytes, inodes); met != 0 {
		return met
	}
	w.baseBytes, w.baseInodes = w.bytes+bytes, w.inodes+inodes
	w.near = false
	return 0
}

// added returns what the job has added to the repository since it began: files in the tree, and files without a name.
func (w *diskWatch) added() (bytes, inodes int64, err error) {
	held, files, err := w.sumUnnamed()
	if err != nil {
		return 0, 0, err
	}
	bytes, inodes, err = w.Usage(w.since)
	return bytes + held, inodes + files, err
}

// sumUnnamed sums the job's open files that no longer have a name, or never had one (O_TMPFILE): space that fallocate(2)
// reserved in them is not counted as written. It does not see a file that is only mapped, or whose descriptor was sent over a socket and
// not received: that is in no table, and nothing tells which file it is of. It fails if walkTables does.
func (w *diskWatch) sumUnnamed() (bytes, inodes int64, err error) {
	pids, err := w.Group.PIDs()
	if err != nil {
		return 0, 0, err
	}
	seen := map[uint64]bool{}
	err = walkTables(pids, func(task, name string) error {
		ino, size, err := w.withoutName(task + "/fd/" + name)
		if ino != 0 && !seen[ino] {
			seen[ino] = true
			bytes += size
			inodes++
		}
		return err
	})
	return bytes, inodes, err
}

// withoutName returns inode and size of the file behind a job's descriptor, if the file is on the repository's file system and has no
// name. It fails if the supervisor lacks the permission to look.
func (w *diskWatch) withoutName(path string) (ino uint64, bytes int64, err error) {
	st, ok, err := statDescriptor(path, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_NLINK|unix.STATX_BLOCKS)
	if !ok || unix.Mkdev(st.Dev_major, st.Dev_minor) != w.Device || st.Nlink != 0 || st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		return 0, 0, err
	}
	return st.Ino, int64(st.Blocks) * 512, nil
}

// written sums the bytes that the job's processes caused to be written to block devices, less bytes truncated before
// they were written (proc_pid_io(5)). The accounting of a process includes its reaped children: one that ended meanwhile is left out,
// because its parent may have been read after that.
func (w *diskWatch) written() (int64, error) {
	pids, err := w.Group.PIDs()
	if err != nil {
		return 0, err
	}
	by := map[int]int64{}
	for _, pid := range pids {
		by[pid] = writtenBy(pid)
	}
	if pids, err = w.Group.PIDs(); err != nil {
		return 0, err
	}
	var sum int64
	for _, pid := range pids {
		sum += by[pid]
	}
	return sum, nil
}

// writtenBy returns 0 for a process that has exited in the meantime.
func writtenBy(pid int) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	var sum int64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil:
		case name == "write_bytes":
			sum += n
		case name == "cancelled_write_bytes":
			sum -= n
		}
	}
	return sum
}
