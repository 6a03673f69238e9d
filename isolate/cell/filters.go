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

// compileFilters compiles the filter of each profile. The caller must call closeFilters, also after an error.
func compileFilters() (map[string]filter, error) {
	filters := map[string]filter{}
	for _, profile := range append(seccomp.Profiles(), seccomp.Scanner) {
		ahead, last, err := seccomp.Split(profile, runtime.GOARCH)
		if err != nil {
			return filters, err
		}
		file, err := wire.Seal("filter-"+profile, slices.Concat(ahead, last), 0)
		if err != nil {
			return filters, err
		}
		filters[profile] = filter{file, len(last)}
	}
	return filters, nil
}

func closeFilters(filters map[string]filter) {
	for _, f := range filters {
		f.file.Close()
	}
}
