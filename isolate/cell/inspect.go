package cell

import (
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
)

// An inspection is a snapshot of the jails of a supervisor, for diagnosis.
type inspection struct {
	Jails     []JailState
	Slots     int    // waiting slots, including those being made
	SpareRoot uint64 // device number of the root that was written ahead; 0 if there is none
}

// A JailState describes one jail.
type JailState struct {
	Name            string
	Repo            string
	Session         string // id of its session, or ""
	InitPID         int    // process 1
	Waiting         []int  // processes 1 of the waiting slots
	Want            int    // how many slots are to wait
	Used            int    // slots that are still to be torn down
	FreeUsers       int    // users that no slot has
	IDMaps          int    // id maps that are cached
	ScannerPID      int    // process 1 of the scanner's slot; 0 if there is no scanner
	ScannerRequests uint64 // number of requests to the scanner
}

// Inspect returns a snapshot of the jails that are built.
func (s *Jails) Inspect() inspection {
	list := inspection{Slots: int(s.slots.waiting.Load())}
	s.roots.mu.Lock()
	if s.roots.spare != nil {
		var st unix.Stat_t
		if unix.Fstat(int(s.roots.spare.mount.Fd()), &st) == nil {
			list.SpareRoot = st.Dev
		}
	}
	s.roots.mu.Unlock()
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.all))
	s.mu.Unlock()
	for _, j := range all {
		<-j.built
		if j.failure == nil {
			list.Jails = append(list.Jails, j.state())
		}
	}
	return list
}

func (j *Jail) state() JailState {
	d := JailState{Name: j.name, Repo: j.repo.Path, Session: j.key.session}
	if state, err := j.container.State(); err == nil {
		d.InitPID = state.InitProcessPid
	}
	j.users.mu.Lock()
	d.FreeUsers, d.IDMaps = len(j.users.free), len(j.users.maps)
	j.users.mu.Unlock()
	j.pool.mu.Lock()
	for _, sl := range j.pool.ready {
		if pid, err := host.PidOf(sl.pidfd); err == nil {
			d.Waiting = append(d.Waiting, pid)
		}
	}
	d.Want, d.Used = j.pool.demand.want, len(j.pool.used)
	j.pool.mu.Unlock()
	j.scannerMu.Lock()
	scanner := j.scanner
	j.scannerMu.Unlock()
	if scanner != nil {
		d.ScannerPID, _ = host.PidOf(scanner.slot.(*Slot).pidfd) // 0 if it has exited
		scanner.mu.Lock()
		d.ScannerRequests = scanner.sent
		scanner.mu.Unlock()
	}
	return d
}
