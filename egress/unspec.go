package egress

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// connectUnspec calls connect(2) with an address of the family AF_UNSPEC, for which package unix has no type.
func connectUnspec(fd int) error {
	none := unix.RawSockaddrInet4{Family: unix.AF_UNSPEC}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), unix.SizeofSockaddrInet4)
	if errno != 0 {
		return errno
	}
	return nil
}
