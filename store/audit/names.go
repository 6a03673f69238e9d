package audit

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Names of the other files of an audit log.
const (
	HeadFile       = "head"
	LockFile       = "lock"      // locked for writing records
	ScanLockFile   = "scan.lock" // locked for writing the checkpoint and removing files
	CheckpointFile = "checkpoint"
)

// FileName returns the name of the file whose first record has that seq.
func FileName(first uint64) string { return fmt.Sprintf("%012d.jsonl", first) }

// fileSeq is the inverse of FileName.
func fileSeq(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".jsonl")
	n, err := strconv.ParseUint(digits, 10, 63)
	return n, ok && err == nil && n > 0 && FileName(n) == name
}

// listFiles returns the files of an audit log in order, each by the seq of its first record.
func listFiles(dir *os.Root) ([]uint64, error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []uint64
	for _, name := range names {
		if first, ok := fileSeq(name); ok {
			all = append(all, first)
		}
	}
	slices.Sort(all)
	return all, nil
}

// readHead reads a head, or one byte more if the file is longer. It issues one pread(2): os.File.ReadAt would issue a
// second one to see EOF.
func readHead(f *os.File) ([]byte, error) {
	b := make([]byte, headSize+1)
	for {
		n, err := unix.Pread(int(f.Fd()), b, 0)
		switch {
		case err == nil:
			return b[:n], nil
		case !errors.Is(err, unix.EINTR):
			return nil, fmt.Errorf("audit: %w", &os.PathError{Op: "read", Path: f.Name(), Err: err})
		}
	}
}
