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
//
// go-containerregistry parses indexes, manifests and configurations, and computes digests. Its readers of layouts and
// archives are not used, because they do not keep these bounds: layout reads index.json and blobs of any size, and opens
// them by name, following links out of the directory; tarball reads documents of any size, scans the archive from its
// start for each file, and mutate.Extract keeps all names of all layers in memory, drops links silently, and accepts
// entries below symbolic links (v0.22.1).
package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

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
