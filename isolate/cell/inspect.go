package cell

import (
	"golang.org/x/sys/unix"

	"corral/internal/fault"
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
	list := inspection{Slots: int(s.waiting.Load())}
	fault.With(&s.roots.mu, func() {
		var st unix.Stat_t
		if s.roots.spare != nil && unix.Fstat(int(s.roots.spare.mount.Fd()), &st) == nil {
			list.SpareRoot = st.Dev
		}
	})
	for _, j := range s.list() {
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
	fault.With(&j.users.mu, func() { d.FreeUsers, d.IDMaps = len(j.users.free), len(j.users.maps) })
	fault.With(&j.pool.mu, func() {
		for _, sl := range j.pool.ready {
			if pid, err := host.PidOf(sl.pidfd); err == nil {
				d.Waiting = append(d.Waiting, pid)
			}
		}
		d.Want, d.Used = j.pool.demand.want, len(j.pool.used)
	})
	if scanner := fault.Get(&j.scannerMu, func() *scanner { return j.scanner }); scanner != nil {
		d.ScannerPID, _ = host.PidOf(scanner.slot.pidfd) // 0 if it has exited
		d.ScannerRequests = fault.Get(&scanner.mu, func() uint64 { return scanner.sent })
	}
	return d
}
