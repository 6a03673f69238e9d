package isolate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"corral/isolate/wire"
)

// maxProgram is the maximum size in bytes of a program that runs inside jails.
const maxProgram = 16 << 20

// programs holds the programs that run inside jails as sealed memfds: no job can reach or replace them
// (CVE-2019-5736), and memory holds one copy for all jails.
type programs struct {
	init, stub, layer *os.File
	starlark          *os.File // nil if it is not installed
}

// starlarkProgram is the only program that may be missing.
const starlarkProgram = "corral-starlark"

// loadPrograms reads the programs that run inside jails from dir, which must be writable by root alone.
func loadPrograms(dir string) (*programs, error) {
	var p programs
	for name, to := range map[string]**os.File{
		"corral-init": &p.init, "corral-stub": &p.stub, "corral-layer": &p.layer, starlarkProgram: &p.starlark,
	} {
		f, err := loadProgram(filepath.Join(dir, name))
		if name == starlarkProgram && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			p.close()
			return nil, err
		}
		*to = f
	}
	return &p, nil
}

func loadProgram(path string) (*os.File, error) {
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
	content, err := io.ReadAll(io.LimitReader(f, maxProgram))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return wire.Seal(filepath.Base(path), content, 0o111)
}

func (p *programs) close() { wire.CloseAll([]*os.File{p.init, p.stub, p.layer, p.starlark}) }
