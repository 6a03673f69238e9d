package isolate

// A cleanup is a list of functions that undo completed steps, to be run when a later step fails or at the end of a
// lifetime.
type cleanup struct{ steps []func() }

func (u *cleanup) push(f func()) { u.steps = append(u.steps, f) }

// run calls the functions, last pushed first. After cancel it does nothing.
func (u *cleanup) run() {
	for i := len(u.steps) - 1; i >= 0; i-- {
		u.steps[i]()
	}
	u.steps = nil
}

// cancel drops the functions: the steps succeeded and are not undone.
func (u *cleanup) cancel() { u.steps = nil }
