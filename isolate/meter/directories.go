package meter

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel keeps names for an open directory that is being read, charged to no cgroup: ext4 those of a block, 11 KB; overlayfs all
// names of a directory that is in more than one layer, 125 bytes each, and a list of its own for each descriptor if the directory
// changed in between. Nothing reports how many names those are, so that a directory counts by estimate; see endSuspect for more.
const (
	// directoryBytes is for a directory of one layer or on a device: 512 of them are too many.
	directoryBytes = 64 << 10
	// layeredBytes is for one that can be in more than one layer: 128 are too many.
	layeredBytes = 256 << 10
	// nameFactor is by how much a list of names is larger than the directory in the upper layer. One that is in no other layer now can
	// have a list, too, if it was copied from one.
	nameFactor = 8
	// queuedBytes is for a descriptor that was sent to a socket and not received: it can be of a directory.
	queuedBytes = 64 << 10
)

// An openFiles collects the directories, and sockets with queued descriptors, that the tasks of a job have open. Tasks share what they
// inherited: such a file counts once.
type openFiles struct {
	openSize
	walk    walkTime   // nil: not asked
	until   time.Time  // when walk is not asked any more
	seen    []openFile // in the order that kcmp(2) defines
	compare func(a, b openFile) (int, error)
}

// An openSize is what the kernel may hold for open files.
type openSize struct {
	bytes   int64 // by estimate
	layered int   // directories that can hold more, because they can be in more than one layer
	queued  int   // descriptors in sockets, which can be of such directories
	late    bool  // some of layered count only because there was no time to measure their lists
}

// An openFile is a descriptor of a task.
type openFile struct{ task, fd int }

var errTooSlow = errors.New("reading the descriptors takes too long")

// openFilesOf returns what the kernel may hold for the open directories of a group, and for the files that its tasks wait for. The group
// is frozen while directories are counted: otherwise its processes could pass them around. It fails if they are more than MaxKernelBytes,
// as walkTables does, and if that takes longer than tablesPatience: then it calls end, which lets the reads return.
func openFilesOf(group Group, maxTasks int64, walk walkTime, end func()) (openSize, error) {
	late := time.AfterFunc(tablesPatience, end)
	o := openFiles{compare: compareFiles}
	pids, err := group.PIDs()
	if err == nil {
		o.bytes, err = waitBytes(pids, maxTasks) // before the freezer interrupts them
	}
	thaw, frozen := group.Freeze()
	defer thaw()
	if frozen {
		o.walk, o.until = walk, time.Now().Add(walksPatience)
	}
	if err == nil {
		pids, err = group.PIDs()
	}
	if err == nil {
		err = walkTables(pids, maxTasks, o.add)
	}
	if !late.Stop() {
		err = errTooSlow
	}
	return o.openSize, err
}

// add adds a table of descriptors, and is an error if there is too much.
func (o *openFiles) add(task string, names []string) error {
	id, err := strconv.Atoi(task[strings.LastIndexByte(task, '/')+1:])
	if err != nil {
		return err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			return err
		}
		size, err := openSizeOf(task, name)
		if err != nil {
			return err
		}
		if size.bytes > 0 && o.isNew(openFile{id, fd}) {
			o.bytes += size.bytes
			o.queued += size.queued
			if size.layered > 0 && !o.isShort(id, fd) {
				o.layered += size.layered
			}
		}
		if o.bytes > MaxKernelBytes {
			return errTooMuchToRead
		}
	}
	return nil
}

// isNew reports whether the open file was not seen before. One that cannot be compared counts as new.
func (o *openFiles) isNew(f openFile) bool {
	low, high := 0, len(o.seen)
	for low < high {
		middle := (low + high) / 2
		order, err := o.compare(o.seen[middle], f)
		switch {
		case err != nil:
			return true
		case order == 0:
			return false
		case order < 0:
			low = middle + 1
		default:
			high = middle
		}
	}
	o.seen = slices.Insert(o.seen, low, f)
	return true
}

// openSizeOf returns the estimate for a descriptor of a task, and zero for one that is neither a directory nor a socket with descriptors.
func openSizeOf(task, name string) (openSize, error) {
	st, ok, err := statDescriptor(task+"/fd/"+name, unix.STATX_TYPE|unix.STATX_SIZE|unix.STATX_NLINK)
	if !ok {
		return openSize{}, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		flags, err := fdinfo(task, name, "flags:", 8)
		if err != nil || flags&unix.O_PATH != 0 { // names of such a descriptor cannot be read
			return openSize{}, err
		}
		return directorySize(&st), nil
	case unix.S_IFSOCK:
		n, err := fdinfo(task, name, "scm_fds:", 10)
		return openSize{bytes: n * queuedBytes, queued: int(n)}, err
	}
	return openSize{}, nil
}

// directorySize returns the estimate for an open directory. An overlay has no device, and its directories that are in more than one layer
// have one link; those of btrfs, too, while others have a link for each subdirectory and two more.
func directorySize(st *unix.Statx_t) openSize {
	const linksOfOne = 2
	names := nameFactor * int64(min(st.Size, MaxKernelBytes))
	switch {
	case st.Dev_major != 0:
		return openSize{bytes: directoryBytes}
	case st.Nlink >= linksOfOne:
		return openSize{bytes: directoryBytes + names}
	}
	return openSize{bytes: layeredBytes + names, layered: 1}
}

// fdinfo returns a number that the kernel reports of a descriptor, 0 if it reports none or the descriptor was closed.
func fdinfo(task, name, field string, base int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("%s/fdinfo/%s", task, name))
	if err != nil {
		if goneMeanwhile(err) {
			err = nil
		}
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if n, found := strings.CutPrefix(lines.Text(), field); found {
			return strconv.ParseInt(strings.TrimSpace(n), base, 64)
		}
	}
	if err := lines.Err(); !goneMeanwhile(err) {
		return 0, err
	}
	return 0, nil
}

// compareFiles compares the open files of two descriptors in the order of kcmp(2).
func compareFiles(a, b openFile) (int, error) {
	const kcmpFile = 0
	return kcmp(a.task, b.task, kcmpFile, a.fd, b.fd)
}
