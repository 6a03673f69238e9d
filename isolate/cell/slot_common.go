package cell

import (
	"fmt"
	"os"

	"corral/isolate/inside"
)

// addCommon adds the common directory, if there is one, to the plan, and returns its mount. It is read-only if the
// repository is, if the operator made either readonly or overlay, or if the job must not change git directories.
func (sl *Slot) addCommon(plan *inside.Plan, readOnly bool) ([]*os.File, error) {
	c := sl.jail.repo.Common
	if c == nil {
		return nil, nil
	}
	readOnly = readOnly || sl.jail.s.Served.CommonReadOnly(c.Path)
	ids := sl.idmap
	if r := sl.jail.repo; c.Owner != r.Owner {
		var err error
		if ids, err = sl.jail.s.Userns.RepoMap(c.Owner, sl.hostUID(), sl.jail.base); err != nil {
			return nil, err
		}
		defer ids.Close()
	}
	mount, err := c.Clone(ids, readOnly)
	if err != nil {
		return nil, fmt.Errorf("the git directory of the worktree: %w", err)
	}
	plan.Common = c.Path
	return []*os.File{mount}, nil
}

// mount makes a mount of the repository for the slot's job. It is not made ahead: it must have the flags that the
// host's mount has when the job comes, and must fail if the operator has unmounted it.
func (sl *Slot) mount(readOnly bool) (*os.File, error) {
	return sl.jail.repo.Clone(sl.idmap, readOnly)
}
