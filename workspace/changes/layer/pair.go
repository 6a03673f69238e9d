package layer

import (
	"golang.org/x/sys/unix"

	"corral/isolate/scan"
	"corral/job"
	"corral/workspace/changes/stream"
)

// A pair is one directory in both trees.
type pair struct {
	path         string // "" is the root
	depth        int
	upper, lower *dir // one of them may be nil
	hidden       bool // entries of lower that are not in upper are deleted
	fresh        bool // it replaced something else during this walk
	gone         bool // its own deletion covers its contents
	rules        scan.Rules
	use          use // state of the applier
}

func (p *pair) join(name string) string {
	if p.path == "" {
		return name
	}
	return p.path + "/" + name
}

// A use is the state of a directory of the repository that is written to.
type use struct {
	checked  bool
	writable bool
	opened   bool   // its permissions are extended while it is written to
	mode     uint32 // the original permissions
	dirty    bool
	made     *unix.Stat_t // the layer's directory, if this walk created it
}

// A change is one name in both trees.
type change struct {
	at         *pair
	name, path string
	u, l       *unix.Stat_t // in the layer and in the repository; nil if missing. A whiteout counts as missing
	kind       job.ChangeKind
	link, old  string // targets of links
	sensitive  bool
	below      scan.Rules
	bare       func() bool // reports whether its directory is a bare repository
	dir        *dir        // u, if it is a directory that could be opened
	marks      marks
	barred     stream.Reason // why u cannot be read, or 0
	replaced   bool          // the visitor has replaced something else by u, a directory
	made       *unix.Stat_t  // u, if the visitor has created it in the repository
}

// A class is the operation that a change requires, known before the change is classified.
type class uint8

const (
	adds class = iota
	alters
	deletes
)

func (c *change) class() class {
	switch {
	case c.u == nil:
		return deletes
	case c.l == nil:
		return adds
	}
	return alters
}

// rulesBelow returns the rules for the repository's paths below a deleted directory.
func (c *change) rulesBelow() scan.Rules {
	_, below := c.at.rules.Entry(c.name, true, c.bare)
	return below
}

// A visitor is called for each difference, for directories before their contents.
type visitor interface {
	// enter is called before the contents of a directory.
	enter(p *pair) error
	// wants reports whether visit should be called with the change, whose kind is not set yet.
	wants(c *change) bool
	// visit is called with a change. kind is "" for a directory that is equal in both trees. The contents of a
	// directory of the layer are visited only if descend is true.
	visit(c *change) (descend bool, err error)
	// leave is called after the contents of an entered directory, also after errors.
	leave(p *pair) error
	// closed is called for a directory of the repository that cannot be opened, instead of its contents.
	closed(c *change) error
}

// reach tells how much of a path the requested paths cover.
type reach uint8

const (
	nowhere reach = iota
	partly        // only something below it
	wholly
)
