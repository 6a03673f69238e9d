package layer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/scan"
)

// Bounds limits one run. A zero field stands for its default.
type Bounds struct {
	Entries int           // names read, in both trees; default 2,000,000
	Depth   int           // nested directories; default 256
	Bytes   int64         // of compared content; default 8 GiB. An apply has no such bound, nor has a run with a digest
	Time    time.Duration // default 30 s for a list, 2 min for a diff, 1 h for an apply
	List    int           // entries in the stream, plus as many sensitive ones; default 1,000,000
	File    int64         // bytes of one side of a file in a diff; default 4 MiB
	Diff    int64         // bytes of all contents in a diff; default 64 MiB
	// Contents is the maximum of content bytes in a list; by default it has none.
	Contents int64
}

// unlimited stands for no bound of bytes.
const unlimited = 1 << 62

// maxDepth is the maximum of Bounds.Depth: each level holds two descriptors.
const maxDepth = 512

func (b Bounds) withDefaults(long time.Duration) Bounds {
	set(&b.Entries, 2_000_000)
	set(&b.Depth, 256)
	set(&b.Bytes, 8<<30)
	set(&b.Time, long)
	set(&b.List, 1_000_000)
	set(&b.File, 4<<20)
	set(&b.Diff, 64<<20)
	b.Depth = min(b.Depth, maxDepth)
	return b
}

func set[T int | int64 | time.Duration](p *T, v T) {
	if *p <= 0 {
		*p = v
	}
}

// Options select what to compare.
type Options struct {
	// Layer is the directory of the layer that has the overlay's upper directory, "upper", and "base", where the session's
	// base is kept.
	Layer string
	Repo  string // the repository itself
	// Paths restricts the run to these paths and all below them; empty means everything. They are relative to the
	// repository, clean, and none is below another one.
	Paths  []string
	Bounds Bounds
	// Digest requests the digest of all changes at the end of the stream. For it each differing file of the layer is
	// read.
	Digest bool
}

// trees are the open roots of the layer and the repository, and the directory of the session's base.
type trees struct {
	upper, lower, base *dir
	links              *scan.Links // of the repository
}

func (o Options) open() (t *trees, err error) {
	t = &trees{}
	for _, root := range []struct {
		at         **dir
		path, what string
	}{
		{&t.upper, filepath.Join(o.Layer, "upper"), "layer"},
		{&t.base, filepath.Join(o.Layer, "base"), "layer's base"},
		{&t.lower, o.Repo, "repository"},
	} {
		*root.at, err = openRoot(root.path)
		if root.at == &t.base && errors.Is(err, unix.ENOENT) { // of an earlier version, and full
			err = nil
		}
		if err != nil {
			t.close()
			return nil, fmt.Errorf("open the %s: %w", root.what, err)
		}
	}
	fd, err := t.lower.openat(".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.close()
		return nil, fmt.Errorf("open the repository: %w", err)
	}
	t.links = scan.NewLinks(os.NewFile(uintptr(fd), o.Repo), scan.Bounds{Time: linksTime})
	return t, nil
}

func (t *trees) close() {
	for _, d := range []*dir{t.upper, t.lower, t.base} {
		d.close()
	}
	t.links.Close()
}

// linksTime is the maximum time for finding the sensitive links of the repository, in addition to Bounds.Time.
const linksTime = 5 * time.Second

// checker returns a checker for the session that was opened at a time.
func (t *trees) checker(opened time.Time) (checker, error) {
	b, err := t.readBase(opened.UnixNano())
	return checker{base: b, seconds: wholeSeconds(t.lower.fd), touched: map[ident]int64{}}, err
}

// root returns the start of a walk. The permissions of the root itself are not compared.
func (t *trees) root() *pair {
	return &pair{upper: t.upper, lower: t.lower, rules: t.links.Rules()}
}
