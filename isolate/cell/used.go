package cell

import "time"

const (
	// maxUsed is the number of used slots, and usedPatience the age of the oldest, at which slots are torn down even
	// while jobs run.
	maxUsed      = 16
	usedPatience = 250 * time.Millisecond
)

// usedSlots are slots to be torn down, the oldest first.
type usedSlots []usedSlot

// A usedSlot was used by a job, or is surplus.
type usedSlot struct {
	slot *Slot
	at   time.Time
}

// add adds a slot that is used from now on.
func (u *usedSlots) add(slot *Slot) { *u = append(*u, usedSlot{slot, time.Now()}) }

// many reports whether slots have to be torn down at once.
func (u usedSlots) many() bool { return len(u) >= maxUsed }

// next removes and returns the slot to tear down now, or nil. If rest is set, no job waits for that.
func (u *usedSlots) next(rest bool) (slot *Slot) {
	list := *u
	if len(list) == 0 || !rest && !list.many() && time.Since(list[0].at) <= usedPatience {
		return slot
	}
	return u.oldest()
}

// oldest removes and returns the first slot. There must be one.
func (u *usedSlots) oldest() *Slot {
	first := (*u)[0].slot
	*u = (*u)[1:]
	return first
}
