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

// maxProgram bounds a program of ours, in bytes.
const maxProgram = 16 << 20

// programs are what runs inside jails, as sealed memfds: no file that a job could ever reach or replace (CVE-2019-5736),
// and one copy in memory however many jails there are.
type programs struct {
	init, stub, layer *os.File
	starlark          *os.File // nil: it is not installed
}

// starlarkProgram is the one that a supervisor can do without.
const starlarkProgram = "corral-starlark"

// loadPrograms reads what runs inside jails from dir, which must be root's alone to write.
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
