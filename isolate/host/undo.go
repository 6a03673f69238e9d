package host

// A Cleanup is a list of functions that undo completed steps, to be run when a later step fails or at the end of a
// lifetime.
type Cleanup struct{ steps []func() }

// Push adds f to the functions that Run calls, in reverse order.
func (u *Cleanup) Push(f func()) { u.steps = append(u.steps, f) }

// Run calls the functions, last pushed first. After cancel it does nothing.
func (u *Cleanup) Run() {
	for i := len(u.steps) - 1; i >= 0; i-- {
		u.steps[i]()
	}
	u.steps = nil
}

// Cancel drops the functions: the steps succeeded and are not undone.
func (u *Cleanup) Cancel() { u.steps = nil }
