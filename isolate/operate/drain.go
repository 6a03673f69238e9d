package operate

import "sync/atomic"

// A Drain keeps new work out of a supervisor while work that runs ends by itself. The zero value admits all work.
type Drain struct{ on atomic.Bool }

// Set begins to keep new work out, or admits it again.
func (d *Drain) Set(on bool) { d.on.Store(on) }

// On reports whether new work is kept out.
func (d *Drain) On() bool { return d.on.Load() }
