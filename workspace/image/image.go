// Package image reads root file systems in common formats (a directory, a tar archive, the output of `docker save`,
// an OCI image layout as a directory or an archive) and writes each as a single flattened archive in the form that
// package unpack accepts.
//
// It runs in a front-end with the rights of the caller, who must be able to read what is imported. All input may be
// hostile, and is bounded (Limits, and the constants below). The output is a stream; no file is created from the
// input's names.
//
//   - Layers are merged in memory: whiteouts, also opaque ones, remove lower entries, and removed entries do not
//     reach the result. In a plain archive and a directory, a name that begins with .wh. has no special meaning.
//   - Each blob of an OCI layout, and each layer of a docker archive, must match its digest; otherwise nothing is
//     written, or the archive gets no end record.
//   - A name with ".." is refused. A leading slash stands for the root of the image. Refused are also an entry whose
//     directory is a symbolic link, and a hard link whose target is not an earlier file of the image under its own
//     name. Symbolic links are copied unchanged; nothing here follows them.
//   - Devices, pipes and sockets are omitted, and set-id bits are dropped: both are counted. Owners, extended
//     attributes and file capabilities are dropped: all files of a layer belong to one user.
//   - Reading a directory never leaves it, neither through links nor into other mounts.
package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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

// A Source is an opened root file system.
type Source struct {
	kind  string
	write func(io.Writer) (Summary, error)
	close []io.Closer
}

// Kind returns "directory", "tar archive", "docker archive" or "OCI layout".
func (s *Source) Kind() string { return s.kind }

// Write writes the archive. It may be called once. After an error the archive has no end record, so package unpack
// refuses it.
func (s *Source) Write(w io.Writer) (Summary, error) { return s.write(w) }

// Close closes all files of the Source.
func (s *Source) Close() error {
	var err error
	for _, c := range s.close {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Open opens the root file system at path and determines its kind. An archive may be compressed with gzip or zstd.
// Open reads and verifies the documents of an image; Write does so with the layers.
func Open(path string, o Options) (*Source, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%q does not exist", path)
	}
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openDirectory(path, o)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return OpenFile(f, o)
}

// OpenFile is Open for an open archive. The contents of a pipe are copied to an unlinked temporary file until the
// Source is closed. OpenFile takes ownership of f and closes it also after an error.
func OpenFile(f *os.File, o Options) (*Source, error) {
	s := &Source{close: []io.Closer{f}}
	err := o.check()
	if err == nil {
		err = s.openArchive(f, o)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
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

func openDirectory(path string, o Options) (*Source, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	s := &Source{close: []io.Closer{root}}
	if isLayout(root) {
		err = s.openLayout(directoryBlobs{root}, o)
	} else {
		s.kind = "directory"
		s.write = func(w io.Writer) (Summary, error) { return writeDirectory(w, root, o.Limits) }
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// isLayout reports whether a directory is an OCI layout, with both files regular. Any other directory is a root file
// system.
func isLayout(root *os.Root) bool {
	for _, name := range []string{layoutFile, indexFile} {
		if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}
