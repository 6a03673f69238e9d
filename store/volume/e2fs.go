package volume

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Errors that callers distinguish.
var (
	// ErrHost is returned if the host lacks a feature or program that volumes need.
	ErrHost = errors.New("this host does not support layers")
	// ErrDamaged is returned for a file system that cannot be mounted after a crash.
	ErrDamaged = errors.New("the layer is damaged")
)

// programDirs are the directories with the programs of e2fsprogs. The caller's PATH must not choose programs that root
// runs.
var programDirs = [...]string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"}

// environment is the environment of these programs. The host's mke2fs.conf must not affect volumes.
var environment = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "MKE2FS_CONFIG=/dev/null", "E2FSCK_CONFIG=/dev/null", "LC_ALL=C"}

// Program returns the path of a program of e2fsprogs.
func Program(name string) (string, error) {
	for _, dir := range programDirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: no %s in %v\nhint: install e2fsprogs", ErrHost, name, programDirs)
}

// features are the defaults for ext4 in mke2fs.conf(5) of e2fsprogs, without a journal and without space reserved for
// resizing.
const features = "none,dir_index,dir_nlink,ext_attr,extent,extra_isize,filetype,flex_bg,huge_file,large_file,metadata_csum,sparse_super,64bit"

// Programs of the host look for signatures at both ends of a block device: udev probes each loop device that is attached (blkid(8)), and
// has mdadm assemble what has the signature of a RAID. Whoever writes files must not be able to write one, so no file has blocks there. The
// very beginning has the superblock and descriptors.
const (
	// tail is a hole in the file behind the file system, in bytes: RAIDs have their signatures in the last 1.6 MB.
	tail = 2 << 20
	// firstHeader to lastHeader are where second headers of LUKS are, at powers of 2.
	firstHeader, lastHeader = 16 << 10, 4 << 20
)

// unused returns the numbers of the blocks at the beginning of a file system of a size that no file may have, for mke2fs -l.
func unused(bytes int64) string {
	const group, descriptor = 8 * blockSize, 64 // blocks of a group, and bytes of its descriptor
	groups := (bytes/blockSize + group - 1) / group
	var list strings.Builder
	for at := int64(firstHeader); at <= lastHeader; at *= 2 {
		if block := at / blockSize; block > 1+(groups*descriptor+blockSize-1)/blockSize { // behind the superblock and the descriptors
			fmt.Fprintln(&list, block)
		}
	}
	return list.String()
}

// Format creates an empty ext4 file system of a size in bytes in an empty file, which becomes a little longer. No blocks are reserved for
// root, since root writes nothing to volumes.
func Format(file *os.File, bytes, inodes int64) error {
	path, err := Program("mkfs.ext4")
	if err != nil {
		return err
	}
	if err := file.Truncate(bytes + tail); err != nil {
		return err
	}
	c := exec.Command(path, "-q", "-F", "-t", "ext4", "-b", strconv.Itoa(blockSize), "-I", "256", "-m", "0",
		"-N", strconv.FormatInt(inodes, 10), "-O", features, "-E", "lazy_itable_init=1,nodiscard",
		"-l", "/proc/self/fd/0", "/proc/self/fd/3", strconv.FormatInt(bytes/blockSize, 10))
	c.Stdin = strings.NewReader(unused(bytes))
	c.ExtraFiles = []*os.File{file}
	c.Env = environment
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %.400s", err, out)
	}
	return nil
}

// Fields of the superblock, see Documentation/filesystems/ext4/super.rst. Only the kernel and e2fsprogs have written it.
const (
	superMagic  = 1024 + 0x38
	superState  = 1024 + 0x3a
	ext4Magic   = 0xef53
	stateClean  = 1 // cleanly unmounted
	stateErrors = 2
)

// checkPatience is the timeout of a check.
const checkPatience = 10 * time.Minute

// Clean reports whether a file system that is not mounted was unmounted, and had no errors.
func Clean(file *os.File) (bool, error) {
	var b [4]byte
	if _, err := file.ReadAt(b[:], superMagic); err != nil {
		return false, err
	}
	magic, state := binary.LittleEndian.Uint16(b[:2]), binary.LittleEndian.Uint16(b[superState-superMagic:])
	return magic == ext4Magic && state&(stateClean|stateErrors) == stateClean, nil
}

// Repair repairs a file system that is not clean, as after a crash of the machine. It has no journal from which the kernel
// could recover.
func Repair(file *os.File) error {
	if clean, err := Clean(file); clean || err != nil {
		return err
	}
	path, err := Program("e2fsck")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkPatience)
	defer cancel()
	c := exec.CommandContext(ctx, path, "-p", "-f", "/proc/self/fd/3")
	c.ExtraFiles = []*os.File{file}
	c.Env = environment
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) && exit.ExitCode() == repaired {
		return nil
	}
	return fmt.Errorf("%w: %w: %.400s\nhint: recover files with e2fsck(8) and debugfs(8), or discard the layer", ErrDamaged, err, out)
}

// repaired is e2fsck's exit code after it has corrected all errors.
const repaired = 1
