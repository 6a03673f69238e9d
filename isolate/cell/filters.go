package cell

import (
	"os"
	"runtime"
	"slices"
	"sync"

	"corral/isolate/wire"
	"corral/seccomp"
)

// A filter holds a profile's compiled seccomp programs.
type filter struct {
	file *os.File // sealed
	last int      // length in bytes of the program at the end of file, which the stub loads last
}

// A split is the two programs of a profile.
type split struct{ ahead, last []byte }

// compiled compiles and verifies the programs of each profile, once in a process: they depend on its architecture alone.
var compiled = sync.OnceValues(func() (map[string]split, error) {
	all := map[string]split{}
	for _, profile := range append(seccomp.Profiles(), seccomp.Scanner) {
		ahead, last, err := seccomp.Split(profile, runtime.GOARCH)
		if err != nil {
			return nil, err
		}
		all[profile] = split{ahead, last}
	}
	return all, nil
})

// compileFilters returns the filter of each profile. The caller must call closeFilters, also after an error.
func compileFilters() (map[string]filter, error) {
	filters := map[string]filter{}
	all, err := compiled()
	for profile, s := range all {
		file, err := wire.Seal("filter-"+profile, slices.Concat(s.ahead, s.last), 0)
		if err != nil {
			return filters, err
		}
		filters[profile] = filter{file, len(s.last)}
	}
	return filters, err
}

func closeFilters(filters map[string]filter) {
	for _, f := range filters {
		f.file.Close()
	}
}
