package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unprivileged returns an error if the process is root or has a capability.
func unprivileged() error {
	var ids [6]int
	ids[0], ids[1], ids[2] = unix.Getresuid()
	ids[3], ids[4], ids[5] = unix.Getresgid()
	for _, id := range ids {
		if id == 0 {
			return errors.New("started as root or in root's group: it reads what jobs and servers send, so it must be another user")
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if data != [2]unix.CapUserData{} {
		return errors.New("started with a capability: it reads what jobs and servers send, so it must have none")
	}
	return nil
}

// threads makes a system call in all threads: syscall.AllThreadsSyscall6, which programs without a C library have.
type threads func(trap, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2 uintptr, err syscall.Errno)

// confine gives up what the process does not need. It applies to all threads. Of files, those in the directory stay, -1 is none.
func confine(filter, directory int, all threads) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: %w", err)
	}
	if _, _, errno := all(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("prctl PR_SET_NO_NEW_PRIVS: %w", errno)
	}
	program, err := readFilter(filter)
	if err != nil {
		return err
	}
	if err := closeFiles(directory, all); err != nil {
		return err
	}
	return loadFilter(program)
}

// Versions of the Landlock ABI that add rights to be taken away, landlock(7).
var landlockVersions = []struct {
	abi    uintptr
	access uint64
	scoped uint64
}{
	{1, 1<<13 - 1, 0},
	{2, unix.LANDLOCK_ACCESS_FS_REFER, 0},
	{3, unix.LANDLOCK_ACCESS_FS_TRUNCATE, 0},
	{5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV, 0},
	{6, 0, unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL},
}

// storeAccess is what the program may do in its directory: keep regular files.
const storeAccess = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
	unix.LANDLOCK_ACCESS_FS_REMOVE_FILE

var errLandlock = errors.New("the kernel has no Landlock, which bounds the program to the directory of its store")

// closeFiles takes away access to all files but those in a directory, and to sockets and processes of others, as far as the kernel has
// that. Without Landlock, the filter alone refuses to open files; one that allows it for the directory is not enough.
func closeFiles(directory int, all threads) error {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 && directory >= 0 {
		return errLandlock
	}
	if errno != 0 {
		return nil
	}
	var attr unix.LandlockRulesetAttr
	for _, v := range landlockVersions {
		if abi >= v.abi {
			attr.Handled_access_fs |= v.access
			attr.Scoped |= v.scoped
		}
	}
	// The structure grew with the versions; an older kernel takes a longer one if the rest is zero.
	rules, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	defer unix.Close(int(rules))
	if directory >= 0 {
		beneath := unix.LandlockPathBeneathAttr{Allowed_access: storeAccess, Parent_fd: int32(directory)}
		if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, rules, unix.LANDLOCK_RULE_PATH_BENEATH,
			uintptr(unsafe.Pointer(&beneath)), 0, 0, 0); errno != 0 {
			return fmt.Errorf("landlock_add_rule: %w", errno)
		}
	}
	if _, _, errno := all(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	return nil
}

// maxInstructions is the kernel's maximum for a filter.
const maxInstructions = 4096

// readFilter reads a compiled filter, and closes its descriptor. An instruction has 8 bytes, in the byte order of the machine.
func readFilter(fd int) ([]unix.SockFilter, error) {
	file := os.NewFile(uintptr(fd), "filter")
	defer file.Close()
	const size = 8
	b, err := io.ReadAll(io.NewSectionReader(file, 0, maxInstructions*size+1))
	if err != nil {
		return nil, fmt.Errorf("read the filter of system calls, descriptor %d: %w", fd, err)
	}
	if len(b) == 0 || len(b)%size != 0 || len(b) > maxInstructions*size {
		return nil, fmt.Errorf("the filter of system calls has %d bytes, must have 8 for each of 1 to %d instructions", len(b), maxInstructions)
	}
	program := make([]unix.SockFilter, 0, len(b)/size)
	for ; len(b) > 0; b = b[size:] {
		program = append(program, unix.SockFilter{
			Code: binary.NativeEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.NativeEndian.Uint32(b[4:]),
		})
	}
	return program, nil
}

// loadFilter loads a filter into all threads.
func loadFilter(program []unix.SockFilter) error {
	list := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&list)))
	runtime.KeepAlive(program)
	switch {
	case errno != 0:
		return fmt.Errorf("seccomp: %w", errno)
	case thread != 0:
		return fmt.Errorf("seccomp: thread %d has another filter", thread)
	}
	return nil
}
