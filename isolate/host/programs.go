package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"corral/isolate/wire"
)

// maxProgram is the maximum size in bytes of a program that runs inside jails.
const maxProgram = 16 << 20

// Programs holds the programs that run inside jails as sealed memfds: no job can reach or replace them
// (CVE-2019-5736), and memory holds one copy for all jails.
type Programs struct {
	Init, Stub, Layer *os.File
	Starlark          *os.File // nil if it is not installed
}

// StarlarkProgram is the only program that may be missing.
const StarlarkProgram = "corral-starlark"

// LoadPrograms reads the programs that run inside jails from dir, which must be writable by root alone.
func LoadPrograms(dir string) (*Programs, error) {
	var p Programs
	for name, to := range map[string]**os.File{
		"corral-init": &p.Init, "corral-stub": &p.Stub, "corral-layer": &p.Layer, StarlarkProgram: &p.Starlark,
	} {
		f, err := LoadProgram(filepath.Join(dir, name))
		if name == StarlarkProgram && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			p.Close()
			return nil, err
		}
		*to = f
	}
	return &p, nil
}

// LoadProgram reads a program, which only root can write, into a sealed memfd.
func LoadProgram(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s is not a file that only root can write: it would run as every jail's first process", path)
	}
	if st.Size > maxProgram {
		return nil, fmt.Errorf("%s has %d bytes; a program that runs inside jails has at most %d: install it again", path, st.Size, maxProgram)
	}
	program, err := wire.SealCopy(filepath.Base(path), f, st.Size, 0o111)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return program, nil
}

// Fork starts a program that LoadProgram has returned, under a name, as syscall.ForkExec does. The caller reaps the process.
func Fork(program *os.File, name string, attr *syscall.ProcAttr) (pid int, err error) {
	// The path of the program is looked up by the child, after ForkExec has put other files at the numbers from 0 to those of attr.Files, and
	// those that were in their way at the next ones, with a pipe of its own. A program at such a number is replaced, and what is
	// executed is a pipe or a socket: EACCES.
	behind := len(attr.Files)
	for _, fd := range attr.Files {
		if fd != NoFile {
			behind = max(behind, int(fd))
		}
	}
	fd, err := unix.FcntlInt(program.Fd(), unix.F_DUPFD_CLOEXEC, behind+len(attr.Files)+3)
	if err != nil {
		return 0, os.NewSyscallError("fcntl", err)
	}
	defer unix.Close(fd)
	defer Forking()()
	return syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", fd), []string{name}, attr)
}

// NoFile is a descriptor in ProcAttr.Files that the child does not have.
const NoFile = ^uintptr(0)

// Close closes the files of the programs.
func (p *Programs) Close() { wire.CloseAll([]*os.File{p.Init, p.Stub, p.Layer, p.Starlark}) }
