package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

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

// Close closes the files of the programs.
func (p *Programs) Close() { wire.CloseAll([]*os.File{p.Init, p.Stub, p.Layer, p.Starlark}) }
