package cell

import (
	"sync"
	"time"

	"corral/internal/fault"
	"corral/isolate/wire"
)

// noteFull records in r whether the layer has run out of space or inodes.
func (j *Jail) noteFull(r *wire.Result) {
	u, err := j.view.layer.Usage()
	r.LayerFull = r.LayerFull || err == nil && u.Full()
	r.FilesFull = r.FilesFull || err == nil && u.FreeFiles == 0
	if err == nil {
		short, err := j.view.layer.Refill(u)
		j.report("room of a layer", err)
		r.RoomShort = r.RoomShort || short
	}
}

// WatchLayer polls the layer of the jail's session, if it has one, while a job runs in it, so that a layer that was full
// only for a while is reported too. The layer grows meanwhile as far as there is room. It checks a last
// time in the first call of stop.
func (j *Jail) WatchLayer(r *wire.Result) (stop func()) {
	if j.session == nil {
		return func() {}
	}
	j.report("room of a layer", j.view.layer.JobBegins())
	var mu sync.Mutex
	var timer *time.Timer
	over := false
	mu.Lock()
	defer mu.Unlock()
	timer = fault.AfterFunc(j.s.Log, "watching a layer", layerInterval, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			j.noteFull(r)
			timer.Reset(layerInterval)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		over = true
		timer.Stop()
		j.noteFull(r)
		j.report("room of a layer", j.view.layer.JobEnds())
	}
}

// layerInterval is how often a layer is checked while a job runs.
const layerInterval = 50 * time.Millisecond
