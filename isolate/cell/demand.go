package cell

// minSlots is the minimum number of waiting slots, within the configured maximum.
const minSlots = 2

// A demand is the number of slots that a pool should have waiting. It follows the jobs: when a job finds no slot, it
// grows to the number of jobs that came since it was last reached; at intervals it shrinks by half of the slots that
// were never needed (the working set of Bonwick and Adams, Magazines and Vmem, USENIX 2001).
type demand struct {
	maximum int // may be negative
	want    int // the number
	taken   int // jobs that came since the number was last reached
	low     int // minimum of waiting slots since the last trim
}

func newDemand(maximum int) demand {
	return demand{maximum: maximum, want: max(0, min(minSlots, maximum))}
}

// missed records that a job found no slot.
func (d *demand) missed() {
	d.want = max(d.want, min(d.taken, d.maximum))
	d.low = 0
}

// left records how many slots wait after one was taken.
func (d *demand) left(n int) { d.low = min(d.low, n) }

// trim shrinks the number by half of the slots that were not needed since the last trim.
func (d *demand) trim() { d.want = max(minSlots, d.want-(d.low+1)/2) }
