// Package image reads root file systems as people have them (a directory, a tar archive, what `docker save` writes, an
// OCI image layout as a directory or an archive) and writes each as one flattened archive of the form that package unpack
// insists on.
//
// It is a front-end's: it has the rights of who calls, which are to read what is imported. All that it reads may be
// hostile, and is bounded (Limits, and the constants below). What it makes of it is data on a stream, and no file.
//
//   - Layers are put on top of each other in memory: whiteouts, also opaque ones, remove what is below, and nothing of
//     what is removed is in the result. In a plain archive and a directory a name that begins with .wh. is a name.
//   - Each blob of an OCI layout, and each layer of a docker archive, has the digest that it is named by; else nothing is
//     written, or the archive is not ended.
//   - A name with ".." is refused. A leading slash is the root of the image. An entry whose directory is a symbolic link,
//     and a hard link that is not to a file of the image, by its own name, and before it, are refused. Symbolic links lead
//     where they lead; here nobody follows them.
//   - Devices, pipes and sockets are left out, and set-id bits are dropped: both are counted. Owners, extended attributes
//     and file capabilities are dropped: all files of a layer belong to one user.
//   - A directory is read without leaving it, neither through links nor into what is mounted in it.
package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"corral/image/unpack"
)

// Bounds of what is read, beside Limits.
const (
	MaxLayers   = 512     // of an image; container engines stop at 127
	MaxDocument = 4 << 20 // bytes of an index, a manifest or a configuration: what registries take
	maxImages   = 1000    // in an index and those it names
	maxIndexes  = 64
	maxText     = 256 << 20 // bytes of names and targets of links that are kept in memory
	maxWindow   = 128 << 20 // bytes that zstd keeps: that of --long=27, which zstd itself stops at
	maxBytes    = 1 << 50   // that a limit may be
	readFactor  = 4         // how much more may be read than results: upper layers replace what is below
)

// Limits bound the result. What is read to come to it may be four times as much.
type Limits struct {
	Entries int64 // 1 to unpack.MaxEntries
	Bytes   int64 // of the contents of files, with what is sparse in them; 1 to 2^50
}

// Options say what to read.
type Options struct {
	Limits
	// Ref chooses among several images: a tag of a docker archive, or the name that an index annotates. "" is the only one.
	Ref string
	// Architecture is the one to choose from an index, as Go names it; "" is this host's.
	Architecture string
}

// A Summary is what became of an image. Totals is what is in the archive.
type Summary struct {
	unpack.Totals
	Devices    int64 // devices, pipes and sockets that were left out
	SetID      int64 // files and directories that lost a set-id bit
	Unreadable Names // of a directory: what the caller may not read, and is left out
	Mounts     Names // of a directory: where something else is mounted, and which are empty
}

// Names is a list of names that may be long. They are bytes that somebody chose: quote them before showing them.
type Names struct {
	Count int64
	First []string // up to 10
}

func (n *Names) add(name string) {
	if n.Count++; len(n.First) < 10 {
		n.First = append(n.First, name)
	}
}

// A Source is a root file system that was opened.
type Source struct {
	kind  string
	write func(io.Writer) (Summary, error)
	close []io.Closer
}

// Kind says what it is, in words: "directory", "tar archive", "docker archive", "OCI layout".
func (s *Source) Kind() string { return s.kind }

// Write writes the archive, once. After an error it has no end, and package unpack refuses it.
func (s *Source) Write(w io.Writer) (Summary, error) { return s.write(w) }

// Close closes the files.
func (s *Source) Close() error {
	var err error
	for _, c := range s.close {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Open opens the root file system at path and finds out what it is. An archive may be compressed with gzip or zstd. The
// document of an image is read and verified; layers are when the Source is written.
func Open(path string, o Options) (*Source, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no %q", path)
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

// OpenFile is Open for an archive that is open: of a pipe, a copy is kept in a file without a name until the Source is
// closed. It takes f over.
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

// isLayout reports whether a directory is an OCI layout. What only looks like one is a root file system.
func isLayout(root *os.Root) bool {
	for _, name := range []string{layoutFile, indexFile} {
		if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}
