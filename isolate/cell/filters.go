package cell

import (
	"os"
	"runtime"
	"slices"
	"sync"

	"corral/isolate/wire"
	"corral/seccomp"
)

// A filter holds a profile's compiled seccomp programs: ahead, and last, which the stub loads directly before the job's program starts.
type filter struct{ ahead, last []byte }

// compiled compiles and verifies the programs of each profile, once in a process: they depend on its architecture alone.
var compiled = sync.OnceValues(func() (map[string]filter, error) {
	all := map[string]filter{}
	for _, profile := range append(seccomp.Profiles(), seccomp.Scanner) {
		ahead, last, err := seccomp.Split(profile, runtime.GOARCH)
		if err != nil {
			return nil, err
		}
		all[profile] = filter{ahead, last}
	}
	return all, nil
})

// file returns a sealed file with both programs, for a job whose user and group have these numbers. The caller closes it.
func (f filter) file(user, group uint32) (*os.File, error) {
	return wire.Seal("filter", slices.Concat(seccomp.Own(f.ahead, user, group), f.last), 0)
}
