package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Loop is a loop device, loop(4). The kernel detaches it after its last use.
type Loop struct {
	Number int
	Device *os.File // until Close
}

// attachTries is the maximum number of attempts at a free device: other processes may take one between the query and its
// use.
const attachTries = 64

// Attach returns a loop device with file as its backing file. The caller must call Close once the device is mounted.
func Attach(file *os.File, readOnly bool) (*Loop, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w\nhint: load the loop driver (modprobe loop)", ErrHost, err)
	}
	defer control.Close()
	for range attachTries {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("%w: a free loop device: %w", ErrHost, err)
		}
		l := &Loop{Number: number}
		switch err := l.configure(file, readOnly); {
		case err == nil:
			return l, nil
		case !errors.Is(err, unix.EBUSY):
			return nil, fmt.Errorf("loop device %d: %w", number, err)
		}
	}
	return nil, fmt.Errorf("%w: no free loop device after several attempts", ErrHost)
}

// attached returns the loop device whose backing file is called name and has an inode, nil if there is none. It stays attached until Close
// at least. Devices of other files are not opened: they can be those of users, whose file systems would be asked, and udev looks at each
// device again that was open for writing.
func attached(name string, dev, ino uint64) (*Loop, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, at := range files {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(filepath.Dir(at))), "loop"))
		if err != nil || !mayBack(at, name) {
			continue
		}
		l := &Loop{Number: number}
		if l.Device, err = os.OpenFile(l.Node(), os.O_RDONLY, 0); err != nil {
			continue // it was detached meanwhile
		}
		if used, err := l.BackedBy(l.Device, dev, ino); used && err == nil {
			return l, nil
		}
		l.Close()
	}
	return nil, err
}

// mayBack reports whether the backing file that a file of sysfs has the path of may be called name. A path that is too long is not there.
func mayBack(at, name string) bool {
	path, err := os.ReadFile(at)
	if err != nil {
		return true
	}
	return filepath.Base(strings.TrimSuffix(strings.TrimSuffix(string(path), "\n"), " (deleted)")) == name
}

// Node returns the path of the device file. devtmpfs creates it with the device, so there is no need to wait for udev.
func (l *Loop) Node() string { return "/dev/loop" + strconv.Itoa(l.Number) }

func (l *Loop) configure(file *os.File, readOnly bool) error {
	mode, flags := os.O_RDWR, uint32(unix.LO_FLAGS_AUTOCLEAR)
	if readOnly {
		mode, flags = os.O_RDONLY, flags|unix.LO_FLAGS_READ_ONLY
	}
	device, err := os.OpenFile(l.Node(), mode, 0)
	if err != nil {
		return err
	}
	config := unix.LoopConfig{Fd: uint32(file.Fd())}
	// Bypass the page cache, which already contains the pages of the file system in it.
	config.Info.Flags = flags | unix.LO_FLAGS_DIRECT_IO
	err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
	if errors.Is(err, unix.EINVAL) { // the file system does not support direct I/O
		config.Info.Flags = flags
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
	}
	if err != nil {
		device.Close()
		return err
	}
	l.Device = device
	return nil
}

// Close closes the device: the kernel detaches it with its last mount.
func (l *Loop) Close() { l.Device.Close() }

// ErrStillUsed is returned by Ended if the device is still attached.
var ErrStillUsed = errors.New("still in use")

// Ended waits until the device no longer uses this file: its last mount is gone, in every namespace.
func (l *Loop) Ended(file *os.File, patience time.Duration) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return err
	}
	end := time.Now().Add(patience)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		used, err := l.uses(st.Dev, st.Ino)
		switch {
		case err != nil || !used:
			return err
		case time.Now().After(end):
			return fmt.Errorf("loop device %d is %w after %v", l.Number, ErrStillUsed, patience)
		}
		time.Sleep(wait)
	}
}

// uses reports whether the device's backing file has this inode; the device may meanwhile have been reused for another
// file.
func (l *Loop) uses(dev, ino uint64) (bool, error) {
	device, err := os.OpenFile(l.Node(), os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer device.Close()
	return l.BackedBy(device, dev, ino)
}

// BackedBy reports whether the backing file of the device, which is open, has an inode.
func (l *Loop) BackedBy(device *os.File, dev, ino uint64) (bool, error) {
	info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("loop device %d: %w", l.Number, err)
	}
	return info.Device == dev && info.Inode == ino, nil
}
