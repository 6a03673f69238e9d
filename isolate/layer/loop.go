package layer

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A loop is a loop device, loop(4). The kernel detaches it after its last use.
type loop struct {
	number int
	device *os.File // until closeDevice
}

// attachTries is the maximum number of attempts at a free device: other processes may take one between the query and its
// use.
const attachTries = 64

// attach returns a loop device with file as its backing file.
func attach(file *os.File, readOnly bool) (*loop, error) {
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
		l := &loop{number: number}
		switch err := l.configure(file, readOnly); {
		case err == nil:
			return l, nil
		case !errors.Is(err, unix.EBUSY):
			return nil, fmt.Errorf("loop device %d: %w", number, err)
		}
	}
	return nil, fmt.Errorf("%w: no free loop device after several attempts", ErrHost)
}

// node returns the path of the device file. devtmpfs creates it with the device, so there is no need to wait for udev.
func (l *loop) node() string { return "/dev/loop" + strconv.Itoa(l.number) }

func (l *loop) configure(file *os.File, readOnly bool) error {
	mode, flags := os.O_RDWR, uint32(unix.LO_FLAGS_AUTOCLEAR)
	if readOnly {
		mode, flags = os.O_RDONLY, flags|unix.LO_FLAGS_READ_ONLY
	}
	device, err := os.OpenFile(l.node(), mode, 0)
	if err != nil {
		return err
	}
	config := unix.LoopConfig{Fd: uint32(file.Fd())}
	// Bypass the page cache, which already contains the layer's own pages.
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
	l.device = device
	return nil
}

func (l *loop) closeDevice() { l.device.Close() }

// errStillUsed is returned by ended if the device is still attached.
var errStillUsed = errors.New("still in use")

// ended waits until the device no longer uses this layer: its last mount is gone, in every namespace.
func (l *loop) ended(file *os.File, patience time.Duration) error {
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
			return fmt.Errorf("loop device %d is %w after %v", l.number, errStillUsed, patience)
		}
		time.Sleep(wait)
	}
}

// uses reports whether the device's backing file has this inode; the device may meanwhile have been reused for another
// file.
func (l *loop) uses(dev, ino uint64) (bool, error) {
	device, err := os.OpenFile(l.node(), os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer device.Close()
	return l.backedBy(device, dev, ino)
}

func (l *loop) backedBy(device *os.File, dev, ino uint64) (bool, error) {
	info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("loop device %d: %w", l.number, err)
	}
	return info.Device == dev && info.Inode == ino, nil
}
