package probe

// An Entry makes probes that are charged to one directory of the operator's configuration.
type Entry struct {
	p  *Prober
	by payer
}

// Entry returns the prober for the configured directory at path. Of several probes of one directory, one is made at a time.
func (p *Prober) Entry(path string) Entry { return Entry{p, payer{entry: path}} }

// Identify opens a directory that the entry's path leads to, as OpenDir does, and returns its identity.
func (e Entry) Identify(path string) (Identity, error) {
	dir, id, err := e.p.openDir(e.by, path)
	e.p.discard(e.by, dir)
	return id, err
}
