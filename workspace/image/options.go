package image

import (
	"fmt"
	"runtime"

	"corral/workspace/image/unpack"
)

// Bounds of the input, in addition to Limits.
const (
	MaxLayers   = 512     // of an image; container engines allow 127
	MaxDocument = 4 << 20 // bytes of an index, a manifest or a configuration: the limit of registries
	maxImages   = 1000    // in an index and its nested indexes
	maxIndexes  = 64
	maxText     = 256 << 20 // bytes of names and link targets in memory
	maxWindow   = 128 << 20 // zstd's window in bytes: that of --long=27, the default maximum of zstd
	maxBytes    = 1 << 50   // the maximum of Limits.Bytes
	readFactor  = 4         // input per output: upper layers replace files of lower ones
)

// Limits bound the result. The input may be four times as large.
type Limits struct {
	Entries int64 // 1 to unpack.MaxEntries
	Bytes   int64 // of the contents of files, including holes; 1 to 2^50
}

// Options select what to read.
type Options struct {
	Limits
	// Ref selects one of several images: a tag of a docker archive, or a name in an index's annotations. "" selects
	// the only one.
	Ref string
	// Architecture selects an image of an index, as a GOARCH value; "" stands for this host's.
	Architecture string
}

func (o *Options) check() error {
	if o.Entries < 1 || o.Entries > unpack.MaxEntries || o.Bytes < 1 || o.Bytes > maxBytes {
		return fmt.Errorf("the limits of an image must be 1 to %d entries and 1 to %d bytes", unpack.MaxEntries, int64(maxBytes))
	}
	if o.Architecture == "" {
		o.Architecture = runtime.GOARCH
	}
	return nil
}

// A Summary reports how an image was converted. Totals counts the contents of the archive.
type Summary struct {
	unpack.Totals
	Devices    int64 // omitted devices, pipes and sockets
	SetID      int64 // files and directories that lost a set-id bit
	Unreadable Names // of a directory: omitted because the caller may not read them
	Mounts     Names // of a directory: mount points, which are empty in the archive
}

// Names counts names and keeps the first ones. They are untrusted bytes: quote them before showing them.
type Names struct {
	Count int64
	First []string // up to 10
}

func (n *Names) add(name string) {
	if n.Count++; len(n.First) < 10 {
		n.First = append(n.First, name)
	}
}
