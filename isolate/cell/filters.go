package cell

import (
	"os"
	"runtime"
	"slices"

	"corral/isolate/wire"
	"corral/seccomp"
)

// A filter holds a profile's compiled seccomp programs.
type filter struct {
	file *os.File // sealed
	last int      // length in bytes of the program at the end of file, which the stub loads last
}

func (s *Jails) compileFilters() error {
	for _, profile := range append(seccomp.Profiles(), seccomp.Scanner) {
		ahead, last, err := seccomp.Split(profile, runtime.GOARCH)
		if err != nil {
			return err
		}
		file, err := wire.Seal("filter-"+profile, slices.Concat(ahead, last), 0)
		if err != nil {
			return err
		}
		s.filters[profile] = filter{file, len(last)}
	}
	return nil
}

func (s *Jails) closeFilters() {
	for _, f := range s.filters {
		f.file.Close()
	}
}
