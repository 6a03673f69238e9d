package artifact

import (
	"sync"
)

// owners caches the principals of a store's artifacts, which are in their manifests and never change.
type owners struct {
	mu        sync.Mutex
	principal map[string]string // guarded by mu, by handle
}

func (o *owners) set(handle, principal string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.principal == nil {
		o.principal = map[string]string{}
	}
	o.principal[handle] = principal
}

func (o *owners) of(handle string) (principal string, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	principal, known = o.principal[handle]
	return principal, known
}

// only removes all entries but those of list.
func (o *owners) only(list []entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.principal) <= len(list) {
		return
	}
	kept := make(map[string]string, len(list))
	for _, a := range list {
		if principal, known := o.principal[a.Handle]; known {
			kept[a.Handle] = principal
		}
	}
	o.principal = kept
}

// owner returns the principal of an artifact. All artifacts with unreadable manifests count as one unnamed owner's.
func (d *diskDir) owner(handle string) string {
	if principal, known := d.owners.of(handle); known {
		return principal
	}
	a, err := d.Open(handle)
	if err != nil {
		return ""
	}
	a.Close()
	d.owners.set(handle, a.Manifest.Principal)
	return a.Manifest.Principal
}
